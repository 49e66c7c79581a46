"""What a step asks of the links, kind by kind and piece by piece: rows that can share them, and how long each is on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.calls import PlacedMessage
from shardwise.fabric.fold import bits_of
from shardwise.fabric.links import busy_seconds, mixed
from shardwise.fabric.price import PricedCall
from shardwise.fabric.shares import Row, SharedLinks
from shardwise.fabric.step import StepLoad

SMALL = 0.01
"""share of an activity below which a part of it is counted with its largest"""
AFTER = "after"
"""phase of what is sent when all gradients are reduced"""
Key = tuple[str, int, int, str]
"""lane, pipeline stage, piece of the model (of a send: the receiving stage), phase"""


@dataclass(frozen=True)
class Part:
    """Traffic of one row in a step, alone: seconds that no link sets, then seconds on the wire."""

    row: int
    fixed_s: float
    wired_s: float

    @property
    def seconds(self) -> float:
        return self.fixed_s + self.wired_s

    def times(self, factor: float) -> "Part":
        return Part(self.row, self.fixed_s * factor, self.wired_s * factor)


@dataclass(frozen=True)
class Demand:
    shared: SharedLinks
    parts: Mapping[Key, tuple[Part, ...]]

    def of(self, lane: str, stage: int, piece: int, phase: str) -> tuple[Part, ...]:
        return self.parts.get((lane, stage, piece, phase), ())


def demand_of(load: StepLoad, slower: Callable[[PlacedMessage], float] = lambda _: 1.0) -> Demand:
    """`slower`: factor on the time of a call's bytes where they leave their node."""
    found: dict[Key, dict[int, Part]] = {}
    rows = _Rows(load)
    for p in load.priced:
        key = _key(p.call)
        row, wired, fixed = rows.of(p, slower(p.call))
        parts = found.setdefault(key, {})
        before = parts.get(row, Part(row, 0.0, 0.0))
        parts[row] = Part(row, before.fixed_s + fixed, before.wired_s + wired)
    return Demand(SharedLinks(tuple(rows.rows)), {key: _few(tuple(parts.values())) for key, parts in found.items()})


def _key(call: PlacedMessage) -> Key:
    phase: str = "backward" if call.phase == "recompute" else call.phase
    if call.lane in ("grad", "param"):
        phase = "step" if call.axis == "dp" and call.phase != "update" else AFTER
    return call.lane, call.stage, call.piece if call.target < 0 else call.target, phase


def _few(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Parts that matter; what is short runs with the longest."""
    total = sum(part.seconds for part in parts)
    longest = max(parts, key=lambda part: part.seconds)
    kept = [part for part in parts if part is not longest and part.seconds >= SMALL * total]
    short = [part for part in parts if part is not longest and part.seconds < SMALL * total]
    fixed = longest.fixed_s + sum(part.fixed_s for part in short)
    wired = longest.wired_s + sum(part.wired_s for part in short)
    return (Part(longest.row, fixed, wired), *kept)


class _Rows:
    """Rows by what they do to the links: collectives of one axis and stage that look alike are one."""

    def __init__(self, load: StepLoad) -> None:
        self.load, self.prices = load, load.prices
        self.rows: list[Row] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._shapes: dict[tuple[object, ...], tuple[int, Floats]] = {}

    def of(self, p: PricedCall, slower: float) -> tuple[int, float, float]:
        """(row, seconds on the wire, seconds that no link sets) of all calls like this in a step."""
        call, prices = p.call, self.prices
        quote, sent = prices.quote(call, p.algorithm), prices.own_bytes(call, p.algorithm)
        alone = prices.alone(call, p.algorithm).seconds
        outside = p.link >= 0 and prices.fabric.links.level[p.link] > 0
        stretched = call.skew * quote.slower * (slower if outside else 1.0)
        fixed = p.latency_s + call.bytes * call.skew * quote.slower * quote.own_seconds_per_byte
        row = self._row(p, sent, alone, stretched)
        return row, call.bytes * stretched * alone * call.count, fixed * call.count

    def _row(self, p: PricedCall, sent: Floats, alone: float, stretched: float) -> int:
        call, prices = p.call, self.prices
        shape = (id(sent), p.algorithm)
        if shape not in self._shapes:
            links = prices.fabric.links
            wire = busy_seconds(sent, links.capacity * prices.reached(p.algorithm) * max(alone, 1e-300))
            self._shapes[shape] = (_print(wire), np.minimum(wire, 1.0))
        print_, wire = self._shapes[shape]
        key = (call.axis, call.lane, call.stage, print_, round(stretched, 6))
        if key not in self._known:
            pace = alone * stretched
            rate = sent / pace if pace else sent
            longest = prices.pattern(call, p.algorithm).largest / pace if pace else 1.0
            self.rows.append(Row(call.axis, call.lane, call.stage, wire, rate, max(longest, 1.0)))
            self._known[key] = len(self.rows) - 1
        return self._known[key]


def _print(wire: Floats) -> int:
    """A number for what a row does to all links."""
    places = np.flatnonzero(wire)
    return int(np.bitwise_xor.reduce(mixed(places, bits_of(wire[places])), initial=np.uint64(0)) >> np.uint64(1))
