"""What runs beside the tasks of a step: transfers between stages, parameter gathers, gradient reductions."""

from collections import deque
from collections.abc import Callable

import numpy as np

from shardwise.fabric.demand import Demand, Part
from shardwise.step.simulate.pipeline import timed, under
from shardwise.step.simulate.step import Simulation
from shardwise.step.simulate.strands import DONE, Clock, Item, Strand, Then
from shardwise.step.tasks.program import FORWARD

Parts = tuple[Part, ...]
Span = tuple[float, float]


class Sends:
    """Results to the next rank, one after another between the same two ranks."""

    def __init__(self, simulation: Simulation, demand: Demand, clock: Clock, arrive: Callable[[int], None]) -> None:
        program, costs = simulation.program, simulation.costs
        self.clock, self.arrive, self.stops = clock, arrive, costs.exposed_transfer
        receiver = np.flatnonzero(program.crosses)
        sender = program.needs[receiver]
        phase = np.where(program.kind[sender] == FORWARD, "forward", "backward")
        self.way = {
            int(s): (int(program.rank[s]), int(program.rank[r]), str(p))
            for s, r, p in zip(sender, receiver, phase, strict=True)
        }
        number = dict.fromkeys(self.way.values(), 0)
        for way in self.way.values():
            number[way] += 1
        self.parts = {
            way: self._one(demand.of("pp", way[0], way[1], way[2]), many, costs.transfer_overhead_s)
            for way, many in number.items()
        }
        self.queues: dict[tuple[int, int, str], deque[tuple[int, Then]]] = {way: deque() for way in number}
        self.busy: set[tuple[int, int, str]] = set()

    @staticmethod
    def _one(parts: Parts, many: int, overhead: float) -> Parts:
        return tuple(
            Part(part.row, part.fixed_s / many + (overhead if not number else 0.0), part.wired_s / many)
            for number, part in enumerate(parts)
        )

    def sends(self, task: int) -> bool:
        return task in self.way

    def send(self, task: int, gone: Then) -> None:
        """`gone`: the sender may go on."""
        way = self.way[task]
        self.queues[way].append((task, gone))
        self._next(way)

    def _next(self, way: tuple[int, int, str]) -> None:
        if way in self.busy or not self.queues[way]:
            return
        task, gone = self.queues[way].popleft()
        self.busy.add(way)
        parts = self.parts[way]

        def rest() -> None:
            gone()
            Strand(self.clock, [part.times(1.0 - self.stops) for part in parts], there)

        def there() -> None:
            self.busy.discard(way)
            self.arrive(task)
            self._next(way)

        Strand(self.clock, [part.times(self.stops) for part in parts], rest)


class Gathers:
    """Parameters come chunk by chunk from the step's start on; a chunk's first forward may run under its own."""

    def __init__(self, simulation: Simulation, demand: Demand, clock: Clock, open_: Callable[[int], None]) -> None:
        program, costs = simulation.program, simulation.costs
        self.clock, self.open = clock, open_
        self.spans: list[Span] = [(0.0, 0.0)] * program.pp
        self.closed: dict[int, int] = {}
        self.late: dict[int, Then | None] = {}
        self.turns: list[list[tuple[int, Parts, float]]] = [[] for _ in range(program.pp)]
        if not costs.gather_s.any():
            return
        ones = np.ones(program.pp)
        length = timed(program, costs, ones, ones).duration
        first = program.first_forwards
        hidden = under(costs.gather_s, length[first], costs, costs.overlap_param)
        share = np.divide(hidden, costs.gather_s, out=np.zeros_like(hidden), where=costs.gather_s > 0)
        for rank in range(program.pp):
            for chunk in np.argsort(first[rank]).tolist():
                parts = demand.of("param", rank, int(program.held[rank, chunk]), "step")
                task = int(first[rank, chunk])
                self.turns[rank].append((task, parts, float(share[rank, chunk])))
                self.closed[task] = rank
                if costs.overlap_param:
                    self.late[task] = None
        self.each = costs.overlap_param

    def begin(self) -> None:
        for rank, turns in enumerate(self.turns):
            if turns:
                self._gather(rank, 0)

    def _gather(self, rank: int, place: int) -> None:
        if place == len(self.turns[rank]):
            self.spans[rank] = (0.0, self.clock.now)
            if not self.each:
                for task, _, _ in self.turns[rank]:
                    self.closed.pop(task, None)
                self.open(rank)
            return
        task, parts, hidden = self.turns[rank][place]

        def opened() -> None:
            if self.each:
                self.closed.pop(task, None)
                self.open(rank)
            Strand(self.clock, [part.times(hidden) for part in parts], done)

        def done() -> None:
            then = self.late.pop(task, None)
            if then is not None:
                then()
            self._gather(rank, place + 1)

        Strand(self.clock, [part.times(1.0 - hidden) for part in parts], opened)

    def opens(self, task: int) -> bool:
        return task not in self.closed

    def after(self, task: int, then: Then) -> None:
        """Once the task's own parameters are all there."""
        if task in self.late:
            self.late[task] = then
        else:
            then()


