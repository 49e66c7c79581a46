"""What one rank of the slowest stage does by itself: its kernels and its memory, without any message or waiting."""

from dataclasses import dataclass

from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import Case

PARTS = ("forward", "backward", "recompute", "optimizer")


@dataclass(frozen=True)
class OwnWork:
    rank: int
    """the first of the slowest stage"""
    parts: dict[str, float]
    """seconds of kernels in a step, by cause"""
    host_s: float
    """when the GPU waits for the host: between steps, and where launching kernels takes longer than running them"""
    peak_bytes: float
    memory: dict[str, float]
    """by kind"""

    @property
    def kernels_s(self) -> float:
        return sum(self.parts.values())


def own_work(case: Case, policy: Policy) -> OwnWork:
    found = estimate(case, Policies.of([policy]), every_stage=True)
    stage = int(found.times.slowest[0])
    seconds = {name: float(value[0]) for name, value in found.times.parts.items() if value[0]}
    return OwnWork(
        rank=stage * (policy.gpus // policy.pp),
        parts={name: seconds[name] for name in PARTS if name in seconds},
        host_s=seconds.get("host", 0.0) + seconds.get("other", 0.0),
        peak_bytes=float(found.memory.total[0, stage]),
        memory={kind: float(grid[0, stage]) for kind, grid in found.memory.kinds.items() if grid[0, stage]},
    )
