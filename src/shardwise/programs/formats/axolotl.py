"""Axolotl: one YAML of its own names over Hugging Face's Trainer, with FSDP or DeepSpeed inside of it or beside it."""

from dataclasses import replace
from typing import Any

from shardwise.programs.formats import accelerate
from shardwise.programs.formats._adapters import peft_targets
from shardwise.programs.formats._contract import Found, Known, Lack, Launch, Written
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._scripts import configured, network_environment
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import degrees
from shardwise.programs.formats._trainer import OF_TRAINER, TrainerNames, read_trainer
from shardwise.programs.formats._tuning import peft_text

STACK = "hugging-face@axolotl"

BUNDLED = {
    "zero1": (1, "none"), "zero1_torch_compile": (1, "none"), "zero2": (2, "none"), "zero2_torch_compile": (2, "none"),
    "zero3": (3, "none"), "zero3_bf16": (3, "none"), "zero3_bf16_cpuoffload_all": (3, "cpu"),
    "zero3_bf16_cpuoffload_params": (3, "none"),
}  # fmt: skip
"""its deepspeed_configs"""
NAMES = TrainerNames(
    micro=("micro_batch_size",), usual_micro=1, seq=("sequence_len",), usual_seq=512, bundled=BUNDLED,
    recompute=("gradient_checkpointing",), packing=("sample_packing",),
)  # fmt: skip
SIZES = {"tensor_parallel_size": "tp", "context_parallel_size": "cp", "sequence_parallel_degree": "cp",
         "dp_replicate_size": "dp_replicate"}  # fmt: skip


DOUBLE = "bnb_config_kwargs.bnb_4bit_use_double_quant"


def _claims(settings: FileSettings) -> bool:
    return settings.has("base_model") and bool(settings.first("sequence_len", "micro_batch_size", "adapter"))


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond = list[str](), list[str]()
    more: dict[str, Any] = {"called": settings.text("base_model")}
    adapter = settings.text("adapter")
    if adapter in ("lora", "qlora"):
        values = {**settings.values, **({"load_in_4bit": True} if adapter == "qlora" else {})}
        if settings.flag("lora_target_linear"):
            values["lora_target_modules"] = ["all"]
        if settings.has(DOUBLE):
            values["bnb_4bit_use_double_quant"] = settings.flag(DOUBLE)
        kept = FileSettings(values, settings.where, settings.program, settings.track)
        more["tune"] = peft_text(kept, notes, beyond, rank=8)
        settings.words("lora_target_modules")
    elif adapter:
        raise settings.refuse("adapter", "lora or qlora")
    if settings.first("unfrozen_parameters"):
        beyond.append("unfrozen_parameters: the parts that are trained; all are priced so")
        settings.words("unfrozen_parameters")
    if (rl := settings.text("rl")) not in ("", "None"):
        beyond.append(f"rl {rl}: a step runs more than one forward of an example; one of each sequence is priced")
    sizes = {f"parallelism_config.parallelism_config_{axis}_size": settings.whole(name)
             for name, axis in SIZES.items() if settings.has(name)}  # fmt: skip
    settings.whole_or_none("dp_shard_size")
    version = {"fsdp": "full_shard"} if _shares(settings) else {}
    values = {**settings.values, **{f"accelerate.{name}": value for name, value in sizes.items()}, **version}
    if "fsdp" in settings.values and version:
        settings.words("fsdp")
    inner = FileSettings(values, settings.where, settings.program, settings.track)
    settings.text("fsdp_version")
    settings.flag("flash_attention")
    for name in ("pad_to_sequence_len", "sample_packing"):
        settings.flag(name)
    found = read_trainer(inner, known, NAMES, notes=notes, not_modelled=beyond, **more)
    usual = "varlen_llama3" if inner.flag("sample_packing") else "batch_ring"
    gathers = settings.text("ring_attn_func", usual) == "varlen_llama3"
    if found.software:
        found = replace(found, software={"context_parallel": "gather" if gathers else "ring"})
    return replace(found, stack=STACK) if found.stack == OF_TRAINER else found


def _shares(settings: FileSettings) -> bool:
    """Whether FSDP is switched on, and not only described: then a list or a configuration of it is stated."""
    fsdp = str(settings.values.get("fsdp", ""))
    return fsdp not in ("", "[]", "None") or any(name.startswith("fsdp_config.") for name in settings.names())


