"""Hugging Face's Trainer: its arguments, with accelerate's or DeepSpeed's file, as programs built on it take them.

'auto' in a DeepSpeed file is filled in from the arguments, as integrations/deepspeed.py of transformers does.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwise.plugins.optimizers import read_from
from shardwise.programs.formats._contract import Found, Known
from shardwise.programs.formats._settings import FileSettings, flattened
from shardwise.programs.formats._sharding import read as shared
from shardwise.programs.formats._shell_words import is_open, shown_word
from shardwise.spec.policy import Policy

OF_TRAINER, OF_DEEPSPEED = "hugging-face", "deepspeed"
FSDP = {"full_shard": 3, "shard_grad_op": 2, "no_shard": 0, "hybrid_shard": 3, "hybrid_shard_zero2": 2, "1": 3, "2": 2,
        "3": 0, "4": 3, "5": 2, "true": 3, "false": 2}  # fmt: skip
SIZES = ("parallelism_config.parallelism_config_", "parallelism_config_", "parallelism_config.")
HALVES = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8", "bfloat16": "bf16", "float16": "fp16"}


QUANTISED = re.compile(r"[-_](?:awq|gptq|int[48]|bnb|[48]bit)\b", re.IGNORECASE)
FAMILY: dict[str, tuple[Any, ...]] = {
    "pp": (1,), "ep": (1,), "etp": (0,), "recompute": ("none", "full"), "recompute_modules": ((),),
    "order": ("tp-cp-dp-pp",), "offload": ("none", "optimizer"), "sync": ("",),
}  # fmt: skip
"""what the Trainer can state of a policy"""


def is_of_trainer(settings: FileSettings) -> bool:
    """Whether arguments are the Trainer's, and not of a program that has its own names for them."""
    own = ("per_device_train_batch_size", "per_gpu_train_batch_size")
    return any(map(settings.has, own)) and not settings.has("tensor_model_parallel_size")


@dataclass(frozen=True)
class TrainerNames:
    """Where a program built on the Trainer keeps its settings, and what it sets where a file is silent."""

    micro: tuple[str, ...] = ("per_device_train_batch_size", "per_gpu_train_batch_size")
    usual_micro: int = 8
    usual_accumulation: int = 1
    wanted_batch: int = 0
    """sequences of a step that accumulation is chosen for, where it is not stated"""
    seq: tuple[str, ...] = (
        "max_length",
        "max_seq_length",
        "model_max_length",
        "block_size",
        "cutoff_len",
        "max_seq_len",
    )
    usual_seq: int = 0
    recomputes: bool = False
    recompute: tuple[str, ...] = ("gradient_checkpointing", "grad_checkpoint")
    half: str = ""
    packing: tuple[str, ...] = ("packing",)
    launched_apart: bool = False
    """its own file leaves to the launcher's how ranks share the model"""
    bundled: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """names of DeepSpeed settings that come with the program -> (stage, device of the optimizer)"""


@dataclass
class Sharding:
    """How ranks share a model."""

    zero: int = 0
    group: int = 0
    replicas: int = 1
    tp: int = 1
    cp: int = 1
    kind: str = ""
    """how context parallelism exchanges"""
    offload: str = "none"
    deepspeed: bool = False
    recomputes: bool = False
    overlap: bool = True


