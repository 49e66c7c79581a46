"""OpenRLHF: options of `openrlhf.cli.train_*`, in the dotted names of today and the flat ones of before."""

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._rollout import of_openrlhf
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._trainer import FAMILY, OF_DEEPSPEED
from shardwise.programs.formats._tuning import adapters_text
from shardwise.spec.policy import Policy


def _claims(_settings: FileSettings) -> bool:
    return False  # it is told by what is started


def _read(settings: FileSettings, known: Known) -> Found:
    def first(*names: str) -> str:
        return settings.first(*names) or names[0]

    notes, beyond = list[str](), list[str]()
    plays = "ppo" in settings.program
    gpus = known.gpus
    if plays:
        nodes = settings.whole(first("actor.num_nodes", "actor_num_nodes"))
        stated = nodes * settings.whole(first("actor.num_gpus_per_node", "actor_num_gpus_per_node"), 8)
        if known.gpus and known.gpus != stated:
            notes.append(f"{stated} GPUs train the actor; the others generate and score")
        gpus = stated
        for prefix in ("ref.", "critic.", "reward.", "vllm.", "algo.", "rollout."):
            settings.below(prefix)
        beyond.append("rollouts and the passes of other models: the update of the actor alone is priced")
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    tp = settings.whole(first("ds.tensor_parallel_size", "ds_tensor_parallel_size"))
    cp = settings.whole(first("ds.ring_attn_size", "ring_attn_size"))
    dp = max((gpus or 1) // (tp * cp), 1)
    zero = settings.whole(first("ds.zero_stage", "zero_stage"), 2, least=0)
    micro = settings.whole(first("train.micro_batch_size", "micro_train_batch_size"), 1 if plays else 8)
    batch = settings.whole(first("train.batch_size", "train_batch_size"), 128)
    if plays:
        prompts = settings.whole(first("rollout.batch_size", "rollout_batch_size"), 1024)
        each = settings.whole(first("rollout.n_samples_per_prompt", "n_samples_per_prompt"))
        notes.append(f"{prompts} prompts x {each} samples each, in updates of {batch} sequences")
    if settings.flag(first("train.dynamic_batch_enable", "use_dynamic_batch")):
        notes.append("micro-batches are made by tokens: the stated micro-batch is taken")
    recompute = first(
        "actor.gradient_checkpointing_enable", "model.gradient_checkpointing_enable", "gradient_checkpointing"
    )
    offload = settings.flag(first("ds.adam_offload", "adam_offload"))
    policy = Policy(
        dp=dp,
        tp=tp,
        cp=cp,
        zero=zero,
        micro_batch=micro,
        sp=False,
        recompute="full" if settings.flag(recompute) else "none",
        offload="optimizer" if offload else "none",
        overlap_grad=settings.flag(first("ds.overlap_comm", "overlap_comm")),
        attention="plain"
        if settings.text(first("ds.attn_implementation", "attn_implementation")) == "eager"
        else "flash",
    )
    rank = settings.whole(first("ds.lora.rank", "lora_rank"), 0, least=0)
    targets = settings.words(first("ds.lora.target_modules", "target_modules")) or ("all",)
    four = settings.flag(first("ds.load_in_4bit", "load_in_4bit"))
    if settings.flag(first("actor.freeze_visual_encoder", "freeze_visual_encoder")):
        notes.append("the vision encoder is frozen")
    for prefix in ("ckpt.", "eval.", "logger.", "actor.adam."):
        settings.below(prefix)
    dtype = settings.text(first("ds.param_dtype", "param_dtype"), "bf16")
    settings.flag("bf16")
    return Found(
        policy=policy, gpus=gpus, seq=_seq(settings), global_batch=batch, precision=dtype, optimizer="adamw",
        called=settings.text(first("actor.model_name_or_path", "model.model_name_or_path", "pretrain")),
        tune=adapters_text(rank, targets, base="nf4" if four else "") if rank else "", notes=tuple(notes),
        not_modelled=tuple(beyond), software={"context_parallel": "ring"} if cp > 1 else {},
        rollout=of_openrlhf(settings) if plays else None,
    )  # fmt: skip


def _seq(settings: FileSettings) -> int:
    if settings.has("prompt_max_len") or settings.has("generate_max_len"):
        return settings.whole("prompt_max_len", 1024) + settings.whole("generate_max_len", 1024)
    return settings.whole(settings.first("data.max_len", "max_len") or "data.max_len", 2048)


FORMAT = Format(
    name="openrlhf", title="OpenRLHF", stack=OF_DEEPSPEED, claims=_claims, read=_read, only=FAMILY, adapters=True,
    source="OpenRLHF/OpenRLHF 3c3be623: openrlhf/cli/train_ppo_ray.py, train_sft.py", states=("context_parallel",),
    starts=r"openrlhf\.cli\.train_\w+|(?:.*/)?openrlhf/cli/train_\w+\.py",
)  # fmt: skip
