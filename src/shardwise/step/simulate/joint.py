"""One step with all its traffic on the links at once: an event loop until the step is over.

The order of the work, the compute of every task and what may hide under it are the simulation's; how long a collective
or a transfer takes is what the links leave it at that moment. A task of so many layers is cut into turns, each of its
communication that compute waits for and then compute with what hides under it, so that kinds of traffic meet on the
links as they do between layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.demand import AFTER, Demand
from shardwise.fabric.shares import Active
from shardwise.step.simulate.joint_lanes import Gathers, ReductionLane, Sends
from shardwise.step.simulate.joint_tasks import TaskWork, task_work
from shardwise.step.simulate.step import Simulation
from shardwise.step.simulate.strands import Clock, Strand
from shardwise.step.tasks.program import Program


@dataclass(frozen=True)
class JointStep:
    start: Floats
    """of each task of the program"""
    end: Floats
    reduced: tuple[tuple[float, float], ...]
    """of each rank: when its gradients were first and last on the wire"""
    gathered: tuple[tuple[float, float], ...]
    pipeline_end_s: float
    synced_s: float
    busy_s: float
    step_s: float
    moments: Floats
    """from each of them on the same rows of traffic were active ..."""
    states: tuple[int, ...]
    """... those of this one of `kinds`"""
    kinds: tuple[Active, ...]
    lost_s: Mapping[tuple[str, str], float]
    """(axis, axis that slows it) -> seconds of an average rank"""
    turns: int
    """parts a task was cut into"""


def joint_step(simulation: Simulation, demand: Demand, *, sharing: bool = True) -> JointStep:
    """`sharing`: else every kind runs as if it had the links for itself."""
    clock = Clock(demand.shared, sharing)
    run = _Run(simulation, demand, clock)
    run.begin()
    clock.run()
    pipeline_end = float(run.end.max())
    run.share()
    clock.run()
    clock.rest()
    costs = simulation.costs
    synced = max([pipeline_end, run.shared_end, *(last for _, last in run.reductions.spans)])
    busy = synced + float(costs.optimizer_s.max())
    ranks = simulation.program.pp
    return JointStep(
        start=run.start, end=run.end, reduced=tuple(run.reductions.spans), gathered=tuple(run.gathers.spans),
        pipeline_end_s=pipeline_end, synced_s=synced, busy_s=busy,
        step_s=busy * (1.0 + costs.other_share) + costs.other_s, moments=np.array(clock.moments),
        states=tuple(clock.states), kinds=tuple(clock.kinds),
        lost_s={pair: seconds / ranks for pair, seconds in clock.lost.items()}, turns=run.work.turns,
    )  # fmt: skip


class _Run:
    """The ranks of a pipeline, each with its tasks in order."""

    def __init__(self, simulation: Simulation, demand: Demand, clock: Clock) -> None:
        program: Program = simulation.program
        self.program, self.demand, self.clock, self.shared_end = program, demand, clock, 0.0
        self.work: TaskWork = task_work(simulation, demand)
        self.start, self.end = np.full(len(program.rank), np.nan), np.full(len(program.rank), np.nan)
        lanes = program.tasks.lane_start.tolist()
        self.position, self.stop = lanes[:-1], lanes[1:]
        self.needs = program.tasks.need_start.tolist()
        self.sources, self.waits_for = program.need_source.tolist(), program.tasks.need_task.tolist()
        self.rank = program.rank.tolist()
        self.arrived = [False] * len(self.rank)
        self.waiting: dict[int, list[int]] = {}
        self.results: dict[int, list[int]] = {}
        for source, done in enumerate(program.done.tolist()):
            self.results.setdefault(done, []).append(source)
        self.sends = Sends(simulation, demand, clock, self.arrive)
        self.gathers = Gathers(simulation, demand, clock, self.advance)
        self.reductions = ReductionLane(simulation, demand, clock)

    def begin(self) -> None:
        self.gathers.begin()
        for rank in range(self.program.pp):
            self.advance(rank)

    def share(self) -> None:
        """Gradients that ranks of other axes hold alike are added up when all others are reduced."""
        for rank, pieces in enumerate(self.program.held.tolist()):
            parts = [part for piece in pieces for part in self.demand.of("grad", rank, piece, AFTER)]
            if parts:
                Strand(self.clock, parts, self._shared)

    def _shared(self) -> None:
        self.shared_end = self.clock.now

    def advance(self, rank: int) -> None:
        """Start the rank's next task if all it needs is there."""
        task = self.position[rank]
        if task == self.stop[rank] or not np.isnan(self.start[task]):
            return
        for need in range(self.needs[task], self.needs[task + 1]):
            source = self.sources[need]
            if not self.arrived[source]:
                self.waiting.setdefault(source, []).append(rank)
                return
        if not self.gathers.opens(task):
            return
        self.start[task] = self.clock.now
        self.reductions.begins(rank, task)
        self._turn(task, 0)

    def arrive(self, source: int) -> None:
        """A task's result is where it is used."""
        self.arrived[source] = True
        for rank in self.waiting.pop(source, ()):
            self.advance(rank)

    def _turn(self, task: int, turn: int) -> None:
        if turn == self.work.turns:
            self.gathers.after(task, lambda: self._over(task))
            return
        Strand(self.clock, self.work.stops[task], lambda: self._beside(task, turn))

    def _beside(self, task: int, turn: int) -> None:
        """Compute, and what runs under it: the turn is over when all of it is."""
        strands = [((), self.work.compute[task]), *((parts, 0.0) for parts in self.work.hides[task])]
        left = len(strands)

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._turn(task, turn + 1)

        for parts, seconds in strands:
            Strand(self.clock, parts, one_less, seconds)

    def _over(self, task: int) -> None:
        """Results go out; the rank waits for the part of a transfer that stops it."""
        going = [source for source in self.results.get(task, ()) if self.sends.sends(source)]
        for source in self.results.get(task, ()):
            if not self.sends.sends(source):
                self.arrive(source)
        left = len(going)

        def gone() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                self._end(task)

        for source in going:
            self.sends.send(source, gone)
        if not going:
            self._end(task)

    def _end(self, task: int) -> None:
        rank = self.rank[task]
        self.end[task] = self.clock.now
        self.position[rank] += 1
        self.reductions.ends(rank, self.position[rank] == self.stop[rank])
        self.advance(rank)
