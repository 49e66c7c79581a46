"""Closed form and simulation side by side: by how much they differ, in which part, and why."""

from dataclasses import replace

import numpy as np
from msgspec import Struct

from shardwise.schedules import schedules
from shardwise.simulate.step import Simulation, composed

WORTH_SAYING = 0.002
"""share of the step below which a difference is not explained"""


class Gap(Struct, frozen=True, kw_only=True):
    closed_s: float
    simulated_s: float
    parts_s: dict[str, float]
    """simulated minus closed: the pipeline itself, its transfers, reductions and gathers, the rest"""
    why: tuple[str, ...]

    @property
    def share(self) -> float:
        return self.simulated_s / self.closed_s - 1.0


def gap_of(simulation: Simulation) -> Gap:
    """The parts are found by leaving transfers and synchronisation out of the simulation; stragglers are not in it."""
    costs, times = simulation.costs, simulation.closed.times
    zero = np.zeros_like(costs.reduce_s)
    parts = {name: float(np.asarray(value).reshape(-1)[0]) for name, value in times.parts.items()}
    unsynced = replace(costs, reduce_s=zero, gather_s=zero)
    still = replace(unsynced, transfer_s=0.0)
    whole, moving, bare = (
        composed(simulation.policy, simulation.closed, simulation.program, c) for c in (costs, unsynced, still)
    )
    closed = float(times.step_s[0])
    sync, optimizer = parts["grad_comm"] + parts["param_comm"], parts["optimizer"]
    pipeline = closed - parts["other"] - parts["pp_comm"] - sync - optimizer
    found = {
        "pipeline": bare.pipeline_end_s - pipeline,
        "transfers": moving.pipeline_end_s - bare.pipeline_end_s - parts["pp_comm"],
        "synchronisation": whole.synced_s - moving.pipeline_end_s - sync,
    }
    found["rest"] = whole.step_s - closed - sum(found.values())
    said = [_why(name, value, simulation) for name, value in found.items() if abs(value) > WORTH_SAYING * closed]
    return Gap(closed_s=closed, simulated_s=whole.step_s, parts_s=found, why=tuple(said))


def _why(part: str, seconds: float, simulation: Simulation) -> str:
    share = f"{seconds / float(simulation.closed.times.step_s[0]):+.1%}"
    return f"{part} {share}: {_reason(part, seconds > 0, simulation)}"


def _reason(part: str, longer: bool, simulation: Simulation) -> str:
    costs, last = simulation.costs, simulation.program.stages - 1
    if part == "pipeline" and schedules()[simulation.policy.schedule].splits_backward:
        ahead, back, weight = (float(x.sum()) for x in (costs.forward, costs.input_gradient, costs.weight_gradient))
        shared = "; embedding and head share a rank" if {0, last} <= set(simulation.program.held[0].tolist()) else ""
        return (
            "the schedule's law takes forward, input and weight gradient as equal; here they are "
            f"1 : {back / ahead:.2f} : {weight / ahead:.2f}{shared}"
        )
    reasons = {
        ("pipeline", True): "uneven pieces wait for one another more often than once per step",
        ("pipeline", False): "pieces that are shorter than the slowest fill and drain the pipeline sooner",
        ("transfers", True): "the order leaves no slack, so a transfer is waited for even where the sender goes on",
        ("transfers", False): "a rank waits for its messages in time that is idle anyway",
        ("synchronisation", True): "there is less compute to hide under than the closed form allows",
        ("synchronisation", False): "reductions and gathers run under other chunks or while their rank is idle",
    }
    return reasons.get((part, longer), "the optimizer and the allowance for waiting follow the parts above")
