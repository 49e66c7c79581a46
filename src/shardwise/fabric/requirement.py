"""What a plan asks of the fabric: bandwidth by tier, oversubscription, latency, jitter, loss, buffers, what to test.

Every tolerance counts all added time as exposed, so the fabric may be somewhat worse than stated where collectives hide
under compute: the stated figure is the safe one.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct

from shardwise.arrays import Floats
from shardwise.cost.network import BUS
from shardwise.cost.placement import level_members
from shardwise.fabric.benchmark import Benchmark, BusRate
from shardwise.fabric.links import busy_seconds
from shardwise.fabric.packets.ask import TIMEOUT_S
from shardwise.fabric.phases import Messages
from shardwise.fabric.price import PricedCall
from shardwise.fabric.step import StepLoad
from shardwise.fabric.telemetry import Watch, watches_of
from shardwise.plugins.collectives import collective

GROWTHS = (0.01, 0.05, 0.10)
THINNEST = 64.0
PACKET = 4096.0
NAK_S = 25e-6
"""a receiver asks again and the sender goes back: about two round trips of a loaded fabric"""
ROUND_TRIP_S = 10e-6
"""card to card and back over two switch tiers with empty queues, host side included"""
SIZES = tuple(2.0**power for power in range(20, 34, 2))
BAND = {"all_to_all": 0.15}
RING_BAND = 0.05
SMALL_BAND = 0.25
"""errors of fluid rates against real transfers at 1 MB and more, and below 256 KB"""


class TierNeed(Struct, frozen=True, kw_only=True):
    tier: str
    link_bytes_per_s: float
    """what a link of it has"""
    mean_bytes_per_s: float
    """what its busiest link carries, averaged over the step"""
    gpu_bytes_per_s: float
    """sent into the tier by an average GPU while collectives over it run one after another"""
    oversubscription: dict[str, float]
    """step growth -> how much thinner the tier may be; THINNEST stands for any"""
    needed_bytes_per_s: float
    """of a link, so that the step grows by at most 1 %"""


class Buffer(Struct, frozen=True, kw_only=True):
    op: str
    senders: int
    """that send to one card at the same time"""
    bytes: float
    """in front of that card before the senders hear of it"""


class Requirement(Struct, frozen=True, kw_only=True):
    tiers: tuple[TierNeed, ...]
    rail_bytes_per_s: float
    """mean over the step that all cards of one rail send"""
    latency_budget_s: dict[str, float]
    """step growth -> latency that every dependent message may gain"""
    jitter_budget_s: dict[str, float]
    """step growth -> mean delay of one rank in one collective, where all wait for the slowest"""
    packets: float
    """over the network in one step, all GPUs"""
    loss_rate_nak: float
    """packets lost that make the step 1 % longer when each is asked for again"""
    loss_rate_timeout: float
    """the same when each waits for a timeout"""
    buffers: tuple[Buffer, ...]
    ecn_mark_bytes: float
    """queue at a card's port from which to mark: one round trip at line rate, below which marks only cost throughput; 0
    where nothing is marked (InfiniBand)"""
    benchmark: tuple[Benchmark, ...]
    watch: tuple[Watch, ...]


@dataclass(frozen=True)
class _Crossing:
    """What messages send from node to node, for one byte of the buffer."""

    bytes: float
    rails: Floats
    """of it, by the rail of the card that sends"""
    senders: int
    """to one card, at most"""
    largest: float
    """message"""


@dataclass(frozen=True)
class _Step:
    load: StepLoad
    seconds: float
    _crossings: dict[int, _Crossing] = field(default_factory=dict)
    """by the messages, which many calls share"""

    @cached_property
    def outside(self) -> list[PricedCall]:
        """Calls that use the network."""
        prices, uses = self.load.prices, dict[int, bool]()
        network = prices.fabric.links.level > 0
        found = []
        for p in self.load.priced:
            pattern = prices.pattern(p.call, p.algorithm)
            if id(pattern) not in uses:
                uses[id(pattern)] = bool(pattern.link_bytes[network].any())
            if uses[id(pattern)]:
                found.append(p)
        return found

    def own_crossing(self, p: PricedCall) -> _Crossing:
        """Of the GPUs of the call's own pipeline stage."""
        return self._crossing(self.load.prices.own_messages(p.call, p.algorithm))

    def whole_crossing(self, p: PricedCall) -> _Crossing:
        """Of all GPUs that make the call at the same time."""
        return self._crossing(self.load.prices.pattern(p.call, p.algorithm).messages)

    def _crossing(self, messages: Messages) -> _Crossing:
        if id(messages) not in self._crossings:
            fabric = self.load.prices.fabric
            source, target, each = messages.pairs()
            out = fabric.node[source] != fabric.node[target]
            source, target, each = source[out], target[out], each[out]
            count, rails = len(fabric.node), int(fabric.rail.max()) + 1
            receivers = np.unique(target * count + source) // count
            self._crossings[id(messages)] = _Crossing(
                bytes=float(each.sum()),
                rails=np.bincount(fabric.rail[source], weights=each, minlength=rails).astype(np.float64),
                senders=int(np.bincount(receivers).max(initial=0)),
                largest=float(each.max(initial=0.0)),
            )
        return self._crossings[id(messages)]

    @cached_property
    def waits(self) -> Floats:
        """calls x (tiers + 2): seconds the busiest link of each tier is busy with one, what it takes beyond latency
        now, and how often an average GPU makes it"""
        prices, links = self.load.prices, self.load.prices.fabric.links
        known: dict[int, Floats] = {}
        rows = []
        for p in self.load.priced:
            pattern = prices.pattern(p.call, p.algorithm)
            if id(pattern) not in known:
                busy = busy_seconds(pattern.paced_bytes, links.capacity * prices.reached(p.algorithm))
                tiers = np.zeros(len(links.tiers))
                np.maximum.at(tiers, links.tier, busy)
                known[id(pattern)] = tiers
            size = p.call.bytes * p.call.skew
            rows.append([*(known[id(pattern)] * size), p.seconds - p.latency_s, p.share * p.call.count])
        return np.array(rows).reshape(len(rows), len(links.tiers) + 2)

    def grown(self, tier: int, factor: float) -> float:
        """Seconds the step gains where every link of a tier carries so many times less: each call waits for the tier
        as soon as that takes longer than what it waits for now."""
        busy, now, often = self.waits[:, tier], self.waits[:, -2], self.waits[:, -1]
        return float((often * np.maximum(busy * factor - now, 0.0)).sum())