def _gaps(launch: Launch) -> list[Lack]:
    """Packed sequences go over context-parallel ranks one at a time."""
    found = accelerate.gaps_of_program(launch)
    kind, policy = launch.case.stack.abilities.context_parallel, launch.policy
    if policy.cp > 1 and kind == "ulysses":
        raise ValueError("context-parallel: ulysses, but Axolotl has ring and gather; write one of them")
    if policy.cp > 1 and kind == "gather" and policy.micro_batch > 1:
        found.append(Lack("micro_batch", policy.micro_batch, "gathered attention takes one packed sequence at a time"))
    return found


def _configuration(launch: Launch) -> dict[str, Any]:
    policy, job = launch.policy, launch.case.job
    replicate, shard = degrees(policy)
    gathers = launch.case.stack.abilities.context_parallel == "gather"
    data: dict[str, Any] = {
        "base_model": "MODEL", "datasets": [{"path": "DATASET", "type": "alpaca"}], "output_dir": "output",
        "num_epochs": 1, "sequence_len": job.seq, "sample_packing": policy.cp == 1 or gathers,
        "pad_to_sequence_len": True, "attn_implementation": "flash_attention_2",
        "micro_batch_size": policy.micro_batch,
        "gradient_accumulation_steps": job.global_batch // (policy.dp * policy.micro_batch),
        "optimizer": "adamw_torch", "learning_rate": 0.0002, job.precision.compute: True,
        "gradient_checkpointing": policy.recompute == "full",
    }  # fmt: skip
    if policy.cp > 1:
        data["ring_attn_func"] = "varlen_llama3" if gathers else "batch_ring"
    if policy.recompute == "full":
        data["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    four_bits = job.tuning is not None and bool(job.tuning.base)
    if job.tuning is not None and (adapters := job.tuning.adapters) is not None:
        data |= {"adapter": "qlora" if four_bits else "lora", "lora_r": adapters.rank, "lora_alpha": 2 * adapters.rank,
                 "lora_dropout": 0.0}  # fmt: skip
        every = adapters.targets == ("all",)
        names = {"lora_target_linear": True} if every else {
            "lora_target_modules": peft_targets(launch.case.model, adapters)}  # fmt: skip
        data |= names | ({"peft_use_dora": True} if adapters.magnitudes else {})
    if four_bits and job.tuning is not None:
        double = {} if job.tuning.base == "nf4" else {"bnb_config_kwargs": {"bnb_4bit_use_double_quant": False}}
        data |= {"load_in_4bit": True, **double}
    sizes = {"dp_shard_size": shard, "dp_replicate_size": replicate if shard > 1 else 1,
             "tensor_parallel_size": policy.tp, "context_parallel_size": policy.cp}  # fmt: skip
    data |= {name: size for name, size in sizes.items() if size > 1}
    if policy.zero:
        data |= {"fsdp_version": 2, "fsdp_config": {
            "reshard_after_forward": policy.zero == 3, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "state_dict_type": "SHARDED_STATE_DICT", "offload_params": False,
            # weights of 4 bits have another shape on the rank that quantises them than on those that wait for them
            "cpu_ram_efficient_loading": not four_bits,
        }}  # fmt: skip
    return data


def _write(launch: Launch) -> Written:
    notes = ("MODEL_PATH (a folder or hub id), DATASET, DATASET_TYPE and OUTPUT are yours; so are num_epochs and "
             "learning_rate in axolotl.yaml",)  # fmt: skip
    data = "\"[{'path': '${DATASET:?}', 'type': '${DATASET_TYPE:-alpaca}'}]\""
    words = ["--base_model", '"${MODEL_PATH:?}"', "--datasets", data, "--output_dir", '"${OUTPUT:-output}"']
    environment = network_environment(launch.case.cluster, launch.cards)
    text = yaml_text(_configuration(launch), notes)
    return configured(
        launch, "axolotl.yaml", text, "-m axolotl.cli.train axolotl.yaml", words, environment, notes,
    )  # fmt: skip


FORMAT = replace(
    accelerate.FORMAT, name="axolotl", title="Axolotl", stack=STACK, gaps=_gaps, write=_write, claims=_claims,
    read=_read, own_script=False, parts=True, smoke="",
    source="axolotl-ai-cloud/axolotl 0.19: src/axolotl/utils/schemas/config.py, fsdp.py, peft.py, validation.py",
    starts=r"axolotl (?:train|preprocess)|axolotl\.cli\.train",
)  # fmt: skip
