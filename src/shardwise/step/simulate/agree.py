"""Closed form and simulation side by side: by how much they differ, in which part, and why."""

from dataclasses import replace

import numpy as np
from msgspec import Struct

from shardwise.plugins.schedules import schedules
from shardwise.step.simulate.step import Simulation, composed
from shardwise.step.tasks.longest import ROUNDS

WORTH_SAYING = 0.002
"""share of the step below which a difference is not explained"""


class Gap(Struct, frozen=True, kw_only=True):
    closed_s: float
    simulated_s: float
    parts_s: dict[str, float]
    """simulated minus closed: the pipeline with its transfers, what is reduced and gathered around it, the rest"""
    why: tuple[str, ...]

    @property
    def share(self) -> float:
        return self.simulated_s / self.closed_s - 1.0


def gap_of(simulation: Simulation) -> Gap:
    """The parts are found by leaving synchronisation out of the simulation; stragglers are not in it."""
    costs, times = simulation.costs, simulation.closed.times
    zero = np.zeros_like(costs.reduce_s)
    parts = {name: float(np.asarray(value).reshape(-1)[0]) for name, value in times.parts.items()}
    # gradients that every micro-batch reduces are a part of the pipeline
    alone = replace(costs, reduce_s=costs.reduce_s if costs.reduces_each else zero, gather_s=zero)
    whole, pipeline = (composed(simulation.policy, simulation.closed, simulation.program, c) for c in (costs, alone))
    closed = float(times.step_s[0])
    around = parts["param_comm"] + (costs.shared_s if costs.reduces_each else parts["grad_comm"])
    found = {
        "pipeline": pipeline.pipeline_end_s - (closed - parts["other"] - parts["optimizer"] - around),
        "synchronisation": whole.synced_s - pipeline.pipeline_end_s - around,
    }
    found["rest"] = whole.step_s - closed - sum(found.values())
    told = found.items() if abs(whole.step_s - closed) > WORTH_SAYING * closed else ()
    said = [_why(name, value, simulation) for name, value in told if abs(value) > WORTH_SAYING * closed]
    return Gap(closed_s=closed, simulated_s=whole.step_s, parts_s=found, why=tuple(said))


def _why(part: str, seconds: float, simulation: Simulation) -> str:
    share = f"{seconds / float(simulation.closed.times.step_s[0]):+.1%}"
    return f"{part} {share}: {_reason(part, seconds > 0, simulation)}"


def _reason(part: str, longer: bool, simulation: Simulation) -> str:
    policy, micro = simulation.policy, simulation.program.micro_batches
    if part == "pipeline" and schedules()[policy.schedule].splits_backward and micro > ROUNDS * policy.pp:
        return f"the closed form follows {ROUNDS} rounds of pp micro-batches and takes the others as long as the last"
    reasons = {
        ("pipeline", True): "stages that are not alike wait for one another in more ways than the closed form follows",
        ("pipeline", False): "the closed form takes stages between the ends, or what they reduce, as alike",
        ("synchronisation", True): "a stage that starts late or ends early has less time for it than on average",
        ("synchronisation", False): "reductions and gathers run under other chunks or while their rank is idle",
    }
    return reasons.get((part, longer), "the optimizer and the allowance for waiting follow the parts above")
