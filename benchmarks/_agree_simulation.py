"""How far the closed form is from the simulation on random cases: the step, and what both call the bubble."""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from _agree_cases import Sample
from shardwise.step.simulate import simulate
from shardwise.work.case import case_of

WORST = 10


class SimulationGaps(Struct, frozen=True, kw_only=True):
    cases: int
    p95: float
    """of |simulated / closed - 1|"""
    largest: float
    bubble_p95: float
    """of the difference between the two bubbles, as a share of the step"""
    by_schedule: dict[str, tuple[int, float, float]]
    """cases, 95th percentile, largest"""
    worst: tuple[str, ...]


def simulation_gaps(samples: Iterable[Sample]) -> SimulationGaps:
    rows = [(sample, *_gap(sample)) for sample in samples]
    steps, bubbles = (np.abs([row[column] for row in rows]) for column in (1, 2))
    names = [row[0].policy.schedule for row in rows]
    by_schedule = {}
    for name in sorted(set(names)):
        own = steps[[other == name for other in names]]
        by_schedule[name] = len(own), float(np.quantile(own, 0.95)), float(own.max())
    worst = sorted(rows, key=lambda row: -abs(row[1]))[:WORST]
    return SimulationGaps(
        cases=len(rows), p95=float(np.quantile(steps, 0.95)), largest=float(steps.max()),
        bubble_p95=float(np.quantile(bubbles, 0.95)), by_schedule=by_schedule,
        worst=tuple(f"{step:+.1%} {_named(sample)}" for sample, step, _ in worst),
    )  # fmt: skip


def _gap(sample: Sample) -> tuple[float, float]:
    """(step, bubble): simulated against closed form."""
    found = simulate(case_of(sample.model, sample.cluster, sample.job, sample.stack), sample.policy)
    times = found.closed.times
    bubble = found.timeline().bubble_share() - float(times.bubble_share[0])
    return found.step_s / float(times.step_s[0]) - 1.0, bubble


def _named(sample: Sample) -> str:
    policy = sample.policy
    degrees = " ".join(f"{name} {getattr(policy, name)}" for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "zero"))
    micro = sample.job.global_batch // (policy.dp * policy.micro_batch)
    return (f"{sample.model.name} ({sample.model.layers} layers) on {sample.cluster.name}:{sample.cluster.gpus}, "
            f"{sample.stack.name}, {policy.schedule}, {micro} micro-batches, {degrees}")  # fmt: skip


if __name__ == "__main__":
    from _agree_cases import cases

    found = simulation_gaps(cases(2_000))
    print(f"{found.cases:,} cases: p95 {found.p95:.2%}, largest {found.largest:.2%}, bubble p95 {found.bubble_p95:.2%}")
    for name, (number, p95, largest) in found.by_schedule.items():
        print(f"  {name:24} {number:4} cases  p95 {p95:6.2%}  largest {largest:6.2%}")
    print("\n".join(found.worst))
