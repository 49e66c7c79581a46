"""Megatron-LM: arguments of pretrain_gpt.py in a shell script."""

from dataclasses import replace
from functools import partial
from typing import Any

from shardwise.programs.formats._contract import Found, Known, Launch, Written
from shardwise.programs.formats._megatron import MegatronProgram, arguments, gaps, megatron_format, read
from shardwise.programs.formats._megatron_model import model_settings, not_stated, read_model
from shardwise.programs.formats._scripts import flag_words, network_environment, script
from shardwise.programs.formats._settings import FileSettings
from shardwise.spec.gpu import Gpu

PROGRAM = MegatronProgram()
BLACKWELL = ("b200", "gb200", "b300", "gb300")


def environment(launch: Launch) -> dict[str, str]:
    """What Megatron asserts, and what its fabric asks of NCCL."""
    policy, found = launch.policy, dict[str, str]()
    if policy.zero < 2 and (policy.tp > 1 or policy.cp > 1) and not is_blackwell(launch.case.cluster.gpu):
        # one queue of kernels, so that a collective starts before the product it runs beside; FSDP needs the opposite
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    return found | network_environment(launch.case.cluster, launch.cards)


def is_blackwell(gpu: Gpu) -> bool:
    return gpu.name in BLACKWELL


def settings_of(launch: Launch) -> dict[str, dict[str, Any]]:
    """All arguments, by what they are about."""
    parallel, batch = arguments(launch, PROGRAM)
    if not parallel.pop("overlap_p2p_comm", True):
        parallel["no_overlap_p2p_communication"] = True
    model = launch.case.model
    batch["max_position_embeddings"] = max(launch.case.job.seq, model.positions)
    shape = {} if not_stated(model) else model_settings(model)
    return {"MODEL": shape, "PARALLEL": parallel, "BATCH": batch}


def _write(launch: Launch) -> Written:
    arrays = {f"{name}_ARGS": flag_words(values) for name, values in settings_of(launch).items()}
    arrays["DATA_ARGS"] = ["--mock-data", "--tokenizer-type", "NullTokenizer", "--train-iters", "50", "--lr", "3e-4",
                           "--log-interval", "1"]  # fmt: skip
    missing = not_stated(launch.case.model)
    notes: tuple[str, ...] = (
        "data, tokenizer and learning rate in DATA_ARGS stand in for yours; rotary base and norm epsilon of your model "
        "are to be added",
    )
    if missing:
        notes += (f"the model's own arguments are not written: {missing}; add them to MODEL_ARGS",)
    found = environment(launch)
    text = script(launch, '"${MEGATRON_PATH:-.}/pretrain_gpt.py"', arrays, found, notes)
    return Written({"train.sh": text}, found, notes)


OTHER_MODELS = {
    "encoder_seq_length": "an encoder and a decoder", "decoder_seq_length": "an encoder and a decoder",
    "mask_prob": "masked words", "bert_load": "masked words", "img_h": "images", "retro_workdir": "retrieval",
    "ict_head_size": "retrieval",
}  # fmt: skip
"""arguments of Megatron's other models"""
NOT_TRAINING = ("genfile", "sample_input_file", "prompt_file", "task", "num_samples", "out_seq_length")


def _claims(settings: FileSettings) -> bool:
    others = ("tuner_type", "train_type", "rollout_batch_size", "model_name_or_path", "_target_", *NOT_TRAINING)
    if settings.program and not settings.first("seq_length", "encoder_seq_length"):
        return False  # a program with Megatron's words for its split alone: BioNeMo's own trainers
    stated = settings.first("tensor_model_parallel_size", "pipeline_model_parallel_size")
    flags = settings.has("num_layers") and settings.has("micro_batch_size") and settings.has("hidden_size")
    return bool(stated or flags) and not settings.first(*others)


def _read(settings: FileSettings, known: Known) -> Found:
    if other := settings.first(*OTHER_MODELS):
        raise ValueError(
            f"{settings.where}: {other} is of a model of {OTHER_MODELS[other]}, which is not read; name the launch of "
            "a model that predicts the next token (pretrain_gpt.py)"
        )
    found = read(settings, known, {"moe_token_dispatcher_type": "allgather"})
    if settings.flag("use_flash_attn"):
        found = replace(found, notes=(*found.notes, "use_flash_attn: flash attention, as assumed anyway"))
    return replace(found, model=read_model(settings))


FORMAT = megatron_format(
    name="megatron",
    smoke="--train-iters 3",
    title="Megatron-LM",
    stack="megatron-core",
    source="NVIDIA/Megatron-LM d98e8a64dd: megatron/training/arguments.py, megatron/core/recompute.py",
    starts=r"(?:.*/)?pretrain_\w+\.py|(?:.*/)?finetune_(?:gpt|mixtral)\w*\.py",
    gaps=partial(gaps, PROGRAM),
    write=_write,
    claims=_claims,
    read=_read,
    excludes={"num_virtual_stages_per_pipeline_rank": ("num_layers_per_virtual_pipeline_stage",)},
)