def requirement_of(load: StepLoad, step_s: float) -> Requirement:
    step = _Step(load, step_s)
    sent = sum(step.own_crossing(p).bytes * p.call.bytes * p.call.count for p in step.outside)
    messages, waits = _messages(step), _waits(step)
    packets = sent / PACKET
    return Requirement(
        tiers=_tiers(step),
        rail_bytes_per_s=_rail(step),
        latency_budget_s={_name(g): g * step_s / messages if messages else math.inf for g in GROWTHS},
        jitter_budget_s={_name(g): g * step_s / waits if waits else math.inf for g in GROWTHS},
        packets=packets,
        loss_rate_nak=min(0.01 * step_s / (packets * NAK_S), 1.0) if packets else 1.0,
        loss_rate_timeout=min(0.01 * step_s / (packets * TIMEOUT_S), 1.0) if packets else 1.0,
        buffers=_buffers(step),
        ecn_mark_bytes=card_rate(load) * ROUND_TRIP_S
        if packets and not load.prices.network.cluster.has_credits
        else 0.0,
        benchmark=tuple(_benchmark(load, p) for p in _worth_testing(step)),
        watch=watches_of({p.call.op for p in step.outside}, {p.call.axis for p in step.outside}, load),
    )


def _name(growth: float) -> str:
    return f"{growth:.0%}"


def _rail(step: _Step) -> float:
    """Of the fullest rail, by what its cards send."""
    total = np.zeros(int(step.load.prices.fabric.rail.max()) + 1)
    for p in step.load.priced:
        total += step.own_crossing(p).rails * p.call.bytes * p.call.count
    return float(total.max() / step.seconds)