class ReductionLane:
    """Gradients of each rank's chunks, in turn: beside compute at a part of their pace and only a part of each, while
    the rank is idle at full pace."""

    def __init__(self, simulation: Simulation, demand: Demand, clock: Clock) -> None:
        program, costs = simulation.program, simulation.costs
        self.clock, self.share = clock, costs.hidden_share
        self.spans: list[Span] = [(0.0, 0.0)] * program.pp
        self.hiding: list[deque[list[float]]] = [deque() for _ in range(program.pp)]
        self.exposed: list[deque[list[float]]] = [deque() for _ in range(program.pp)]
        self.busy = [False] * program.pp
        self.item: list[Item | None] = [None] * program.pp
        self.atom: list[list[float] | None] = [None] * program.pp
        self.after: list[list[Parts]] = [[] for _ in range(program.pp)]
        self.ready: dict[int, Parts] = {}
        if costs.reduces_each:
            return
        last = program.last_gradients
        for rank in range(program.pp):
            for chunk in np.argsort(last[rank]).tolist():
                parts = demand.of("grad", rank, int(program.held[rank, chunk]), "step")
                if costs.overlap_grad:
                    self.ready[int(last[rank, chunk])] = parts
                else:
                    self.after[rank].append(parts)

    def begins(self, rank: int, task: int) -> None:
        self.busy[rank] = True
        if task in self.ready:
            self._add(rank, self.ready.pop(task), self.share)
        self._pick(rank)

    def ends(self, rank: int, last: bool) -> None:
        self.busy[rank] = False
        if last:
            for parts in self.after[rank]:
                self._add(rank, parts, 1.0)
        self._pick(rank)

    def _add(self, rank: int, parts: Parts, share: float) -> None:
        for part in parts:
            for left, row in ((part.fixed_s, -1), (part.wired_s, part.row)):
                for queue, size in ((self.hiding[rank], share), (self.exposed[rank], 1.0 - share)):
                    if left * size > 1e-12:
                        queue.append([left * size, row])

    def _pick(self, rank: int) -> None:
        """What can hide goes first; the rest only while the rank has nothing else to do."""
        idle = not self.busy[rank]
        queue = self.hiding[rank] or (self.exposed[rank] if idle else None)
        atom = queue[0] if queue else None
        most = 1.0 if idle else self.share
        item, before = self.item[rank], self.atom[rank]
        if item is not None and item.left <= DONE:
            return  # it has just ended, and what comes next is picked when that is told
        if item is not None and atom is before:
            self.clock.limit(item, most)
            return
        if item is not None and before is not None:
            before[0] = item.left
            self.clock.stop(item)
        self.item[rank], self.atom[rank] = None, atom
        if atom is not None:
            begun = self.spans[rank][0] or self.clock.now
            self.spans[rank] = (begun, self.clock.now)
            self.item[rank] = Item(atom[0], int(atom[1]), most, lambda: self._done(rank), most)
            self.clock.start(self.item[rank])  # type: ignore[arg-type]

    def _done(self, rank: int) -> None:
        atom = self.atom[rank]
        queue = self.hiding[rank] if self.hiding[rank] and self.hiding[rank][0] is atom else self.exposed[rank]
        queue.popleft()
        self.spans[rank] = (self.spans[rank][0], self.clock.now)
        self.item[rank] = self.atom[rank] = None
        self._pick(rank)
