"""Collectives of a step on the link graph: seconds, bytes on every link, and the link that sets the pace.

Seconds are a latency and a time for the bytes. The latency and the part of a link's bandwidth that data reaches are the
closed form's (cost/network.py), so the two tiers differ only in what the graph knows: which messages share which links.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from shardwise.arrays import Floats, Ints
from shardwise.cost.network import Network
from shardwise.cost.placement import level_members
from shardwise.fabric.calls import STAGE_PAIRS, PlacedMessage, paired_stages
from shardwise.fabric.duration import Duration, duration_of
from shardwise.fabric.links import RoutedFabric, busy_seconds
from shardwise.fabric.phases import Messages, Phases, local_of, passed_on, phases_of, runs_on, together
from shardwise.fabric.place import Seats
from shardwise.plugins.collectives import collective, collectives


@dataclass(frozen=True)
class Pattern:
    """What one call does to the links, for one byte of its buffer, on all GPUs that make it at the same time."""

    messages: Messages
    duration: Duration
    link_bytes: Floats
    paced_bytes: Floats
    """the same of what sets the time: of sends between stages those of all stages in one direction"""
    link: int
    """the link that is busy to the end; -1 where nothing is sent"""
    largest: float
    """the longest message"""

    @property
    def seconds_per_byte(self) -> float:
        return self.duration.seconds


@dataclass(frozen=True)
class PricedCall:
    call: PlacedMessage
    algorithm: str
    seconds: float
    """of one call"""
    latency_s: float
    """of it: what stays with no bytes"""
    closed_form_s: float
    link: int
    share: float = 1.0
    """of the GPUs that make this call: all, or one pipeline stage of several"""

    @property
    def step_s(self) -> float:
        """of all its calls in a step, one after another, for an average GPU"""
        return self.seconds * self.call.count * self.share


@dataclass(frozen=True)
class Quote:
    """What the closed form says of a call under one algorithm; the same on every fabric and under every placement."""

    latency_s: float
    seconds_per_byte: float
    slower: float
    """than at full bandwidth: a protocol with less latency reaches less"""
    own_seconds_per_byte: float
    """a rank's copy of its own part"""


Quotes = dict[tuple[object, ...], Quote]
Paces = dict[tuple[object, ...], tuple[Duration, Floats]]
"""how long the messages of a call take, and their bytes on every link, by the algorithm and who takes part"""