def _tiers(step: _Step) -> tuple[TierNeed, ...]:
    load, rows = step.load, []
    links = load.prices.fabric.links
    for tier, name in enumerate(links.tiers):
        busiest = load.busiest(tier)
        if busiest < 0:
            continue
        allowed = {_name(g): _thinnest(step, tier, g * step.seconds) for g in GROWTHS}
        capacity = float(links.capacity[busiest])
        running = sum(p.step_s for p in step.outside) if links.level[busiest] else sum(p.step_s for p in load.priced)
        mine = links.tier == tier
        rows.append(TierNeed(
            tier=name, link_bytes_per_s=capacity, mean_bytes_per_s=float(load.total[busiest] / step.seconds),
            gpu_bytes_per_s=float(load.total[mine].sum() / 2 / load.prices.seats.policy.gpus / running),
            oversubscription=allowed, needed_bytes_per_s=capacity / allowed[_name(GROWTHS[0])],
        ))  # fmt: skip
    return tuple(rows)


def _thinnest(step: _Step, tier: int, gain_s: float) -> float:
    """The largest factor, by bisection, with which the step gains no more than so many seconds."""
    low, high = 1.0, THINNEST
    if step.grown(tier, high) <= gain_s:
        return THINNEST
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if step.grown(tier, middle) <= gain_s else (low, middle)
    return low


def _messages(step: _Step) -> float:
    """Dependent messages over the network in a step."""
    total, cluster = 0.0, step.load.prices.network.cluster
    known: dict[tuple[object, ...], float] = {}
    for p in step.outside:
        key = (p.algorithm, p.call.op, p.call.ranks, p.call.stride)
        if key not in known:
            shape = level_members(cluster, p.call.ranks, p.call.stride)
            known[key] = float(collective(p.algorithm).load(p.call.op, shape).steps[1:].sum())
        total += p.share * p.call.count * known[key]
    return total


def _waits(step: _Step) -> float:
    """Collectives of a step, inside nodes too: a late rank is waited for on any link. Each counts as often as the
    slowest of its ranks is later than the mean of them: the harmonic number of the ranks, for delays with an
    exponential tail."""
    return sum(p.share * p.call.count * (math.log(p.call.ranks) + 0.5772) for p in step.load.priced)


def card_rate(load: StepLoad) -> float:
    """Of the slowest network link: cards are the thinnest."""
    links = load.prices.fabric.links
    outside = links.capacity[links.level > 0]
    return float(outside.min()) if len(outside) else 0.0


def _buffers(step: _Step) -> tuple[Buffer, ...]:
    """What meets in front of one card in the round trip before its senders are told to slow down."""
    found: dict[str, Buffer] = {}
    rate = card_rate(step.load)
    for p in step.outside:
        crossing = step.whole_crossing(p)
        senders, message = crossing.senders, crossing.largest * p.call.bytes
        queue = min(senders * message, max(senders - 1, 1) * rate * ROUND_TRIP_S)
        before = found.get(p.call.op)
        if before is None or queue > before.bytes:
            found[p.call.op] = Buffer(op=p.call.op, senders=senders, bytes=queue)
    return tuple(sorted(found.values(), key=lambda each: -each.bytes))


def _worth_testing(step: _Step) -> list[PricedCall]:
    """The network's most expensive calls, one for each operation and group."""
    chosen: dict[tuple[str, int], PricedCall] = {}
    for p in sorted(step.outside, key=lambda p: -p.step_s):
        chosen.setdefault((p.call.op, p.call.ranks), p)
    return list(chosen.values())[:3]


def _benchmark(load: StepLoad, p: PricedCall) -> Benchmark:
    call, rows = p.call, []
    pattern = load.prices.pattern(call, p.algorithm)
    factor = BUS.get(call.op, 1.0) * ((call.ranks - 1) / call.ranks if call.op in BUS else 1.0)
    latency = load.prices.network.law(call.op, call.ranks, call.stride)
    for size in SIZES:
        closed = float(latency.seconds(size))
        seconds = max(closed, pattern.seconds_per_byte * size)
        band = BAND.get(call.op, RING_BAND) if size >= 2**20 else SMALL_BAND
        rate = factor * size / seconds
        rows.append(BusRate(bytes=size, bus_bytes_per_s=rate, low_bytes_per_s=rate * (1 - band),
                            high_bytes_per_s=rate * (1 + band)))  # fmt: skip
    tool = {"all_to_all": "alltoall", "send": "sendrecv"}.get(call.op, call.op) + "_perf"
    return Benchmark(axis=call.axis, op=call.op, ranks=call.ranks, stride=call.stride, message_bytes=call.bytes,
                     command=f"{tool} -b 1M -e 4G -f 4 -g 1 over {call.ranks} ranks, every {call.stride}.",
                     expected=tuple(rows))  # fmt: skip
