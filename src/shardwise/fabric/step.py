"""All collectives of one step on the link graph: bytes on every link, by kind of parallelism, and who sends to whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.fabric.calls import AXES, Call
from shardwise.fabric.links import Floats, Ints
from shardwise.fabric.price import Priced, Prices


@dataclass(frozen=True)
class StepLoad:
    prices: Prices
    priced: tuple[Priced, ...]
    bytes: Mapping[str, Floats]
    """axis -> bytes over each link in one step"""

    @cached_property
    def total(self) -> Floats:
        return sum(self.bytes.values(), start=np.zeros(len(self.prices.fabric.links)))

    @cached_property
    def busy_s(self) -> Floats:
        """Seconds each link needs for its bytes at its full capacity."""
        return self.total / self.prices.fabric.links.capacity

    def communication_s(self) -> dict[str, float]:
        """axis -> seconds of its collectives, one after another and before any overlap."""
        return {axis: sum(p.step_s for p in self.priced if p.call.axis == axis) for axis in self.bytes}

    def closed_form_s(self) -> dict[str, float]:
        return {
            axis: sum(p.closed_form_s * p.call.times for p in self.priced if p.call.axis == axis) for axis in self.bytes
        }

    def kinds_on(self, link: int) -> dict[str, float]:
        """Bytes on one link by axis, the most first."""
        found = {axis: float(each[link]) for axis, each in self.bytes.items() if each[link] > 0}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def busiest(self, tier: int | None = None) -> int:
        """The link that is busy longest (of a tier); -1 where nothing is sent."""
        links = self.prices.fabric.links
        busy = self.busy_s if tier is None else np.where(links.tier == tier, self.busy_s, -1.0)
        return int(np.argmax(busy)) if len(busy) and busy.max() > 0 else -1

    def matrix(self, blocks: Ints) -> dict[str, Floats]:
        """axis -> bytes from each block of GPUs to each, in one step; `blocks`: of each GPU."""
        size = int(blocks.max()) + 1
        found = {}
        for axis in self.bytes:
            table = np.zeros(size * size)
            for p in self.priced:
                if p.call.axis != axis:
                    continue
                sent, scale = self.prices.pattern(p.call, p.algorithm).messages, p.call.times * p.call.bytes
                key = blocks[sent.source] * size + blocks[sent.target]
                table += np.bincount(key, weights=sent.bytes * scale, minlength=size * size)
                own = blocks[sent.switched] * (size + 1)
                table += np.bincount(own, weights=sent.switched_bytes * scale, minlength=size * size)
            found[axis] = table.reshape(size, size)
        return found

    def crossings(self) -> dict[str, dict[str, float]]:
        """Bytes of a step that leave their node, rail and leaf group, by axis."""
        fabric = self.prices.fabric
        found = {}
        for axis in self.bytes:
            sums = dict.fromkeys(("all", "between nodes", "between rails", "between leaf groups"), 0.0)
            for p in (p for p in self.priced if p.call.axis == axis):
                sent, scale = self.prices.pattern(p.call, p.algorithm).messages, p.call.times * p.call.bytes
                out = fabric.node[sent.source] != fabric.node[sent.target]
                rail = out & (fabric.rail[sent.source] != fabric.rail[sent.target])
                far = fabric.unit[sent.source] != fabric.unit[sent.target]
                sums["all"] += scale * float(sent.bytes.sum() + sent.switched_bytes.sum())
                for name, chosen in (("between nodes", out), ("between rails", rail), ("between leaf groups", far)):
                    sums[name] += scale * float(sent.bytes[chosen].sum())
            found[axis] = sums
        return found

    def by_stage(self, place: Ints, width: int) -> dict[str, Floats]:
        """lane -> stages x places: bytes in one step, by the pipeline stage that sends them; `place`: of each link,
        -1 for those that are not counted."""
        fabric, stage = self.prices.fabric, self.prices.seats.stage
        spot = np.append(place, -1)
        found: dict[str, Floats] = {}
        for p in self.priced:
            table = found.setdefault(p.call.lane, np.zeros((self.prices.seats.policy.pp, width)))
            sent, scale = self.prices.pattern(p.call, p.algorithm).messages, p.call.times * p.call.bytes
            routes = fabric.routes(sent.source, sent.target)
            part = np.ones(routes.links.shape) if routes.weight is None else routes.weight
            size = (sent.bytes[routes.message] * routes.share * scale)[:, None] * part
            _add(table, stage[sent.source][routes.message], spot[routes.links], size)
            for links in fabric.reducing(sent.switched) if len(sent.switched) else ():
                _add(table, stage[sent.switched], spot[links][:, None], (sent.switched_bytes * scale)[:, None])
        return found


def _add(table: Floats, stage: Ints, place: Ints, size: Floats) -> None:
    width = table.shape[1]
    seen = place >= 0
    key = (np.broadcast_to(stage[:, None], place.shape) * width + place)[seen]
    weights = np.broadcast_to(size, place.shape)[seen]
    table += np.bincount(key, weights=weights, minlength=table.size).reshape(table.shape)


def step_load(prices: Prices, calls: Sequence[Call]) -> StepLoad:
    priced = tuple(prices.priced(call) for call in calls)
    links = len(prices.fabric.links)
    sent = {axis: np.zeros(links) for axis in AXES if any(c.axis == axis for c in calls)}
    for p in priced:
        sent[p.call.axis] += p.call.times * p.call.bytes * prices.pattern(p.call, p.algorithm).link_bytes
    return StepLoad(prices, priced, sent)