@dataclass(frozen=True)
class Prices:
    fabric: RoutedFabric
    network: Network
    seats: Seats
    quotes: Quotes = field(default_factory=dict, repr=False)
    """may be shared by prices of the same network"""
    named: Mapping[str, str] = field(default_factory=dict)
    """axis -> algorithm, for its operations that the algorithm serves; the others are the library's choice"""
    paces: Paces = field(default_factory=dict, repr=False)
    """may be shared by prices of the same fabric and network: many placements put the same ranks side by side"""
    _patterns: dict[tuple[object, ...], Pattern] = field(default_factory=dict, repr=False)
    _own: dict[tuple[object, ...], Messages] = field(default_factory=dict, repr=False)
    _own_bytes: dict[tuple[object, ...], Floats] = field(default_factory=dict, repr=False)
    _alone: dict[tuple[object, ...], Duration] = field(default_factory=dict, repr=False)
    _choices: dict[tuple[object, ...], str] = field(default_factory=dict, repr=False)
    _distances: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)

    def members(self, call: PlacedMessage) -> Ints:
        """groups x ranks, as GPUs in the order of their ring."""
        return members_of(self.seats, call)

    def algorithm(self, call: PlacedMessage) -> str:
        """What is named for the axis, else the closed form's choice among those that can run where the ranks lie."""
        name = self.named.get(call.axis, "")
        if name and call.op in collective(name).ops:
            return name
        key = (call.op, call.bytes * call.skew, call.ranks, call.stride, call.group, call.part)
        if key not in self._choices:
            self._choices[key] = self._choice(call)
        return self._choices[key]

    def _choice(self, call: PlacedMessage) -> str:
        chosen = str(self.network.breakdown(call.op, call.bytes * call.skew, call.ranks, call.stride).algorithm)
        members = self.members(call)
        local = local_of(members, self.fabric.node)
        if runs_on(collective(chosen), local, members.shape[1] // local):
            return chosen
        able = [
            found.name for found in collectives().values()
            if call.op in found.ops and found.automatic and runs_on(found, local, members.shape[1] // local)
            and found.reduces_at == "none"
        ]  # fmt: skip
        return min(able, key=lambda name: self._closed_form(call, name))

    def _closed_form(self, call: PlacedMessage, name: str) -> float:
        try:
            return float(self.network.seconds(call.op, call.bytes * call.skew, call.ranks, call.stride, algorithm=name))
        except ValueError:  # not where the closed form takes the ranks to lie
            return np.inf

    def pattern(self, call: PlacedMessage, algorithm: str) -> Pattern:
        key = self._key(call, algorithm)
        if key not in self._patterns:
            self._patterns[key] = self._pattern(call, algorithm)
        return self._patterns[key]

    def _key(self, call: PlacedMessage, algorithm: str) -> tuple[object, ...]:
        ends = (call.stage, call.target) if call.target >= 0 else ()
        return (algorithm, call.op, call.group, call.part, call.ranks, *ends)

    def own_messages(self, call: PlacedMessage, algorithm: str) -> Messages:
        """Of the GPUs of the call's own pipeline stage."""
        key = (call.stage, *self._key(call, algorithm))
        if key not in self._own:
            whole = self.pattern(call, algorithm).messages
            self._own[key] = whole.of_stage(self.seats.stage, call.stage) if self._one_of_many(call) else whole
        return self._own[key]

    def own_bytes(self, call: PlacedMessage, algorithm: str) -> Floats:
        """What these put on every link."""
        key = (call.stage, *self._key(call, algorithm))
        if key not in self._own_bytes:
            if self._one_of_many(call):
                flows = self.own_messages(call, algorithm).flows(self.fabric)
                self._own_bytes[key] = flows.link_bytes(len(self.fabric.links))
            else:
                self._own_bytes[key] = self.pattern(call, algorithm).link_bytes
        return self._own_bytes[key]

    def _one_of_many(self, call: PlacedMessage) -> bool:
        """Whether a stage makes the call that other stages make for themselves."""
        return call.stage >= 0 and call.target < 0 and self.seats.policy.pp > 1

    def alone(self, call: PlacedMessage, algorithm: str) -> Duration:
        """For one byte, with no other pipeline stage sending the same at the same time."""
        key = (call.stage, *self._key(call, algorithm))
        if key not in self._alone:
            self._alone[key] = self._stage_alone(call, algorithm)
        return self._alone[key]

    def _stage_alone(self, call: PlacedMessage, algorithm: str) -> Duration:
        whole, mine = self.pattern(call, algorithm), self.own_bytes(call, algorithm)
        capacity = self.fabric.links.capacity * self.reached(algorithm)
        busiest = float(busy_seconds(mine, capacity).max(initial=0.0))
        if call.stage < 0 or self.seats.policy.pp == 1 or busiest >= whole.duration.least * (1.0 - 1e-9):
            return whole.duration
        if call.target >= 0:
            return duration_of(whole.messages.flows(self.fabric), capacity)
        lasts = [(duration_of(each.of_stage(self.seats.stage, call.stage).flows(self.fabric), capacity), often)
                 for each, often in self.messages(call, algorithm)[1].each]  # fmt: skip
        return Duration(sum(d.seconds * n for d, n in lasts), sum(d.least * n for d, n in lasts))

    def _pattern(self, call: PlacedMessage, algorithm: str) -> Pattern:
        messages, timed = self.messages(call, algorithm)
        whole, pace = self._pace(call, algorithm, timed)
        # what is sent and what sets the pace are the same but for one pair of stages of all that send at once
        sent = messages.flows(self.fabric).link_bytes(len(pace)) if call.target >= 0 else pace
        slowest = busy_seconds(pace, self.fabric.links.capacity * self.reached(algorithm))
        link = int(np.argmax(slowest)) if slowest.any() else -1
        return Pattern(messages, whole, sent, pace, link, _largest(messages))

    def _pace(self, call: PlacedMessage, algorithm: str, timed: Phases) -> tuple[Duration, Floats]:
        """How long the phases take, and their bytes on every link. Sends of all stages in one direction run together,
        so they are solved once and not for every pair of stages."""
        direction = (call.target - call.stage,) if call.target >= 0 else ()
        key = (algorithm, call.op, *direction, call.ranks, self.members(call).tobytes())
        if key not in self.paces:
            links = len(self.fabric.links)
            capacity = self.fabric.links.capacity * self.reached(algorithm)
            lasts, pace = [], np.zeros(links)
            for each, often in timed.each:
                flows = each.flows(self.fabric)
                lasts.append((duration_of(flows, capacity), often))
                pace += often * flows.link_bytes(links)
            whole = Duration(sum(d.seconds * n for d, n in lasts), sum(d.least * n for d, n in lasts))
            self.paces[key] = whole, pace
        return self.paces[key]

    def messages(self, call: PlacedMessage, algorithm: str) -> tuple[Messages, Phases]:
        """(all that is sent, what sets its time)."""
        members = self.members(call)
        if call.target >= 0:
            # transfers of all stages in one direction run at the same time
            step = call.target - call.stage
            pairs = [(s, s + step) for s in range(members.shape[1]) if 0 <= s + step < members.shape[1]]
            beside = together(passed_on(members[:, a], members[:, b]) for a, b in pairs)
            return passed_on(members[:, call.stage], members[:, call.target]), Phases(((beside, 1),))
        if call.op == "send":
            # keys and values of ring attention: every rank to the next, the last to the first
            messages = passed_on(members, np.roll(members, -1, axis=1))
            return messages, Phases(((messages, 1),))
        phases = phases_of(algorithm, call.op, members, self.fabric, int(self.network.links.cards_per_group))
        return phases.all, phases

    def reached(self, algorithm: str) -> Floats:
        """Part of each link's bandwidth that long messages of this algorithm reach."""
        network, levels = self.network, self.network.cluster.levels
        style = collective(algorithm).style
        each = [
            network.links.of(network.cluster, level).style(style).rate[-1] * network.efficiency[i]
            for i, level in enumerate(levels)
        ]
        return np.asarray(np.array(each)[np.minimum(self.fabric.links.level, len(levels) - 1)])

    def quote(self, call: PlacedMessage, name: str) -> Quote:
        call = self._placed(call)
        key = (name, call.op, call.bytes * call.skew, call.ranks, call.stride, call.lane == "tp")
        if key not in self.quotes:
            self.quotes[key] = self._quote(call, name)
        return self.quotes[key]

    def _placed(self, call: PlacedMessage) -> PlacedMessage:
        """What two stages do is said over as many ranks as lie between two blocks of the level that they cross."""
        if call.target < 0 and call.group not in STAGE_PAIRS:
            return call
        pp = self.seats.policy.pp
        ends = (call.stage, call.target) if call.target >= 0 else paired_stages(call.group, call.stage, pp)
        if ends not in self._distances:
            members = self.seats.groups("pp")
            blocks = (1, *self.network.cluster.blocks[:-1])
            apart = [(members[:, ends[0]] // b != members[:, ends[1]] // b).any() for b in blocks]
            self._distances[ends] = blocks[int(np.flatnonzero(apart).max(initial=0))]
        return replace(call, stride=self._distances[ends])

    def _quote(self, call: PlacedMessage, name: str) -> Quote:
        network = self.network
        try:
            law = network.law(call.op, call.ranks, call.stride, algorithm=name)
        except ValueError as error:
            where = f"{call.op} over {call.ranks} ranks every {call.stride} of {network.cluster.name}"
            raise ValueError(f"algorithm: {name} cannot run {where}: it needs {_needs(name)}; name another") from error
        line = int(law.line(call.bytes * call.skew))
        slope = float(law.slope[line, law.group])
        shape = level_members(network.cluster, call.ranks, call.stride)
        rate = network.links.of(network.cluster, network.cluster.levels[0]).copy_bytes_per_s
        return Quote(
            latency_s=float(law.latency[line, law.group]) + self._at_boundary(call),
            seconds_per_byte=slope,
            slower=slope / float(law.slope[:, law.group].min()) if slope else 1.0,
            own_seconds_per_byte=float(collective(name).load(call.op, shape).own) / rate if rate else 0.0,
        )

    def _at_boundary(self, call: PlacedMessage) -> float:
        if call.lane != "tp" or call.ranks * call.stride <= self.network.cluster.node_size:
            return 0.0
        return (2.0 if call.op == "all_reduce" else 1.0) * (call.ranks - 1.0) * self.network.boundary_message_s

    def priced(self, call: PlacedMessage, algorithm: str | None = None) -> PricedCall:
        name = algorithm or self.algorithm(call)
        quote, pattern = self.quote(call, name), self.pattern(call, name)
        each = quote.slower * (pattern.seconds_per_byte + quote.own_seconds_per_byte)
        size = call.bytes * call.skew
        closed = quote.latency_s + size * quote.seconds_per_byte
        share = 1.0 / self.seats.policy.pp if call.stage >= 0 else 1.0
        return PricedCall(call, name, quote.latency_s + size * each, quote.latency_s, closed, pattern.link, share)


def members_of(seats: Seats, call: PlacedMessage) -> Ints:
    if call.group in STAGE_PAIRS:
        stages, pp = seats.groups("pp"), seats.policy.pp
        pairs = {paired_stages(call.group, stage, pp) for stage in range((pp + 1) // 2)}
        return np.concatenate([stages[:, list(pair)] for pair in sorted(pairs)])
    whole = seats.groups(call.group)
    if call.part == "shard":
        whole = whole.reshape(-1, call.ranks)
    elif call.part == "replicas":
        groups, ranks = whole.shape
        parts = whole.reshape(groups, call.ranks, ranks // call.ranks)
        whole = np.swapaxes(parts, 1, 2).reshape(-1, call.ranks)
    return whole if call.group == "pp" else seats.ringed(whole)


def _largest(messages: Messages) -> float:
    added = [each for _, each in messages.added]
    return max([float(messages.bytes.max(initial=0.0)), float(messages.into_bytes.max(initial=0.0)), *added])


def _needs(name: str) -> str:
    found = collective(name)
    switches = {"node": "a node whose switch adds", "network": "switches above the nodes that add (SHARP)",
                "all": "switches that add at every level"}  # fmt: skip
    asked = [switches.get(found.reduces_at, ""), "a group over several nodes" if found.spans_nodes else ""]
    return " and ".join(each for each in asked if each) or "another group"