def read_trainer(settings: FileSettings, known: Known, names: TrainerNames, **more: Any) -> Found:
    """`more`: fields of what is found that the program states in its own words."""
    notes, beyond = list[str](more.pop("notes", ())), list[str](more.pop("not_modelled", ()))
    total = settings.whole_or_none("accelerate.num_processes")
    gpus = known.gpus or total
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    sharing = _sharing(settings, names, gpus or 1, notes, beyond)
    dp = max((gpus or 1) // (sharing.tp * sharing.cp), 1)
    micro_name = settings.first(*names.micro) or names.micro[0]
    micro = settings.whole(micro_name, _counted(settings, "train_micro_batch_size_per_gpu", names.usual_micro))
    accumulation = _accumulation(settings, names, micro, dp)
    if more.get("tune") and (bits := QUANTISED.search(str(more.get("called", "")))):
        beyond.append(f"{bits[0].strip('-_')} in the model's name: weights of few bits, priced as 16")
    policy = Policy(
        dp=dp, tp=sharing.tp, cp=sharing.cp, zero=sharing.zero,
        shard_group=sharing.group, sp=sharing.tp > 1, micro_batch=micro,
        recompute="full" if _recomputes(settings, names) or sharing.recomputes else "none",
        attention="plain" if _attention(settings) in ("eager", "disabled") else "flash",
        loss="chunked" if _liger(settings) else "", overlap_grad=sharing.overlap,
        offload="optimizer" if sharing.offload != "none" else "none",
    )  # fmt: skip
    found: dict[str, Any] = {
        "gpus": gpus, "seq": _seq(settings, names, notes),
        "global_batch": _counted(settings, "train_batch_size", micro * accumulation * dp),
        "precision": _half(settings, names), "optimizer": _optimizer(settings, notes),
        "stack": OF_DEEPSPEED if sharing.deepspeed else OF_TRAINER,
        "software": {"context_parallel": sharing.kind} if sharing.cp > 1 and sharing.kind else {},
    }  # fmt: skip
    return Found(policy=policy, notes=tuple(notes), not_modelled=tuple(beyond), **{**found, **more})


def _sharing(
    settings: FileSettings, names: TrainerNames, gpus: int, notes: list[str], beyond: list[str]
) -> Sharding:  # fmt: skip
    found = _degrees(settings)
    kind = settings.text("accelerate.distributed_type").upper()
    stated = settings.text("deepspeed").strip()
    if stated.lower() in ("", "true") and settings.first(*STAGES):
        stated = ""  # a switch: the script makes the settings from its own arguments
    if stated.startswith("{"):
        settings = FileSettings(
            {**settings.values, **_inline(stated)}, settings.where, settings.program, settings.track
        )
    if settings.has("deepspeed.zero_optimization.stage") or any(n.startswith("deepspeed.") for n in settings.names()):
        return _zero(settings, "deepspeed.zero_optimization.", found, notes, beyond)
    if stated and not stated.startswith("{"):
        return _bundled(settings, stated, names, found)
    if kind == "DEEPSPEED" or settings.flag("launch.use_deepspeed") or settings.first(*STAGES):
        return _of_accelerate(settings, found, beyond)
    words = settings.text("fsdp").replace(",", " ").split()
    if kind == "FSDP" or settings.flag("launch.use_fsdp") or (words and words[0] not in ("False", "false")):
        return _fsdp(settings, words, found, gpus, beyond)
    if kind in ("MEGATRON_LM", "TPU", "XLA"):
        raise settings.refuse("accelerate.distributed_type", "FSDP, DEEPSPEED or MULTI_GPU")
    if not kind and settings.has("launch.config_file"):
        raise _not_here(settings, "launch.config_file")
    if not settings.program and names.launched_apart and not kind:
        notes.append(
            "how ranks share the model is not stated here: plain data parallelism is taken; accelerate's or "
            "DeepSpeed's file says it: name that file too"
        )
    return found


def _degrees(settings: FileSettings) -> Sharding:
    """Axes beside data parallelism, of accelerate's file or the arguments."""

    def size(axis: str) -> int:
        name = settings.first(
            *(f"{at}{prefix}{axis}_size" for at in ("accelerate.", "", "launch.") for prefix in SIZES)
        )
        return settings.whole(name) if name else 1

    ring, heads, _ = size("cp"), size("sp"), size("dp_shard")
    tp = size("tp") * settings.whole("deepspeed.tensor_parallel.autotp_size", 1, least=0)
    strategies = [settings.text(name) for name in settings.names() if "cp_comm_strategy" in name]
    gathered = any("alltoall" in name for name in strategies)
    kind = "ulysses" if heads > 1 else "ring" if gathered else "gather"
    return Sharding(tp=max(tp, 1), cp=ring * heads, kind=kind, replicas=size("dp_replicate"))


def _zero(
    settings: FileSettings, at: str, found: Sharding, notes: list[str], beyond: list[str]
) -> Sharding:  # fmt: skip
    """Of a DeepSpeed file, whole or inside of another."""
    found.deepspeed, found.zero = True, settings.whole(f"{at}stage", 0, least=0)
    found.offload = settings.text(f"{at}offload_optimizer.device", "none")
    if settings.text(f"{at}offload_param.device", "none") != "none":
        beyond.append("offload_param: parameters that stay in the host's memory are not modelled")
    if found.offload == "nvme":
        notes.append("offload to NVMe is taken as to memory")
    overlap = settings.text(f"{at}overlap_comm")
    found.overlap = found.zero == 3 if overlap in ("", "auto") else settings.flag(f"{at}overlap_comm")
    if settings.has("deepspeed.sequence_parallel_size"):
        found.cp, found.kind = settings.whole("deepspeed.sequence_parallel_size"), "ulysses"
    return found


def _inline(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    return {f"deepspeed.{name}": value for name, value in flattened(data).items()} if isinstance(data, dict) else {}


def _bundled(settings: FileSettings, stated: str, names: TrainerNames, found: Sharding) -> Sharding:
    name = stated.rpartition("/")[2].removesuffix(".json")
    if stated.lower() in ("true", "false", ""):
        raise settings.refuse("deepspeed", "the path of its settings")
    if name not in names.bundled or is_open(stated):
        raise _not_here(settings, "deepspeed")
    found.deepspeed, (found.zero, found.offload) = True, names.bundled[name]
    found.overlap = found.zero == 3
    return found


def _not_here(settings: FileSettings, option: str) -> ValueError:
    """ZeRO's stage is in a file that was not given: it is never guessed."""
    value = shown_word(str(settings.values.get(option, "")))
    script = settings.where.split(", ")[-1]
    return ValueError(
        f"{script}: {option.removeprefix('launch.')} is {value}, which is not here and says how the model is shared "
        f"out; name it too: check {script} {value.rpartition('/')[2]}"
    )


STAGES = ("launch.zero_stage", "zero_stage", "deepspeed_stage")


def _of_accelerate(settings: FileSettings, found: Sharding, beyond: list[str]) -> Sharding:
    """ZeRO as accelerate's own file or its command states it."""
    at = "accelerate.deepspeed_config."
    file = settings.first(
        f"{at}deepspeed_config_file", "launch.deepspeed_config_file", "accelerate.deepspeed_config_file"
    )
    if file:
        raise _not_here(settings, file)
    found.deepspeed = True
    stage = settings.first(f"{at}zero_stage", *STAGES)
    found.zero = settings.whole(stage, least=0) if stage else 2
    device = settings.first(f"{at}offload_optimizer_device", "launch.offload_optimizer_device")
    found.offload = settings.text(device, "none") if device else "cpu" if settings.flag("offload") else "none"
    if settings.text(f"{at}offload_param_device", "none") != "none":
        beyond.append("offload_param_device: parameters that stay in the host's memory are not modelled")
    found.overlap = found.zero == 3
    return found


def _fsdp(
    settings: FileSettings, words: Sequence[str], found: Sharding, gpus: int, beyond: list[str]
) -> Sharding:  # fmt: skip
    def option(name: str) -> str:
        places = ("accelerate.fsdp_config.fsdp_", "launch.fsdp_", "fsdp_config.fsdp_", "fsdp_config.")
        return settings.first(*(place + name for place in places))

    strategy = next((word for word in words if word in FSDP), "")
    at, reshards = option("sharding_strategy"), option("reshard_after_forward")
    if reshards and (version := option("version")) and settings.text(version) == "2":
        settings.text(at)
        at = ""  # the second version goes by what is kept after forward
    stated = settings.text(at).lower() if at else settings.text(reshards).lower() if reshards else strategy
    if stated and stated not in FSDP:
        raise settings.refuse(at or reshards or "fsdp", f"one of {', '.join(FSDP)}")
    stage = FSDP.get(stated, 3)
    ranks = max(gpus // (found.tp * found.cp), 1)
    shard = ranks // found.replicas
    if stated.startswith("hybrid") or stated in ("4", "5"):
        shard = min(8, ranks)
        beyond.append(f"{stated}: shared out inside a node, of 8 GPUs as is assumed")
    found.zero, found.group = stage, shared(ranks, shard, found.cp, stage == 3)[1] if stage else 0
    found.recomputes = bool(option("activation_checkpointing")) and settings.flag(option("activation_checkpointing"))
    if "offload" in words or (option("offload_params") and settings.flag(option("offload_params"))):
        beyond.append("parameters and optimizer offloaded together are not modelled")
    return found


def _counted(settings: FileSettings, name: str, usual: int) -> int:
    """A number of DeepSpeed's file, where it is not left to the Trainer."""
    full = f"deepspeed.{name}"
    return usual if settings.text(full, "auto") == "auto" else settings.whole(full)


def _accumulation(settings: FileSettings, names: TrainerNames, micro: int, dp: int) -> int:
    usual = -(-names.wanted_batch // (micro * dp)) if names.wanted_batch else names.usual_accumulation
    at = "accelerate.deepspeed_config.gradient_accumulation_steps"
    if settings.text("gradient_accumulation_steps", "auto") != "auto":
        return settings.whole("gradient_accumulation_steps")
    if settings.text(at, "auto") != "auto":
        return settings.whole(at)
    return _counted(settings, "gradient_accumulation_steps", usual)


def _recomputes(settings: FileSettings, names: TrainerNames) -> bool:
    if settings.has("disable_gradient_checkpointing"):
        return not settings.flag("disable_gradient_checkpointing")
    name = settings.first(*names.recompute)
    settings.text("gradient_checkpointing_kwargs.use_reentrant")
    if name and settings.text(name) in ("offload", "offload_disk", "unsloth"):
        return True
    return settings.flag(name, names.recomputes) if name else names.recomputes


def _attention(settings: FileSettings) -> str:
    name = settings.first("attn_implementation", "flash_attn", "attn_impl", "attn")
    return settings.text(name).lower() if name else ""


def _liger(settings: FileSettings) -> bool:
    name = settings.first("use_liger_kernel", "use_liger", "enable_liger_kernel", "liger_fused_linear_cross_entropy")
    return bool(name) and settings.flag(name)


def _seq(settings: FileSettings, names: TrainerNames, notes: list[str]) -> int | None:
    name = settings.first(*names.seq)
    long = settings.whole(name) if name else names.usual_seq
    if settings.has("max_completion_length"):
        prompt = settings.whole("max_prompt_length", 512) if not name else 0
        notes.append(
            f"sequences of {long or prompt} tokens of prompt and {settings.whole('max_completion_length')} of answer"
        )
        long = (long or prompt) + settings.whole("max_completion_length")
    packing = settings.first(*names.packing)
    if long and not (packing and settings.flag(packing)):
        notes.append(f"without packing, {long} tokens is the longest sequence: most steps are shorter than predicted")
    return long or None


def _half(settings: FileSettings, names: TrainerNames) -> str:
    settings.text(
        settings.first("accelerate.mixed_precision", "launch.mixed_precision") or "accelerate.mixed_precision"
    )
    for name in ("torch_dtype", "dtype"):
        settings.text(name)
    for name, half in (
        ("bf16", "bf16"),
        ("pure_bf16", "bf16"),
        ("bfloat16", "bf16"),
        ("fp16", "fp16"),
        ("float16", "fp16"),
    ):
        if settings.has(name) and settings.text(name) in ("auto", "full", "True", "true", "1", "yes"):
            return half
    wide = settings.has("bf16") or settings.has("fp16")
    stated = settings.first("accelerate.mixed_precision", "launch.mixed_precision")
    if stated and settings.text(stated) in HALVES and not (wide and settings.text(stated) == "no"):
        return HALVES[settings.text(stated)]
    for half in ("bf16", "fp16"):
        if settings.text(f"deepspeed.{half}.enabled") in ("True", "true"):
            return half
    if not wide and not names.half and settings.text("dtype") in HALVES:
        return HALVES[settings.text("dtype")]  # of scripts that have no other switch
    return names.half if not wide else "fp32" if names.half != "bf16" or settings.has("bf16") else names.half


def _optimizer(settings: FileSettings, notes: list[str]) -> str:
    name = settings.first("optim", "optimizer", "optimizer.type")
    stated = settings.text(name) if name else ""
    if settings.has("deepspeed.optimizer.type"):
        return read_from("deepspeed", settings.text("deepspeed.optimizer.type")) or "adamw"
    word = stated.lower()
    eight = ("8bit" in word or "4bit" in word) and "adam" in word
    found = "adamw-8bit" if eight else next(
        (rule for part, rule in (("adafactor", "adafactor"), ("lion", "lion"), ("muon", "muon"), ("sgd", "sgd"),
                                 ("adam", "adamw")) if part in word), "")  # fmt: skip
    if stated and not found:
        notes.append(f"{name} {stated}: not known, priced as adamw")
    return found or "adamw"
