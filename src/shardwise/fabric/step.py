"""All collectives of one step on the link graph: bytes on every link, by kind of parallelism, and who sends to whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.calls import PlacedMessage
from shardwise.fabric.links import busy_seconds
from shardwise.fabric.phases import Messages
from shardwise.fabric.price import PricedCall, Prices
from shardwise.fabric.tree import Tree
from shardwise.spec.policy import AXES


@dataclass(frozen=True)
class StepLoad:
    prices: Prices
    priced: tuple[PricedCall, ...]

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Kinds of parallelism that send anything."""
        sending = {p.call.axis for p in self.priced}
        return tuple(axis for axis in AXES if axis in sending)

    @cached_property
    def bytes(self) -> Mapping[str, Floats]:
        """axis -> bytes over each link in one step"""
        sent = {axis: np.zeros(len(self.prices.fabric.links)) for axis in self.axes}
        shares: dict[tuple[str, int], tuple[Floats, float]] = {}
        for p in self.priced:
            on_links = self.prices.own_bytes(p.call, p.algorithm)
            key = (p.call.axis, id(on_links))
            before = shares.get(key, (on_links, 0.0))[1]
            shares[key] = (on_links, before + p.call.count * p.call.bytes)
        for (axis, _), (on_links, scale) in shares.items():
            sent[axis] += scale * on_links
        return sent

    @cached_property
    def total(self) -> Floats:
        return sum(self.bytes.values(), start=np.zeros(len(self.prices.fabric.links)))

    @cached_property
    def busy_s(self) -> Floats:
        """Seconds each link needs for its bytes at its full capacity."""
        return busy_seconds(self.total, self.prices.fabric.links.capacity)

    def communication_s(self) -> dict[str, float]:
        """axis -> seconds of its collectives, one after another and before any overlap."""
        return {axis: sum(p.step_s for p in self.priced if p.call.axis == axis) for axis in self.axes}

    def closed_form_s(self) -> dict[str, float]:
        return {
            axis: sum(p.closed_form_s * p.call.count * p.share for p in self.priced if p.call.axis == axis)
            for axis in self.axes
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

    def sent(self, axis: str) -> list[tuple[Messages, float]]:
        """Messages of an axis, each with the bytes of the buffers they are parts of, in one step."""
        found: dict[int, tuple[Messages, float]] = {}
        for p in self.priced:
            if p.call.axis == axis:
                messages = self.prices.own_messages(p.call, p.algorithm)
                before = found.get(id(messages), (messages, 0.0))[1]
                found[id(messages)] = (messages, before + p.call.count * p.call.bytes)
        return list(found.values())

    def level_bytes(self) -> dict[str, dict[str, float]]:
        """axis -> level -> bytes that an average GPU of the job sends into it, read off the links that lead up."""
        tree = self.prices.fabric
        if not isinstance(tree, Tree):
            return {}
        gpus = self.prices.seats.policy.gpus
        found = {axis: {level.name: 0.0 for level in tree.cluster.levels} for axis in self.bytes}
        ups = [(0, 0), *((2, 1) for _ in tree.tiers[:1])]
        # spines that only join the rails of one unit belong to the leaves' level, whose cards are counted already
        ups += [(4 + 2 * i, tier.level) for i, tier in enumerate(tree.tiers[1:]) if tier.level > 1]
        for group, level in ups:
            links = slice(tree.offsets[group], tree.offsets[group + 1])
            for axis, each in self.bytes.items():
                found[axis][tree.cluster.levels[level].name] += float(each[links].sum()) / gpus
        return found

    def matrix(self, blocks: Ints) -> dict[str, Floats]:
        """axis -> bytes from each block of GPUs to each, in one step; `blocks`: of each GPU."""
        size = int(blocks.max()) + 1
        found = {}
        for axis in self.axes:
            table = np.zeros(size * size)
            for messages, scale in self.sent(axis):
                source, target, each = messages.pairs()
                key = blocks[source] * size + blocks[target]
                table += np.bincount(key, weights=each * scale, minlength=size * size)
            found[axis] = table.reshape(size, size)
        return found

    @cached_property
    def crossings(self) -> dict[str, dict[str, float]]:
        """Bytes of a step that leave their node, rail and leaf group, by axis."""
        fabric = self.prices.fabric
        found = {}
        for axis in self.axes:
            sums = dict.fromkeys(("all", "between nodes", "between rails", "between leaf groups"), 0.0)
            for messages, scale in self.sent(axis):
                source, target, each = messages.pairs()
                out = fabric.node[source] != fabric.node[target]
                rail = out & (fabric.rail[source] != fabric.rail[target])
                far = fabric.unit[source] != fabric.unit[target]
                sums["all"] += scale * float(each.sum())
                for name, chosen in (("between nodes", out), ("between rails", rail), ("between leaf groups", far)):
                    sums[name] += scale * float(each[chosen].sum())
            found[axis] = sums
        return found


def step_load(prices: Prices, calls: Sequence[PlacedMessage]) -> StepLoad:
    return StepLoad(prices, tuple(prices.priced(call) for call in calls))
