"""slime: reinforcement learning on Megatron-Core; Megatron's options beside those of its rollouts."""

from dataclasses import replace

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._megatron import ONLY, read
from shardwise.programs.formats._megatron_model import read_model
from shardwise.programs.formats._settings import FileSettings

OWN = {"use_distributed_optimizer": True, "moe_token_dispatcher_type": "alltoall"}
"""what it sets itself (slime/backends/megatron_utils/arguments.py)"""


def _claims(settings: FileSettings) -> bool:
    return settings.has("rollout_batch_size") and bool(settings.first("hf_checkpoint", "actor_num_nodes"))


def _read(settings: FileSettings, known: Known) -> Found:
    nodes, each = settings.whole("actor_num_nodes"), settings.whole("actor_num_gpus_per_node", 8)
    gpus = nodes * each
    samples = settings.whole("rollout_batch_size") * settings.whole("n_samples_per_prompt")
    updates = settings.whole("num_steps_per_rollout")
    batch = settings.whole("global_batch_size", max(samples // updates, 1))
    found = read(settings, Known(gpus, known.layers), OWN)
    notes = [note for note in found.notes if "how many GPUs" not in note]
    if known.gpus and known.gpus != gpus:
        notes.append(f"{gpus} GPUs train the actor; the others generate")
    notes.append(f"{samples} sequences of a rollout ({settings.text('rollout_batch_size')} prompts x "
                 f"{settings.text('n_samples_per_prompt', '1')}), in updates of {batch}")  # fmt: skip
    beyond = [*found.not_modelled]
    if settings.text("loss_type") != "sft_loss":
        beyond.append("rollouts and the passes of other models: the update of the actor alone is priced")
    if settings.flag("use_dynamic_batch_size"):
        notes.append(
            f"micro-batches of at most {settings.text('max_tokens_per_gpu', 'unknown')} tokens on a rank: "
            "one sequence is taken"
        )
    seq = settings.whole("rollout_max_context_len", 0) or (
        settings.whole("rollout_max_prompt_len", 0) + settings.whole("rollout_max_response_len", 0)
    )
    if seq:
        notes.append(f"sequences of at most {seq} tokens, of what the rollout may produce")
    return replace(
        found,
        gpus=gpus,
        global_batch=batch,
        seq=found.seq or seq or None,
        precision=found.precision or "bf16",
        model=read_model(settings),
        called=settings.text(settings.first("hf_checkpoint", "load") or "hf_checkpoint"),
        notes=tuple(notes),
        not_modelled=tuple(beyond),
        optimizer=found.optimizer or "adamw",
    )


FORMAT = Format(
    name="slime", title="slime", stack="megatron-core", claims=_claims, read=_read, only=ONLY,
    source="THUDM/slime 624b824a8: slime/utils/arguments.py, slime/backends/megatron_utils/arguments.py",
    states=("context_parallel", "dispatcher"),
)  # fmt: skip
