"""Work that runs side by side in time: parts at a pace of their own, and parts at the pace the links allow.

An item is what one strand does now: so many seconds left, either at pace 1 or, as one row of the fabric's traffic, at
what its links leave it. Whenever an item ends its owner is told; between two such moments nothing changes its pace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardwise.fabric.demand import Part
from shardwise.fabric.shares import Active, SharedLinks

DONE = 1e-12
Then = Callable[[], None]


@dataclass(slots=True, eq=False)
class Item:
    left: float
    row: int
    """-1: no link sets its pace"""
    most: float
    then: Then
    pace: float = 1.0


@dataclass
class Clock:
    """Items that run now, and what ran when."""

    shared: SharedLinks
    sharing: bool = True
    """else every row runs as if it were alone"""
    now: float = 0.0
    items: list[Item] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    """from each of them on ..."""
    states: list[int] = field(default_factory=list)
    """... this one of `kinds`"""
    kinds: dict[Active, int] = field(default_factory=dict)
    lost: dict[tuple[str, str], float] = field(default_factory=dict)
    """(axis, axis that slows it) -> seconds"""
    _changed: bool = True
    _losing: dict[tuple[str, str], float] = field(default_factory=dict)

    def start(self, item: Item) -> None:
        self.items.append(item)
        self._changed = self._changed or item.row >= 0

    def stop(self, item: Item) -> None:
        self.items.remove(item)
        self._changed = self._changed or item.row >= 0

    def limit(self, item: Item, most: float) -> None:
        if item.most != most:
            item.most = item.pace = most
            self._changed = self._changed or item.row >= 0

    def run(self) -> None:
        """Until nothing is left."""
        while self.items:
            if self._changed:
                self._share()
            step = min(item.left / item.pace for item in self.items)
            self.now += step
            over = []
            for item in self.items:
                item.left -= step * item.pace
                if item.left <= DONE:
                    over.append(item)
            for item in over:
                self.stop(item)
            self._blame(step)
            for item in over:
                item.then()

    def rest(self) -> None:
        """From now on nothing runs."""
        self._share()

    def _share(self) -> None:
        rows = [item for item in self.items if item.row >= 0]
        active = tuple(sorted((item.row, item.most) for item in rows))
        number = self.kinds.setdefault(active, len(self.kinds))
        if not self.states or self.states[-1] != number:
            self.moments.append(self.now)
            self.states.append(number)
        self._losing = {}
        if rows and self.sharing:
            state = self.shared.state(active)
            self._losing = dict(state.lost)
            for item in rows:
                item.pace = state.paces[item.row, item.most]
        self._changed = False

    def _blame(self, step: float) -> None:
        for pair, share in self._losing.items():
            self.lost[pair] = self.lost.get(pair, 0.0) + share * step


class Strand:
    """Parts one after another."""

    def __init__(self, clock: Clock, parts: Sequence[Part], then: Then, seconds: float = 0.0) -> None:
        """`seconds`: at pace 1, before the parts."""
        self.clock, self.then = clock, then
        self.rest: list[tuple[float, int]] = [(seconds, -1)]
        for part in parts:
            self.rest += [(part.fixed_s, -1), (part.wired_s, part.row)]
        self.rest = [(left, row) for left, row in self.rest if left > DONE][::-1]
        self.next()

    def next(self) -> None:
        if not self.rest:
            self.then()
            return
        left, row = self.rest.pop()
        self.clock.start(Item(left, row, 1.0, self.next))
