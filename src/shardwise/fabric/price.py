"""Collectives of a step on the link graph: seconds, bytes on every link, and the link that sets the pace.

Seconds are a latency and a time for the bytes. The latency and the part of a link's bandwidth that data reaches are the
closed form's (cost/network.py), so the two tiers differ only in what the graph knows: which messages share which links.
"""

from dataclasses import dataclass, field

import numpy as np

from shardwise.collectives import collective
from shardwise.cost.network import Network
from shardwise.cost.placement import level_members
from shardwise.fabric.calls import Call
from shardwise.fabric.links import Floats, Ints, Routed
from shardwise.fabric.phases import PATTERNS, Messages, messages_of, neighbours
from shardwise.fabric.place import Seats
from shardwise.fabric.solver import finish_times

EXACT = 2_000
"""rows of flows up to which the event loop runs; a larger pattern takes as long as its busiest link needs for its
bytes, which is less than the truth only where that link has to wait for others"""


@dataclass(frozen=True)
class Pattern:
    """What one call does to the links, for one byte of its buffer."""

    messages: Messages
    seconds_per_byte: float
    link_bytes: Floats
    paced_bytes: Floats
    """the same of what sets the time: of sends between stages those of one direction"""
    link: int
    """the link that is busy to the end; -1 where nothing is sent"""


@dataclass(frozen=True)
class Priced:
    call: Call
    algorithm: str
    seconds: float
    """of one call"""
    latency_s: float
    closed_form_s: float
    link: int

    @property
    def step_s(self) -> float:
        """of all its calls in a step, one after another"""
        return self.seconds * self.call.times


@dataclass(frozen=True)
class Quote:
    """What the closed form says of a call under one algorithm; the same on every fabric and under every placement."""

    algorithm: str
    latency_s: float
    seconds_per_byte: float
    slower: float
    """than at full bandwidth: a protocol with less latency reaches less"""
    own_seconds_per_byte: float
    """a rank's copy of its own part"""


Quotes = dict[tuple[Call, str | None], Quote]


@dataclass(frozen=True)
class Prices:
    fabric: Routed
    network: Network
    seats: Seats
    quotes: Quotes = field(default_factory=dict, repr=False)
    """may be shared by prices of the same network"""
    _patterns: dict[tuple[object, ...], Pattern] = field(default_factory=dict, repr=False)

    def members(self, call: Call) -> Ints:
        """groups x ranks, as GPUs in the order of their ring."""
        whole = self.seats.groups(call.group)
        if call.part == "shard":
            whole = whole.reshape(-1, call.size)
        elif call.part == "replicas":
            groups, ranks = whole.shape
            parts = whole.reshape(groups, call.size, ranks // call.size)
            whole = np.swapaxes(parts, 1, 2).reshape(-1, call.size)
        return whole if call.group == "pp" else self.seats.ringed(whole)

    def algorithm(self, call: Call) -> str:
        """The closed form's choice, among those whose messages are known."""
        chosen = str(self.network.breakdown(call.op, call.bytes * call.skew, call.size, call.stride).algorithm)
        if chosen in PATTERNS:
            return chosen
        able = [name for name in PATTERNS if call.op in collective(name).ops and collective(name).automatic]
        return min(able, key=lambda name: self._alone(call, name))

    def _alone(self, call: Call, name: str) -> float:
        try:
            return float(self.network.seconds(call.op, call.bytes, call.size, call.stride, algorithm=name))
        except ValueError:
            return np.inf

    def pattern(self, call: Call, algorithm: str) -> Pattern:
        key = (algorithm, call.op, call.group, call.part, call.size, call.wraps)
        if key not in self._patterns:
            self._patterns[key] = self._pattern(call, algorithm)
        return self._patterns[key]

    def _pattern(self, call: Call, algorithm: str) -> Pattern:
        members = self.members(call)
        if call.group == "pp":
            policy = self.seats.policy
            along, closing = pipeline_shares(policy.pp, policy.vpp, call.wraps)
            messages = neighbours(members, along, closing, back=True)
            timed = neighbours(members, 1.0, 1.0 if call.wraps else 0.0, back=False)
        else:
            cards = int(self.network.links.cards_per_group)
            pooled = collective(algorithm).pooled
            messages = timed = messages_of(algorithm, call.op, members, self.fabric, cards if pooled else 1 << 20)
        flows = messages.flows(self.fabric)
        paced = flows if timed is messages else timed.flows(self.fabric)
        capacity = self.fabric.links.capacity * self.reached(algorithm)
        sent = flows.link_bytes(len(self.fabric.links))
        pace = sent if paced is flows else paced.link_bytes(len(capacity))
        slowest = pace / capacity
        seconds = float(slowest.max())
        if 0 < len(paced) <= EXACT:
            seconds = float(finish_times(paced, capacity, within=0.01).max())
        return Pattern(messages, seconds, sent, pace, int(np.argmax(slowest)) if slowest.any() else -1)

    def reached(self, algorithm: str) -> Floats:
        """Part of each link's bandwidth that long messages of this algorithm reach."""
        network, levels = self.network, self.network.cluster.levels
        style = collective(algorithm).style
        each = [
            network.links.of(network.cluster, level).style(style).rate[-1] * network.efficiency[i]
            for i, level in enumerate(levels)
        ]
        return np.asarray(np.array(each)[np.minimum(self.fabric.links.level, len(levels) - 1)])

    def quote(self, call: Call, algorithm: str | None = None) -> Quote:
        key = (call, algorithm)
        if key not in self.quotes:
            self.quotes[key] = self._quote(call, algorithm or self.algorithm(call))
        return self.quotes[key]

    def _quote(self, call: Call, name: str) -> Quote:
        network = self.network
        law = network.law(call.op, call.size, call.stride, algorithm=name)
        line = int(law.line(call.bytes * call.skew))
        slope = float(law.slope[line, law.group])
        shape = level_members(network.cluster, call.size, call.stride)
        rate = network.links.of(network.cluster, network.cluster.levels[0]).copy_bytes_per_s
        return Quote(
            algorithm=name,
            latency_s=float(law.latency[line, law.group]),
            seconds_per_byte=slope,
            slower=slope / float(law.slope[:, law.group].min()) if slope else 1.0,
            own_seconds_per_byte=float(collective(name).load(call.op, shape).own) / rate if rate else 0.0,
        )

    def priced(self, call: Call, algorithm: str | None = None) -> Priced:
        quote = self.quote(call, algorithm)
        pattern, latency = self.pattern(call, quote.algorithm), quote.latency_s
        each = quote.slower * (pattern.seconds_per_byte + quote.own_seconds_per_byte)
        size = call.bytes * call.skew
        closed = latency + size * quote.seconds_per_byte
        return Priced(call, quote.algorithm, latency + size * each, latency, closed, pattern.link)


def pipeline_shares(pp: int, vpp: int, wraps: bool) -> tuple[float, float]:
    """Messages each way over a cut, and between the last and the first stage, for one that an average rank sends."""
    if not wraps:
        return pp / (2.0 * (pp - 1)), 0.0
    cuts = pp * vpp - 1
    return vpp * pp / (2.0 * cuts), (vpp - 1) * pp / (2.0 * cuts)
