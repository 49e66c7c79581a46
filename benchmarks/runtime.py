"""Runs many plans on gloo ranks of this machine and holds each against one process and against its prediction.

    python benchmarks/runtime.py --json

plans: how many ran; losses_equal: how many trained as one process does (losses within 1e-5 over the steps);
collectives_equal: how many sent exactly the predicted messages; memory_error_max: largest error by kind, with even
routing of experts; fake_world_1024_equal: plans of 1,024 ranks whose messages are the predicted ones and whose memory
is within 2 %; fake_world_16384_equal: the same for a 70B model on 16,384 ranks; restart_bitwise: a run that resumes
from a checkpoint repeats the unbroken one's losses bit for bit.
"""

import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from msgspec.structs import replace

from shardwise.run.runtime.checkpoints.folder import newest
from shardwise.run.runtime.checkpoints.save import save
from shardwise.run.runtime.checkpoints.state import load
from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings
from shardwise.run.runtime.verify import fake_verify, recorded_step, verified
from shardwise.spec.arch import model_from_shape, model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.model import Attention, Model
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of

STEPS, SEQ, BATCH = 5, 32, 8
CPU = torch.device("cpu")
ONE = TrainingSettings(steps=1)


def shaped(name: str, **more: object) -> Model:
    given = {"layers": 4, "hidden": 64, "heads": 8, "kv_heads": 4, "ffn": 192, "glu": True, "vocab": 128, "tied": False}
    return model_from_shape(name, **{**given, **more})  # type: ignore[arg-type]


MODELS = {
    "llama": shaped("llama"),
    "gpt": replace(shaped("gpt", kv_heads=8, glu=False, tied=True, positions=SEQ), dropout=False),
    "moe": shaped("moe", experts=8, top_k=2, expert_ffn=64, shared_ffn=64),
    "mqa": shaped("mqa", kv_heads=1),
    "odd": shaped("odd", hidden=48, ffn=90, vocab=130),
}
LATENT = Attention(heads=8, kv_heads=8, head_dim=12, v_head_dim=8, q_lora=32, kv_lora=24, rope_dim=4)
MODELS["mla"] = replace(
    MODELS["llama"], name="mla", kinds=tuple(replace(kind, attention=LATENT) for kind in MODELS["llama"].kinds)
)
PLANS = [
    ("llama", Policy(dp=2, zero=0)),
    ("llama", Policy(dp=2, zero=1)),
    ("gpt", Policy(dp=2, zero=2)),
    ("llama", Policy(dp=2, zero=3)),
    ("gpt", Policy(tp=2, sp=False)),
    ("llama", Policy(tp=2)),
    ("gpt", Policy(pp=2)),
    ("llama", Policy(cp=2)),
    ("moe", Policy(dp=2, ep=2)),
    ("llama", Policy(dp=4, zero=3, shard_group=2)),
    ("gpt", Policy(dp=2, tp=2, zero=1)),
    ("gpt", Policy(dp=2, tp=2, zero=3)),
    ("llama", Policy(pp=2, dp=2, zero=3)),
    ("llama", Policy(pp=2, vpp=2, schedule="interleaved", dp=2)),
    ("llama", Policy(cp=2, tp=2, recompute="full")),
    ("moe", Policy(dp=2, tp=2, ep=4)),
    ("llama", Policy(pp=2, dp=2, tp=2, zero=3)),
    ("gpt", Policy(pp=2, cp=2, tp=2)),
    ("moe", Policy(pp=2, tp=2, dp=2, ep=2, zero=1)),
    # schedules
    ("llama", Policy(pp=2, schedule="gpipe")),
    ("llama", Policy(pp=2, schedule="overlapped")),
    ("llama", Policy(pp=2, vpp=2, schedule="looped_bfs")),
    ("llama", Policy(pp=2, schedule="zero_bubble_h1", recompute="full")),
    ("llama", Policy(pp=2, vpp=2, schedule="interleaved_zero_bubble")),
    ("gpt", Policy(pp=2, vpp=2, schedule="zb_v")),
    ("gpt", Policy(pp=2, vpp=2, schedule="zb_v", dp=2, zero=3)),
    ("llama", Policy(pp=2, vpp=2, schedule="dualpipe_v")),
    ("gpt", Policy(pp=2, schedule="dualpipe", dp=2, zero=1)),
    ("llama", Policy(pp=4, schedule="zero_bubble_h1")),
    # experts, key/value heads, shards of unequal length, latent attention, moments on the host
    ("moe", Policy(dp=2, tp=2, ep=2, etp=2)),
    ("moe", Policy(dp=4, ep=2, zero=3, shard_group=2)),
    ("gpt", Policy(pp=2, dp=2, zero=2)),
    ("mqa", Policy(tp=2, dp=2, zero=3)),
    ("odd", Policy(dp=2, tp=2, zero=3)),
    ("mla", Policy(tp=2, cp=2)),
    ("gpt", Policy(dp=2, zero=1, offload="optimizer")),
]
CUTS = [
    ("llama", Policy(cp=2, tp=2), {"context_parallel": "ulysses"}),
    ("gpt", Policy(cp=2), {"context_parallel": "gather"}),
    ("llama", Policy(tp=2, dp=2, zero=3), {"embedding": "broadcast"}),
    ("llama", Policy(tp=2), {"attention_split": "gather-qk"}),
]
"""other ways to cut embedding and attention"""
LARGE = [
    ("llama", Policy(dp=128, tp=4, pp=2, zero=1)),
    ("gpt", Policy(dp=256, tp=4, zero=0)),
    ("llama", Policy(dp=64, cp=4, tp=4, zero=2)),
    ("gpt", Policy(dp=32, tp=4, pp=4, cp=2, zero=1)),
    ("moe", Policy(dp=64, tp=4, pp=2, cp=2, ep=8, zero=1)),
    ("moe", Policy(dp=128, tp=4, pp=2, ep=2, etp=4, zero=2)),
    ("odd", Policy(dp=512, tp=2, zero=3, shard_group=16)),
]
LARGEST = Policy(dp=256, tp=8, pp=8, zero=1)


