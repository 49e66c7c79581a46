"""prime-rl: TOML of its trainers, supervised (`sft`) and by reinforcement (`rl`)."""

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._rollout import of_prime_rl
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import read as shared
from shardwise.programs.formats._trainer import FAMILY
from shardwise.programs.formats._tuning import adapters_text
from shardwise.spec.policy import Policy


def _claims(settings: FileSettings) -> bool:
    names = settings.names()
    plays = any(n.startswith("orchestrator.") for n in names) and any(
        n.startswith(("trainer.", "inference", "model.")) for n in names
    )
    tunes = (
        any(n.startswith("data.") for n in names)
        and settings.has("model.name")
        and any(n.startswith("optim.") for n in names)
    )
    return plays or tunes


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond = list[str](), list[str]()
    plays = any(name.startswith("orchestrator.") for name in settings.names())
    at = "trainer.model." if plays else "model."
    cp, ep_text = settings.whole(f"{at}cp"), settings.text(f"{at}ep", "1")
    gpus = known.gpus or _gpus(settings)
    if gpus is None:
        notes.append("the file does not say how many GPUs train: one replica is assumed")
    dp, replicas = max((gpus or 1) // cp, 1), settings.whole(f"{at}dp_replicate")
    zero, group = shared(dp, max(dp // replicas, 1), cp, settings.flag(f"{at}reshard_after_forward", True), gpus)
    if not ep_text.isdigit():
        notes.append(f"ep {ep_text}: chosen by the program where there are experts; 1 is taken")
    has = [name for name in settings.names() if name.startswith(f"{at}ac.") or name == f"{at}ac"]
    for name in has:
        settings.words(name)
    chosen = settings.text(f"{at}ac.mode") == "selective"
    if chosen:
        parts = ", ".join(settings.words(f"{at}ac.targets")) or "the program's own"
        beyond.append(f"{at}ac selective: recompute of {parts}, priced as none")
    micro = settings.whole("data.micro_batch_size")
    batch = settings.whole("orchestrator.batch_size" if plays else "data.batch_size", 128)
    if plays:
        for prefix in ("orchestrator.", "inference.", "weight_broadcast."):
            settings.below(prefix)
        beyond.append("rollouts and the passes of other models: the update of the policy alone is priced")
        group_size = settings.whole("orchestrator.group_size", settings.whole("orchestrator.rollouts_per_example", 1))
        notes.append(f"{batch} rollouts a step, {group_size} of a prompt, packed into sequences")
    if settings.flag(f"{at}optim_cpu_offload", True):
        beyond.append("optim_cpu_offload, on unless it is turned off: the optimizer's states wait in the host's memory")
    rank = settings.whole(f"{at}lora.rank", 16) if any(n.startswith(f"{at}lora") for n in settings.names()) else 0
    targets = settings.words(f"{at}lora.target_modules") or (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    policy = Policy(
        dp=dp,
        cp=cp,
        ep=int(ep_text) if ep_text.isdigit() else 1,
        zero=zero,
        shard_group=group,
        micro_batch=micro,
        sp=False,
        recompute="none" if chosen or settings.text(f"{at}ac") in ("False", "false", "None") else "full",
    )
    optimizer = settings.text("trainer.optim.type" if plays else "optim.type", "adamw")
    return Found(
        policy=policy,
        gpus=gpus,
        seq=settings.whole(
            settings.first("trainer.model.seq_len", "model.seq_len", "data.seq_len", "seq_len") or "seq_len", 2048
        ),
        global_batch=batch,
        precision="bf16",
        optimizer={"adamw": "adamw", "muon": "muon", "sgd": "sgd"}.get(optimizer, ""),
        called=settings.text(settings.first("model.name", "trainer.model.name") or "model.name"),
        notes=tuple(notes),
        not_modelled=tuple(beyond),
        tune=adapters_text(rank, targets) if rank else "",
        software={"context_parallel": "ulysses" if settings.text(f"{at}cp_style") == "ulysses" else "ring"}
        if cp > 1
        else {},
        rollout=of_prime_rl(settings, gpus) if plays else None,
    )


def _gpus(settings: FileSettings) -> int | None:
    each = settings.whole("deployment.gpus_per_node", 8)
    if settings.has("deployment.num_train_nodes"):
        return settings.whole("deployment.num_train_nodes") * each
    if settings.has("deployment.num_train_gpus"):
        return settings.whole("deployment.num_train_gpus")
    return settings.whole_or_none("deployment.num_gpus")


FORMAT = Format(
    name="prime_rl",
    title="prime-rl",
    stack="torch-fsdp2",
    claims=_claims,
    read=_read,
    adapters=True,
    only={name: values for name, values in FAMILY.items() if name != "ep"},
    states=("context_parallel",),
    source="PrimeIntellect-ai/prime-rl 559b44772: packages/prime-rl-configs: trainer.py, sft.py, rl.py",
    starts=r"(?:uv )?(?:sft|rl|trainer)(?: .*)?",
)
