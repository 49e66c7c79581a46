"""What plain connections show: incast, hash collisions, marks."""

from dataclasses import dataclass, fields
from statistics import mean, median

from msgspec.structs import replace

from shardwise.fabric.packets import COMPILED
from shardwise.fabric.solver import Flows, finish_times
from shardwise_lab.build import standing
from shardwise_lab.demos._contract import CARD, Demo, Played, Setting
from shardwise_lab.emulated import Emulated, emulated, emulated_of, named_cluster
from shardwise_lab.facts import LabComparison
from shardwise_lab.knobs import Knobs
from shardwise_lab.marking import marking, require_marks
from shardwise_lab.measured import watching
from shardwise_lab.packets import played
from shardwise_lab.sends import sends_of
from shardwise_lab.traffic import Transfer, transferred
from shardwise_lab.wire import pairs_of, wire_flows

SHORT, LONG = 128 << 10, 768 << 10
"""bytes of each sender into one port"""
DRAWS = 24
"""connections are made anew so often: other ports, other hashes"""
TURNS = 7
"""of an incast: who is hit by a full queue is chance"""
PACKET_SEEDS = 10
HASH_SEEDS = 48 if COMPILED else 12
PAIRS = tuple((gpu, gpu + 4) for gpu in range(4))
PAIR_BYTES = 256 << 10
WAYS = (1, 4, 16)
TARGET = "leaf 0 > node 0 gpu 0"


def _link(fabric: Emulated, name: str) -> int:
    return next(link for link in range(len(fabric.tree.links)) if fabric.tree.links.name_of(link) == name)


@dataclass(frozen=True)
class _Turn:
    """What one turn of an incast came to, measured or simulated."""

    seconds: float
    queue_bytes: float
    drops: float
    timeouts: float
    marks: float
    resent: float


def _into_one(
    setting: Setting, on: str, knobs: Knobs, size: int, which: str
) -> tuple[_Turn, _Turn, list[LabComparison]]:
    """All others send to the first GPU, several times: medians of what was measured, and of seeds of packets."""
    fabric = emulated_of(on, knobs)
    setting.said(f"{fabric.gpus - 1} senders into one port, {knobs.buffer_bytes // 1000} kB of buffer")
    port, transfers = _link(fabric, TARGET), [Transfer(gpu, 0, size) for gpu in range(1, fabric.gpus)]
    turns = []
    with standing(fabric) as built, marking(built):
        for _ in range(TURNS):
            with watching(built, (port,)) as watch:
                ends = transferred(built, transfers, setting.limit_s, realtime=setting.realtime)
            found = watch.facts()
            deepest = next((p.queue_bytes or 0 for p in found.ports if p.link == TARGET), 0)
            turns.append(_Turn(max(ends), deepest, sum(found.drops.values()), found.timeouts, found.marks_received,
                               found.retransmits))  # fmt: skip
    setting.runs.append(found)
    says = []
    for seed in range(PACKET_SEEDS):
        last, out = played(fabric, transfers, seed)
        says.append(_Turn(max(last), float(out.deepest_bytes[port]), float(out.drops.sum()), float(out.timeouts.sum()),
                          float(out.marks.sum()), float(out.resent.sum())))  # fmt: skip
    measured, predicted = _median(turns), _median(says)
    told = [
        LabComparison(what=f"{which}: until the last has sent", measured=measured.seconds, predicted=predicted.seconds,
                   unit="s"),
        LabComparison(what=f"{which}: longest queue", measured=measured.queue_bytes, predicted=predicted.queue_bytes,
                   unit="bytes"),
    ]  # fmt: skip
    return measured, predicted, told


def _median(turns: list[_Turn]) -> _Turn:
    return _Turn(*(median(getattr(turn, field.name) for turn in turns) for field in fields(_Turn)))


def _incast(setting: Setting) -> Played:
    told: list[LabComparison] = []
    for size in (1_000_000, 24_000):
        knobs = Knobs(card_bytes_per_s=CARD, buffer_bytes=size, window_bytes=None)
        which = f"{size // 1000} kB buffer"
        found, says, both = _into_one(setting, "star8", knobs, SHORT, which)
        told += [
            *both,
            LabComparison(what=f"{which}: packets dropped", measured=found.drops, predicted=says.drops, unit="packets"),
            LabComparison(what=f"{which}: senders' time-outs", measured=found.timeouts, predicted=says.timeouts,
                       unit="times"),
        ]  # fmt: skip
    return tuple(told)