def order_of(
    model: Model, policy: Policy, batch: int = BATCH, steps: int = STEPS, cuts: dict[str, str] | None = None
) -> TrainingOrder:
    policy = replace(policy, sp=policy.sp and policy.tp > 1)
    job = Job(seq=SEQ, global_batch=batch, precision=PRECISIONS["fp32"])
    stack = stack_of("shardwise").changed(**(cuts or {}))
    return TrainingOrder(
        task=Task(model=model, job=job, policy=policy, stack=stack), settings=TrainingSettings(steps=steps)
    )


def evenly(order: TrainingOrder) -> TrainingOrder:
    """What is predicted: a router that learns gives some experts more."""
    return replace(order, task=replace(order.task, even_routing=True))


def losses(order: TrainingOrder) -> list[float]:
    trainer = Trainer(order, CPU)
    return [trainer.one_step().loss for _ in range(order.settings.steps)]


def restart_is_bitwise() -> bool:
    order = order_of(MODELS["gpt"], Policy(dp=2, tp=2, zero=1))
    with tempfile.TemporaryDirectory() as name:

        def work(_: int) -> tuple[list[float], list[float]]:
            whole = losses(order)
            first = Trainer(order, CPU)
            kept = [first.one_step().loss for _ in range(2)]
            save(first.engine, Path(name), 2)
            second = Trainer(order, CPU)
            second.step = load(second.engine, newest(Path(name)) or Path(name))
            return whole, kept + [second.one_step().loss for _ in range(STEPS - 2)]

        whole, resumed = forked(4, work)[0]
    return whole == resumed


def main() -> None:
    begin = perf_counter()
    alone = {name: losses(order_of(model, Policy(zero=0))) for name, model in MODELS.items()}
    rows = []
    for name, policy, cuts in [*((name, policy, None) for name, policy in PLANS), *CUTS]:
        order = order_of(MODELS[name], policy, cuts=cuts)
        found, (recordings, loss) = forked(
            policy.gpus, lambda _, o=order: (losses(o), recorded_step(evenly(replace(o, settings=ONE)), CPU))
        )[0]
        result = verified(order.task, recordings, loss)
        gap = max(abs(a - b) for a, b in zip(found, alone[name], strict=True))
        rows.append((gap <= 1e-5, result.messages_equal, result.memory_error))
        print(f"{name:6} {policy.gpus} ranks: loss gap {gap:.1e}, messages equal {result.messages_equal}, "
              f"memory error {rows[-1][2]:.2%}, {policy.schedule} {cuts or ''}", file=sys.stderr)  # fmt: skip
    large = [fake_verify(order_of(MODELS[n], p, 2 * p.dp, 1))[0].holds for n, p in LARGE]
    largest = fake_verify(order_of(model_of("llama-3-70b"), LARGEST, LARGEST.dp, 1), [0, LARGEST.gpus - 1])[0]
    answer = {
        "plans": len(rows), "losses_equal": sum(r[0] for r in rows), "collectives_equal": sum(r[1] for r in rows),
        "memory_error_max": max(r[2] for r in rows), "fake_world_1024_plans": len(large),
        "fake_world_1024_equal": sum(large), "fake_world_16384_equal": largest.holds,
        "restart_bitwise": restart_is_bitwise(),
        "seconds": round(perf_counter() - begin, 1),
    }  # fmt: skip
    print(json.dumps(answer))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
