"""GPT-NeoX: YAML files of its own names, some of which it hands on to DeepSpeed, for `deepy.py train.py`."""

from typing import Any

from shardwise.plugins.optimizers import read_from
from shardwise.programs.formats._contract import Format, Found, Known, own_overlaps
from shardwise.programs.formats._settings import FileSettings
from shardwise.spec.policy import Policy

STACK = "gpt-neox"
OWN = (
    "pipe_parallel_size",
    "model_parallel_size",
    "attention_config",
    "rotary_pct",
    "no_weight_tying",
    "gpt_j_residual",
)


def _names(settings: FileSettings) -> FileSettings:
    """Its files have names with dashes or underscores."""
    values = {name.replace("-", "_"): value for name, value in settings.values.items()}
    return FileSettings(values, settings.where, settings.program, settings.track)


def _claims(settings: FileSettings) -> bool:
    inner = _names(settings)
    return inner.has("num_layers") and bool(inner.first(*OWN))


def _read(settings: FileSettings, known: Known) -> Found:
    outer, settings = settings, _names(settings)
    notes, beyond = list[str](), list[str]()
    pp = max(settings.whole("pipe_parallel_size", 0, least=0), 1)
    tp = settings.whole("model_parallel_size")
    gpus = known.gpus or settings.whole_or_none("global_num_gpus")
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    dp = max((gpus or 1) // (pp * tp), 1)
    micro = settings.whole(
        settings.first("train_micro_batch_size_per_gpu", "batch_size") or "train_micro_batch_size_per_gpu", 0, least=0
    )
    steps = settings.whole("gradient_accumulation_steps", 0, least=0)
    if settings.text("gradient_accumulation_steps") == "auto":
        steps = 0
    batch = settings.whole("train_batch_size", 0, least=0)
    if not micro:
        if not batch:
            notes.append(
                "neither the micro-batch nor the batch is stated, of which the program asks for one: 1 is taken"
            )
        micro = max(batch // (max(steps, 1) * dp), 1) if batch else 1
    batch = batch or micro * max(steps, 1) * dp
    zero = settings.whole("zero_optimization.stage", settings.whole("zero_stage", 0, least=0), least=0)
    if settings.whole("moe_num_experts", 1) > 1:
        beyond.append("moe_num_experts: experts of GPT-NeoX are not read")
    recompute = settings.flag("checkpoint_activations")
    every = settings.whole("checkpoint_num_layers")
    if recompute and every > 1:
        beyond.append(
            f"checkpoint_num_layers {every}: inputs of every {every}th layer are kept; of each layer is priced"
        )
    kinds = str(settings.values.get("attention_config", "global"))
    settings.words("attention_config")
    policy = Policy(
        dp=dp,
        tp=tp,
        pp=pp,
        zero=zero,
        micro_batch=micro,
        sp=settings.flag("sequence_parallel") and tp > 1,
        recompute="full" if recompute else "none",
        attention="flash" if "flash" in kinds else "plain",
        offload="optimizer"
        if settings.text("zero_optimization.offload_optimizer.device", "none") != "none"
        or settings.flag("zero_optimization.cpu_offload")
        else "none",
        **own_overlaps(STACK, "overlap_grad", "overlap_param"),
    )
    if "sparse" in kinds or "mamba" in kinds or "rwkv" in kinds or "gmlp" in kinds:
        beyond.append("attention_config: layers that are not attention over all positions")
    for name in (*(n for n in settings.names() if n.startswith(("zero_optimization.", "optimizer.params"))), *SHAPE):
        settings.words(name)
    outer.track |= {name for name in outer.names() if name.replace("-", "_") in settings.track}
    return Found(
        policy=policy,
        gpus=gpus,
        seq=settings.whole_or_none("seq_length"),
        global_batch=batch,
        precision=_precision(settings),
        optimizer=read_from("deepspeed", settings.text("optimizer.type", "Adam")) or "adamw",
        notes=tuple(notes),
        not_modelled=tuple(beyond),
    )


SHAPE = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_kv_heads",
    "intermediate_size",
    "max_position_embeddings",
    "norm",
    "activation",
    "mlp_type",
    "no_weight_tying",
    "gpt_j_residual",
    "output_layer_parallelism",
)


def _precision(settings: FileSettings) -> str:
    stated: dict[str, Any] = {"bfloat16": "bf16", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
    if settings.has("precision"):
        return str(settings.choice("precision", stated, ""))
    for name in ("bf16", "fp16"):
        if settings.flag(f"{name}.enabled"):
            settings.text(f"{name}.type")
            return "bf16" if settings.text(f"{name}.type") == "bfloat16" else name
    return "fp16" if settings.has("fp16.enabled") and settings.flag("fp16.enabled") else "fp32"


FORMAT = Format(
    name="gpt_neox", title="GPT-NeoX", stack=STACK, claims=_claims, read=_read,
    source="EleutherAI/gpt-neox ea7aefd8: megatron/neox_arguments/neox_args.py, arguments.py",
    starts=r"(?:.*/)?deepy\.py",
    only={"vpp": (1,), "cp": (1,), "ep": (1,), "etp": (0,), "schedule": ("1f1b",), "recompute": ("none", "full"),
          "recompute_modules": ((),), "offload": ("none", "optimizer"), "sync": ("",)},
)  # fmt: skip