def _ecn(setting: Setting) -> Played:
    require_marks()
    told: list[LabComparison] = []
    for which, mark in (("without marks", None), ("marks from 30 kB on", 30_000)):
        knobs = Knobs(card_bytes_per_s=CARD, buffer_bytes=256_000, window_bytes=None, ecn_bytes=mark)
        found, says, both = _into_one(setting, "star4", knobs, LONG, which)
        told += [
            *both,
            LabComparison(what=f"{which}: marked packets received", measured=found.marks, predicted=says.marks,
                       unit="packets"),
            LabComparison(what=f"{which}: retransmitted", measured=found.resent, predicted=says.resent, unit="packets"),
        ]  # fmt: skip
    return tuple(told)


def _ecmp(setting: Setting) -> Played:
    fabric = emulated_of("leaf-spine", Knobs(card_bytes_per_s=CARD))
    ideal = _ecmp_seconds(fabric, 1)
    told = []
    with standing(fabric) as built:
        for ways in WAYS:
            setting.said(f"four pairs over four spines, {ways} connections each")
            with watching(built, ()) as watch:
                pairs = [Transfer(a, b, PAIR_BYTES, ways) for a, b in PAIRS]
                times = [
                    max(transferred(built, pairs, setting.limit_s, realtime=setting.realtime)) for _ in range(DRAWS)
                ]
            setting.runs.append(watch.facts())
            told.append(LabComparison(
                what=f"{ways} connection{'s' * (ways > 1)} a pair: part of line rate the slowest pair gets",
                measured=mean(ideal / seconds for seconds in times), predicted=queued(ways, ideal), unit="share",
            ))  # fmt: skip
    return tuple(told)


def _ecmp_seconds(fabric: Emulated, pairs: int) -> float:
    """So many pairs at the rates they share; one: alone at line rate."""
    return float(finish_times(_pair_flows(fabric, pairs), fabric.tree.links.capacity).max())


def _pair_flows(fabric: Emulated, pairs: int) -> Flows:
    sends = sends_of(((a, b, float(PAIR_BYTES), 1.0) for a, b in PAIRS[:pairs]), "plain")
    return wire_flows(fabric.tree, pairs_of(sends))[0]


def queued(ways: int, ideal: float, seeds: int = HASH_SEEDS) -> float:
    """The same with packets simulated; `ideal`: seconds of a pair alone at line rate."""
    cluster, own = named_cluster("leaf-spine")
    found = []
    for seed in range(seeds):
        fabric = emulated(cluster, Knobs(card_bytes_per_s=CARD), replace(own, connections=ways, seed=seed))
        ends, _ = played(fabric, [Transfer(a, b, PAIR_BYTES, ways) for a, b in PAIRS], seed)
        found.append(ideal / max(ends))
    return mean(found)


INCAST = Demo("incast", (
    "Seven senders answer one receiver at the same moment: a parameter server, a checkpoint, an expert's GPU.",
    "With buffer for all of it the last byte arrives when the port has carried everything: queueing, no loss.",
    "With too little, tails of short messages are dropped and wait 200 ms for a time-out: p99 grows, the mean hardly.",
), _incast)  # fmt: skip
ECMP = Demo("ecmp", (
    "Four pairs cross from one leaf to another over four equal spines; a hash of addresses and ports picks the spine.",
    "Few, large connections collide: with one a pair the slowest pair gets about half of line rate, spines stay idle.",
    "More connections a pair (queue pairs, in RDMA) even it out; only spraying packets does so fully.",
), _ecmp)  # fmt: skip
ECN = Demo("ecn", (
    "Three senders into one port, with a queue that marks packets beyond 30 kB; the senders slow down on marks.",
    "The queue stays short and nothing is lost or sent twice; the time is the same, as the port is busy throughout.",
    "Set the mark at about one round trip of line rate: lower costs throughput, higher only buys queueing.",
), _ecn)  # fmt: skip
