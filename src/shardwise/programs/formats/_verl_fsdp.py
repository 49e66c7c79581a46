"""verl on FSDP: the engine that its actor and its supervised trainer have where nothing else is stated."""

from dataclasses import replace

from shardwise.programs.formats._contract import Found, Known
from shardwise.programs.formats._rollout import of_verl
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import read as shared
from shardwise.programs.formats._tuning import adapters_text
from shardwise.spec.policy import Policy

ACTOR, MODEL, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.model.", "actor_rollout_ref.rollout."
BY_TOKENS = "micro-batches are made by tokens (use_dynamic_bsz): {}"


def is_sharded(settings: FileSettings) -> bool:
    """Whether FSDP trains, by the strategy, the configuration's name or its own settings."""
    strategy = settings.text(f"{ACTOR}strategy") or settings.text("model_engine") or settings.text("engine")
    if strategy:
        return strategy.startswith(("fsdp", "dp"))
    named = settings.text(settings.first("config_name") or "config_name")
    return "megatron" not in named and not any(".megatron." in name for name in settings.names())


OTHERS = ("critic.", "actor_rollout_ref.ref.", "actor_rollout_ref.rollout.", "reward_model.", "algorithm.")
"""settings of models and steps beside the actor's update, which is what is priced"""


def updates_of(settings: FileSettings, notes: list[str]) -> int:
    """Sequences of one update: its batch counts prompts, and each has n answers (workers/fsdp_workers.py)."""
    for prefix in OTHERS:
        settings.below(prefix)
    prompts = settings.whole(f"{ACTOR}ppo_mini_batch_size", 256)
    answers = settings.whole(f"{ROLLOUT}n")
    rolled = settings.whole("data.train_batch_size", 1024, least=0)
    notes.append(f"an update of {prompts} prompts x {answers} answers; {rolled} prompts are rolled out")
    return prompts * answers


def length_of(settings: FileSettings) -> int:
    return settings.whole("data.max_prompt_length", 512) + settings.whole("data.max_response_length", 512)


def tuned_by(settings: FileSettings, at: str, beyond: list[str]) -> str:
    rank = settings.whole(f"{at}lora_rank", 0, least=0)
    if settings.has(f"{at}lora_adapter_path") and not rank:
        beyond.append("lora_adapter_path: adapters whose rank is in their own files; priced as full training")
        settings.words(f"{at}lora_adapter_path") if not _open(settings, f"{at}lora_adapter_path") else None
    targets = settings.words(f"{at}target_modules") or ("all-linear",)
    return adapters_text(rank, targets) if rank else ""


def _open(settings: FileSettings, name: str) -> bool:
    return "\0" in str(settings.values.get(name, ""))


def read_sharded(settings: FileSettings, known: Known, *, supervised: bool) -> Found:
    notes, beyond = list[str](), list[str]()
    model, engine = ("model.", "model.fsdp_config.") if supervised else (MODEL, f"{ACTOR}fsdp_config.")
    if supervised and any(name.startswith("engine.") for name in settings.names()):
        engine = "engine."
    gpus = known.gpus
    if not supervised:
        gpus = settings.whole("trainer.nnodes", 1) * settings.whole("trainer.n_gpus_per_node", 8)
        beyond.append("rollouts and the passes of other models: the update of the actor alone is priced")
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    heads = settings.first(*(f"{at}ulysses_sequence_parallel_size" for at in (ACTOR, engine, "")))
    cp = settings.whole(heads) if heads else 1
    dp = max((gpus or 1) // cp, 1)
    size = settings.whole(f"{engine}fsdp_size", -1, least=-1)
    group = size if size > 0 else dp * cp
    zero, shared_by = shared(dp, max(group // cp, 1), cp, settings.flag(f"{engine}reshard_after_forward", True), gpus)
    at = "data." if supervised else f"{ACTOR}ppo_"
    micro_name = settings.first(f"{at}micro_batch_size_per_gpu", f"{at}micro_batch_size")
    micro = settings.whole(micro_name, 1) if micro_name else 4 if supervised else 1
    if micro_name.endswith("micro_batch_size") and not supervised:
        micro = max(micro // dp, 1)  # counted over all GPUs until it was deprecated
    if settings.flag("data.use_dynamic_bsz" if supervised else f"{ACTOR}use_dynamic_bsz"):
        notes.append(BY_TOKENS.format("the stated micro-batch is taken"))
    batch = settings.whole("data.train_batch_size", 256) if supervised else updates_of(settings, notes)
    for name, what in (
        ("param_offload", "parameters"),
        ("offload_params", "parameters"),
        ("optimizer_offload", "the optimizer"),
    ):
        if settings.flag(f"{engine}{name}"):
            beyond.append(f"{name}: {what} wait in the host's memory between their uses")
    policy = Policy(
        dp=dp, cp=cp, zero=zero, shard_group=shared_by, micro_batch=micro, sp=False,
        recompute="full" if settings.flag(f"{model}enable_gradient_checkpointing", True) else "none",
        loss="chunked" if settings.flag(f"{model}use_liger") else "",
    )  # fmt: skip
    called = settings.text(settings.first(f"{model}path", f"{model}partial_pretrain") or f"{model}path")
    seq = settings.whole("data.max_length", 1024) if supervised else length_of(settings)
    found = Found(
        policy=policy,
        gpus=gpus,
        seq=seq,
        global_batch=batch,
        precision="bf16",
        optimizer="adamw",
        called=called,
        stack="torch-fsdp2",
        tune=tuned_by(settings, model, beyond),
        software={"context_parallel": "ulysses"} if cp > 1 else {},
    )
    rollout = None if supervised else of_verl(settings)
    return replace(found, notes=tuple(notes), not_modelled=tuple(beyond), rollout=rollout)
