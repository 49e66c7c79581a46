"""Traffic that runs at the same time, at rates all of it can have together.

A row is one kind of traffic of one pipeline stage while its bytes are on the wire: how much of every link's time it
takes at full pace. All flows of a row keep step, as the messages of a collective wait for one another. Rows that run
together share max-min fairly by the rate of their longest messages, none faster than alone; no link is ever asked for
more than it has. Links on which all rows look the same are one class, so a fabric of thousands of links is a few dozen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.fold import bits_of
from shardwise.fabric.links import mixed

Active = tuple[tuple[int, float], ...]
"""(row, pace it has at most) of what runs at a moment"""
SLOWED = 1e-9


@dataclass(frozen=True)
class Row:
    axis: str
    lane: str
    stage: int
    wire: Floats
    """share of each link's time at full pace: bytes, protocol and headers"""
    rate: Floats
    """bytes/s of data on each link at full pace"""
    longest: float
    """bytes/s of its largest message at full pace"""


@dataclass(frozen=True)
class State:
    """What the links do while the same rows are active."""

    paces: Mapping[tuple[int, float], float]
    """of each row with what it may have at most; a row may run twice at the same time"""
    lost: Mapping[tuple[str, str], float]
    """(axis that is slowed, axis that slows it) -> part of its pace"""


@dataclass(frozen=True)
class SharedLinks:
    rows: tuple[Row, ...]
    _known: dict[Active, State] = field(default_factory=dict, repr=False)
    _tables: list[Floats] = field(default_factory=list, repr=False)

    def state(self, active: Active) -> State:
        if active not in self._known:
            self._known[active] = self._state(active)
        return self._known[active]

    @property
    def wire(self) -> Floats:
        """rows x classes of links."""
        if not self._tables:
            self._tables.append(_classes([row.wire for row in self.rows]))
        return self._tables[0]

    def _state(self, active: Active) -> State:
        number = np.array([row for row, _ in active], dtype=np.int64)
        most = np.array([cap for _, cap in active])
        wire = self.wire[number]
        pace, binding = together(wire, most, np.array([self.rows[row].longest for row in number]))
        return State(dict(zip(active, pace.tolist(), strict=True)),
                     self._blame(number, wire, pace, most, binding))  # fmt: skip

    def _blame(
        self, number: Ints, wire: Floats, pace: Floats, most: Floats, binding: Ints
    ) -> dict[tuple[str, str], float]:
        """Who takes the time of the link a slowed row waits for, in proportion."""
        found: dict[tuple[str, str], float] = {}
        for place, link in enumerate(binding.tolist()):
            lost = float(most[place] - pace[place])
            if link < 0 or lost <= SLOWED:
                continue
            used = wire[:, link] * pace
            used[place] = 0.0
            for other in np.flatnonzero(used > 0):
                key = (self.rows[number[place]].axis, self.rows[number[other]].axis)
                found[key] = found.get(key, 0.0) + lost * float(used[other] / used.sum())
        return found


def together(wire: Floats, most: Floats, longest: Floats) -> tuple[Floats, Ints]:
    """(pace of each row, the link that holds it back or -1): all rise at the rate of their longest messages until a
    link is full or a row has all it can use."""
    rows = len(wire)
    pace, binding = np.zeros(rows), np.full(rows, -1, dtype=np.int64)
    room = np.ones(wire.shape[1])
    free = np.ones(rows, dtype=np.bool_)
    step = 1.0 / longest
    while free.any():
        demand = (wire[free] * step[free, None]).sum(axis=0)
        level = np.divide(room, demand, out=np.full(len(room), np.inf), where=demand > SLOWED * step[free].min())
        link = int(np.argmin(level))
        own = np.where(free, (most - pace) / step, np.inf)
        rise = min(float(level[link]), float(own.min()))
        pace = pace + np.where(free, rise * step, 0.0)
        room = np.maximum(room - rise * demand, 0.0)
        full = free & (own <= rise * (1 + SLOWED))
        pace[full] = most[full]
        if float(level[link]) <= rise * (1 + SLOWED):
            held = free & ~full & (wire[:, link] > 0)
            binding[held] = link
            full |= held
        free &= ~full
    return pace, binding


def _classes(columns: list[Floats]) -> Floats:
    """rows x links -> rows x distinct links that anybody uses."""
    key = np.zeros(len(columns[0]), dtype=np.uint64)
    used = np.zeros(len(key), dtype=np.bool_)
    for number, column in enumerate(columns):
        key = mixed(key, np.where(column > 0, bits_of(column) ^ number, 0))
        used |= column > 0
    if not used.any():
        return np.zeros((len(columns), 1))
    _, first = np.unique(key[used], return_index=True)
    chosen = np.flatnonzero(used)[first]
    return np.stack([column[chosen] for column in columns])
