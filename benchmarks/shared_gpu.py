"""Many plans over NCCL on one GPU that all ranks share, held against one rank and against their prediction.

    python benchmarks/shared_gpu.py --json [--only TEXT] [--device cpu]

nccl: its release; ranks: the most that shared the device; plans: how many ran; losses_equal: how many trained as one
rank on the same device does (losses within 1e-4); bytes_equal: how many sent exactly the predicted messages.
prove_programs and time_mape are null: programs are not proven over NCCL, and times of a shared GPU not predicted.
not_equal: plans that differed, with the gap; steps_ms: how long a step took. Where there is no GPU the line says so
under `skipped`; `--device cpu` runs the same plans over gloo, to test this file.
"""

import argparse
import json
import sys
from typing import Any

import torch

from runtime import CUTS, MODELS, PLANS, evenly, order_of
from shardwise.run.runtime.share_gpu import SharedGpuSeats, multi_process_service, shared_gpu
from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.record import Recording
from shardwise.run.runtime.train.task import TrainingOrder
from shardwise.run.runtime.verify import recorded_step, verified

NAMES = ("nccl", "ranks", "plans", "losses_equal", "bytes_equal", "prove_programs", "time_mape")
TOLERANCE = 1e-4
MOST = 8


def one_plan(order: TrainingOrder, device: str) -> tuple[list[float], float, list[Recording]]:
    """Losses, seconds of the last step, and what every rank sent."""

    def work(_: int) -> tuple[list[float], float, list[Recording]]:
        where = torch.device(device, 0) if device == "cuda" else torch.device("cpu")
        trainer = Trainer(order, where)
        lines = [trainer.one_step() for _ in range(order.settings.steps)]
        del trainer
        recordings, _ = recorded_step(evenly(order), where)
        return [line.loss for line in lines], lines[-1].step_s, recordings

    seats = SharedGpuSeats() if device == "cuda" else None
    return forked(order.task.policy.gpus, work, seats)[0]


def measured(device: str, only: str) -> dict[str, Any]:
    rows = [(model, policy, {}) for model, policy in PLANS] + CUTS
    alone: dict[str, list[float]] = {}
    found: dict[str, Any] = {
        "plans": 0,
        "losses_equal": 0,
        "bytes_equal": 0,
        "not_equal": {},
        "steps_ms": {},
        "ranks": 0,
    }
    for model, policy, cuts in rows:
        order = order_of(MODELS[model], policy, cuts=cuts)
        name = f"{model}: {' '.join(f'{k} {v}' for k, v in _told(policy).items())} {' '.join(cuts.values())}".strip()
        if only not in name or policy.gpus > MOST or (policy.offload != "none" and device == "cuda"):
            continue
        if model not in alone:
            alone[model] = one_plan(order_of(MODELS[model], type(policy)()), device)[0]
        try:
            losses, seconds, recordings = one_plan(order, device)
        except RuntimeError as failure:
            found["not_equal"][name] = str(failure).strip().splitlines()[-1][:200]
            continue
        gap = max(abs(a - b) for a, b in zip(losses, alone[model], strict=True))
        messages = verified(evenly(order).task, recordings, losses[-1]).messages
        wrong = [f"{one.axis} {one.op}" for one in messages if not one.equal]
        found["plans"] += 1
        found["ranks"] = max(found["ranks"], policy.gpus)
        found["losses_equal"] += gap <= TOLERANCE
        found["bytes_equal"] += not wrong
        found["steps_ms"][name] = round(1e3 * seconds, 1)
        if gap > TOLERANCE or wrong:
            found["not_equal"][name] = f"losses {gap:.2g} apart; messages that differ: {', '.join(wrong) or 'none'}"
        print(f"{name}: losses {gap:.1g} apart, {len(wrong)} messages differ", file=sys.stderr, flush=True)
    return found


def _told(policy: Any) -> dict[str, Any]:
    """What a policy has other than one rank's."""
    plain = type(policy)()
    names = ("dp", "tp", "pp", "vpp", "cp", "ep", "etp", "zero", "shard_group", "schedule", "recompute", "offload")
    return {name: getattr(policy, name) for name in names if getattr(policy, name) != getattr(plain, name)}


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--json", action="store_true")
    given.add_argument("--only", default="", help="plans whose name holds it")
    given.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = given.parse_args()
    nothing: dict[str, Any] = dict.fromkeys(NAMES)
    if args.device == "cpu":
        print(json.dumps(nothing | measured("cpu", args.only)))
        return
    try:
        device = shared_gpu(2)
    except ValueError as reason:
        print(json.dumps(nothing | {"skipped": str(reason)}))
        return
    print(device.text(), file=sys.stderr)
    with multi_process_service():
        print(json.dumps(nothing | {"nccl": ".".join(map(str, device.nccl))} | measured("cuda", args.only)))


if __name__ == "__main__":
    main()
