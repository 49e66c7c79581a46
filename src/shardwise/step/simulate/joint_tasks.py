"""Every task of a step as turns: traffic it waits for, compute, traffic under compute."""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Flags, Floats
from shardwise.fabric.demand import Demand, Part
from shardwise.step.simulate.costs import STREAMS
from shardwise.step.simulate.pipeline import timed, under
from shardwise.step.simulate.step import Simulation
from shardwise.step.tasks.program import FORWARD, WEIGHT_GRADIENT

MOST_EVENTS = 24_000
"""events a step is cut into at most, as far as whole tasks allow"""
MOST_TURNS = 16
Parts = tuple[Part, ...]


@dataclass(frozen=True)
class TaskWork:
    """Of one turn of each task."""

    turns: int
    stops: list[Parts]
    compute: list[float]
    hides: list[tuple[Parts, ...]]


def task_work(simulation: Simulation, demand: Demand) -> TaskWork:
    program, costs = simulation.program, simulation.costs
    ones = np.ones(program.pp)
    plan = timed(program, costs, ones, ones)
    compute = plan.duration - plan.stopped
    stops: list[list[Part]] = [[] for _ in program.rank]
    hides: list[list[Parts]] = [[] for _ in program.rank]
    back = program.kind != FORWARD
    sending = program.kind != WEIGHT_GRADIENT
    micro = np.where(back, _passes(simulation, back & sending), _passes(simulation, ~back)).tolist()
    for axis in STREAMS:
        if axis not in costs.streams:
            continue
        stream = costs.streams[axis]
        seconds = np.where(back, stream.seconds[1][program.stage], stream.seconds[0][program.stage])
        share = stream.stops[program.stage]
        compute = compute - np.where(sending, seconds * share, 0.0)
        for task in np.flatnonzero(sending).tolist():
            phase = "backward" if back[task] else "forward"
            parts = demand.of(axis, int(program.rank[task]), int(program.stage[task]), phase)
            _divide(parts, float(share[task]), micro[task], stops[task], hides[task])
    if costs.reduces_each:
        compute = compute - _each(simulation, demand, plan.duration - plan.stopped, stops, hides)
    turns = _turns(simulation, stops, hides)
    return TaskWork(
        turns=turns,
        stops=[tuple(part.times(1.0 / turns) for part in parts) for parts in stops],
        compute=(np.maximum(compute, 0.0) / turns).tolist(),
        hides=[tuple(tuple(p.times(1.0 / turns) for p in parts) for parts in strands) for strands in hides],
    )


def _divide(parts: Parts, share: float, micro: float, stops: list[Part], hides: list[Parts]) -> None:
    """A task's part of what its piece sends in a step: what compute waits for, and what runs under it."""
    if parts and share > 0.0:
        stops += [part.times(share / micro) for part in parts]
    if parts and share < 1.0:
        hides.append(tuple(part.times((1.0 - share) / micro) for part in parts))


def _passes(simulation: Simulation, chosen: Flags) -> list[float]:
    """How many of the chosen tasks each task's piece has on its rank."""
    program = simulation.program
    key = program.rank * program.stages + program.stage
    number = np.maximum(np.bincount(key[chosen], minlength=int(key.max()) + 1)[key], 1)
    return [float(each) for each in number]


def _each(
    simulation: Simulation, demand: Demand, length: Floats, stops: list[list[Part]], hides: list[list[Parts]]
) -> Floats:
    """Sharded gradients are reduced in every backward; -> the seconds of it that the plan already counts as waited."""
    program, costs = simulation.program, simulation.costs
    final = program.finishes_gradient
    seconds = np.where(final, costs.reduce_s[program.rank, program.chunk], 0.0)
    hidden = np.where(final, under(seconds, length, costs, costs.overlap_grad), 0.0)
    micro = _passes(simulation, final)
    for task in np.flatnonzero(final & (seconds > 0)).tolist():
        parts = demand.of("grad", int(program.rank[task]), int(program.stage[task]), "step")
        _divide(parts, float(1.0 - hidden[task] / seconds[task]), micro[task], stops[task], hides[task])
    return seconds - hidden


def _turns(simulation: Simulation, stops: list[list[Part]], hides: list[list[Parts]]) -> int:
    """As many as layers, where there are events enough."""
    events = sum(1 + 2 * len(parts) for parts in stops) + 2 * sum(map(len, hides))
    layers = simulation.closed.work.model.layers / max(simulation.program.stages, 1)
    return int(np.clip(min(MOST_EVENTS / max(events, 1), layers, MOST_TURNS), 1, None))
