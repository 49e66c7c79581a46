"""Hugging Face TRL: supervised fine-tuning by its own script, launched by accelerate with FSDP2; adapters by peft."""

from dataclasses import replace

from msgspec.structs import replace as with_fields

from shardwise.programs.formats import accelerate
from shardwise.programs.formats._adapters import peft_targets, tune_text
from shardwise.programs.formats._contract import Found, Known, Lack, Launch, Written
from shardwise.programs.formats._settings import FileSettings

STACK = "hugging-face@trl"
USUAL_LENGTH = 1024
"""of its sequences, where nobody says"""


def _gaps(launch: Launch) -> list[Lack]:
    """Its own switch recomputes without FSDP too."""
    return [lack for lack in accelerate.gaps_of_file(launch) if lack.field != "recompute"]


def _write(launch: Launch) -> Written:
    job, policy = launch.case.job, launch.policy
    words = ["--model_name_or_path", '"${MODEL_PATH:?}"', "--dataset_name", '"${DATASET:?}"', "--output_dir",
             '"${OUTPUT:-output}"', "--max_length", str(job.seq), "--packing"]  # fmt: skip
    words += ["--bf16"] if job.precision.compute == "bf16" else []
    # its configuration turns checkpointing on by itself; under FSDP the launcher's file has the switch
    words += ["--gradient_checkpointing", str(policy.recompute == "full" and policy.zero == 0)]
    if job.tuning is not None and (adapters := job.tuning.adapters) is not None:
        words += ["--use_peft", "--lora_r", str(adapters.rank), "--lora_target_modules",
                  *peft_targets(launch.case.model, adapters)]  # fmt: skip
        words += ["--use_dora"] if adapters.magnitudes else []
        if job.tuning.base:
            # FSDP shares out what has one dtype: the 4-bit weights are stored as numbers of the others' width
            words += ["--load_in_4bit", "--bnb_4bit_quant_type", "nf4", "--bnb_4bit_quant_storage", "bfloat16"]
            words += ["--use_bnb_nested_quant"] if job.tuning.base == "nf4" else []
        words += ["--dtype", "bfloat16"]
    notes = ("MODEL_PATH (a folder or hub id), DATASET and OUTPUT are yours; sequences are packed to --max_length",)
    return accelerate.started(launch, "-m trl.scripts.sft", words, notes)


def _claims(settings: FileSettings) -> bool:
    return settings.has("distributed_type") and any(settings.has(name) for name in accelerate.OF_TRL)


def _read(settings: FileSettings, known: Known) -> Found:
    found = accelerate.read_configuration(settings, known)
    for name in ("model_name_or_path", "dataset_name", "output_dir", "bf16", "dtype", "packing", "lora_alpha",
                 "lora_dropout", "bnb_4bit_quant_type", "bnb_4bit_quant_storage"):  # fmt: skip
        settings.text(name)
    full = settings.flag("gradient_checkpointing", True) or found.policy.recompute == "full"
    tune = ""
    if settings.flag("use_peft"):
        nested = settings.flag("use_bnb_nested_quant")
        base = ("nf4" if nested else "nf4-single") if settings.flag("load_in_4bit") else ""
        targets = settings.words("lora_target_modules")
        tune = tune_text(settings.whole("lora_r", 16), targets, dora=settings.flag("use_dora"), base=base)
    return replace(found, policy=with_fields(found.policy, recompute="full" if full else "none"), tune=tune,
                   seq=settings.whole("max_length", USUAL_LENGTH))  # fmt: skip


FORMAT = replace(
    accelerate.FORMAT, name="trl", title="TRL", stack=STACK, gaps=_gaps, write=_write, claims=_claims, read=_read,
    own_script=False, source="huggingface/trl 1.16: trl/scripts/sft.py, trl/trainer/model_config.py, sft_config.py",
)  # fmt: skip
