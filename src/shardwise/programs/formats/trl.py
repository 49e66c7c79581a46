"""Hugging Face TRL: supervised fine-tuning by its own script, launched by accelerate with FSDP2; adapters by peft."""

from dataclasses import replace

from shardwise.programs.formats import accelerate
from shardwise.programs.formats._adapters import peft_targets
from shardwise.programs.formats._contract import Found, Known, Launch, Written
from shardwise.programs.formats._rollout import of_trl
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._smoke import DATA
from shardwise.programs.formats._trainer import OF_TRAINER, TrainerNames, is_of_trainer, read_trainer
from shardwise.programs.formats._tuning import peft_text

STACK = "hugging-face@trl"
USUAL_LENGTH = 1024
"""of its sequences, where nobody says"""


def _write(launch: Launch) -> Written:
    job, policy = launch.case.job, launch.policy
    words = ["--model_name_or_path", '"${MODEL_PATH:?}"', "--dataset_name", '"${DATASET:?}"', "--output_dir",
             '"${OUTPUT:-output}"', "--max_length", str(job.seq)]  # fmt: skip
    # packed documents need attention that keeps them apart, which torch's context parallelism does not have: its own
    # attention takes padded sequences, whose length 2 cp divides
    words += ["--packing", "True", "--attn_implementation", "flash_attention_2"] if policy.cp == 1 else [
        "--attn_implementation", "sdpa", "--pad_to_multiple_of", str(2 * policy.cp)]  # fmt: skip
    words += ["--bf16", "True"] if job.precision.compute == "bf16" else []
    # each switch with its value: its parser refuses those without one that its configuration leaves open. Checkpointing
    # is on by default; under FSDP the launcher's file has the switch
    words += ["--gradient_checkpointing", str(policy.recompute == "full" and policy.zero == 0)]
    if job.tuning is not None and (adapters := job.tuning.adapters) is not None:
        words += ["--use_peft", "True", "--lora_r", str(adapters.rank), "--lora_alpha", str(2 * adapters.rank)]
        words += ["--lora_dropout", "0", "--lora_target_modules", *peft_targets(launch.case.model, adapters)]
        words += ["--use_dora", "True"] if adapters.magnitudes else []
        if job.tuning.base:
            # FSDP shares out what has one dtype: the 4-bit weights are stored as numbers of the others' width
            words += ["--load_in_4bit", "True", "--bnb_4bit_quant_type", "nf4", "--bnb_4bit_quant_storage", "bfloat16"]
            words += ["--use_bnb_nested_quant", "True"] if job.tuning.base == "nf4" else []
        words += ["--dtype", "bfloat16"]
    how = "packed (which needs flash-attn)" if policy.cp == 1 else "padded to a multiple, not packed: give full ones"
    notes = (f"MODEL_PATH (a folder or hub id), DATASET and OUTPUT are yours; sequences of --max_length are {how}",)
    return accelerate.started(launch, "-m trl.scripts.sft", words, notes, DATA)


TRAINS = r"trl (?:sft|dpo|grpo|kto|orpo|reward|rloo|gkd)|trl\.scripts\.\w+|(?:.*/)?trl/scripts/\w+\.py"
OWN = ("dataset_mixer", "dataset_mixture", "num_generations", "max_prompt_length", "use_peft", "assistant_only_loss",
       "dataset_kwargs", "reward_funcs", "max_completion_length")  # fmt: skip
"""arguments that a script of the Trainer alone does not have"""
NAMES = TrainerNames(
    seq=("max_length", "max_seq_length", "max_seq_len"),
    usual_seq=USUAL_LENGTH,
    recomputes=True,
    half="bf16",
    launched_apart=True,
)


def _claims(settings: FileSettings) -> bool:
    launched = settings.has("accelerate.distributed_type") and any(settings.has(name) for name in accelerate.OF_TRL)
    mixed = any(name.startswith(("dataset_mixture.", "dataset_mixer.")) for name in settings.names())
    packed = settings.has("max_length") and settings.has("packing")
    return launched or (is_of_trainer(settings) and (mixed or packed or any(map(settings.has, OWN))))


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond, tune = list[str](), list[str](), ""
    if settings.flag("use_peft"):
        tune = peft_text(settings, notes, beyond, nested=False)
    kind = next((name for name in ("grpo", "dpo", "kto", "orpo", "rloo", "gkd") if name in settings.program), "")
    kind = kind or ("grpo" if settings.has("num_generations") else "dpo" if settings.has("max_prompt_length") else "")
    if kind:
        beyond.append(
            f"{kind}: a step runs more than one forward of an example, or rollouts; one of each sequence is priced"
        )
    if settings.has("num_generations") and settings.has("num_generations"):
        notes.append(f"per-device batches count answers, {settings.text('num_generations')} of a prompt")
    # packed or not, its sequences reach this length; the model's half precision is also its dtype's
    for name in ("dtype", "torch_dtype", "bnb_4bit_quant_storage", "pad_to_multiple_of"):
        settings.text(name)
    found = read_trainer(
        settings, known, NAMES, notes=notes, not_modelled=beyond, tune=tune, called=settings.text("model_name_or_path")
    )
    found = replace(found, stack=STACK) if found.stack == OF_TRAINER else found
    return replace(found, rollout=of_trl(settings, found.gpus)) if kind in ("grpo", "rloo") else found


SMOKE = (
    "python smoke.py && MODEL_PATH=smoke/model DATASET=smoke/data bash train.sh --max_steps 2 "
    f"--attn_implementation sdpa ({accelerate.ON_CPU})"
)
FORMAT = replace(
    accelerate.FORMAT, name="trl", title="TRL", stack=STACK, gaps=accelerate.gaps_of_program, write=_write,
    claims=_claims, read=_read, own_script=False, parts=True, starts=TRAINS, smoke=SMOKE,
    source="huggingface/trl 1.16: trl/scripts/sft.py, trl/trainer/model_config.py, sft_config.py",
)  # fmt: skip
