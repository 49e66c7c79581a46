"""Runs many plans on gloo ranks of this machine and holds each against one process and against its prediction.

    python benchmarks/runtime.py --json

plans: how many ran; losses_equal: how many trained as one process does (losses within 1e-5 over the steps);
collectives_equal: how many sent exactly the predicted messages; memory_error_max: largest error by kind (experts
aside: their router decides); fake_world_1024_equal: plans of 1,024 ranks whose messages are the predicted ones;
restart_bitwise: a run that resumes from a checkpoint repeats the unbroken one's losses bit for bit.
"""

import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from msgspec.structs import replace

from shardwise.arch import model_from_shape
from shardwise.runtime.train.checkpoint import load, newest, save
from shardwise.runtime.train.fork import forked
from shardwise.runtime.train.loop import Trainer
from shardwise.runtime.train.task import Order, Settings, Task
from shardwise.runtime.verify import fake_verify, recorded_step, verified
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.stack import stack_of

STEPS, SEQ, BATCH = 5, 32, 8
CPU = torch.device("cpu")


def shaped(name: str, **more: object) -> Model:
    given = {"layers": 4, "hidden": 64, "heads": 8, "kv_heads": 4, "ffn": 192, "glu": True, "vocab": 128, "tied": False}
    return model_from_shape(name, **{**given, **more})  # type: ignore[arg-type]


MODELS = {
    "llama": shaped("llama"),
    "gpt": replace(shaped("gpt", kv_heads=8, glu=False, tied=True, positions=SEQ), dropout=False),
    "moe": shaped("moe", experts=8, top_k=2, expert_ffn=64, shared_ffn=64),
}
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
]
LARGE = [
    ("llama", Policy(dp=128, tp=4, pp=2, zero=1)),
    ("gpt", Policy(dp=256, tp=4, zero=0)),
    ("llama", Policy(dp=64, cp=4, tp=4, zero=2)),
    ("gpt", Policy(dp=32, tp=4, pp=4, cp=2, zero=1)),
]


def order_of(name: str, policy: Policy, batch: int = BATCH, steps: int = STEPS) -> Order:
    policy = replace(policy, sp=policy.sp and policy.tp > 1)
    job = Job(seq=SEQ, global_batch=batch, precision=PRECISIONS["fp32"])
    return Order(
        task=Task(model=MODELS[name], job=job, policy=policy, stack=stack_of("shardwise")),
        settings=Settings(steps=steps),
    )


def losses(order: Order) -> list[float]:
    trainer = Trainer(order, CPU)
    return [trainer.one_step().loss for _ in range(order.settings.steps)]


def restart_is_bitwise() -> bool:
    order = order_of("gpt", Policy(dp=2, tp=2, zero=1))
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
    alone = {name: losses(order_of(name, Policy(zero=0))) for name in MODELS}
    rows = []
    for name, policy in PLANS:
        order = order_of(name, policy)
        found, (recordings, loss) = forked(policy.gpus, lambda _, o=order: (losses(o), recorded_step(o, CPU)))[0]
        result = verified(order.task, recordings, loss)
        gap = max(abs(a - b) for a, b in zip(found, alone[name], strict=True))
        shown = [row for row in result.memory if name != "moe" or row.kind != "activations"]
        rows.append((gap <= 1e-5, result.messages_equal, max(abs(row.error) for row in shown)))
        print(f"{name:6} {policy.gpus} ranks: loss gap {gap:.1e}, messages equal {result.messages_equal}, "
              f"memory error {rows[-1][2]:.2%}", file=sys.stderr)  # fmt: skip
    large = [fake_verify(order_of(n, p, 4 * p.dp, 1))[0].messages_equal for n, p in LARGE]
    answer = {
        "plans": len(rows), "losses_equal": sum(r[0] for r in rows), "collectives_equal": sum(r[1] for r in rows),
        "memory_error_max": max(r[2] for r in rows), "fake_world_1024_plans": len(large),
        "fake_world_1024_equal": sum(large), "restart_bitwise": restart_is_bitwise(),
        "seconds": round(perf_counter() - begin, 1),
    }  # fmt: skip
    print(json.dumps(answer))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
