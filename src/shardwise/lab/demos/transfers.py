"""What plain connections show: incast, hash collisions, marks."""

from statistics import mean

import numpy as np
from msgspec.structs import replace

from shardwise.fabric.solver import finish_times
from shardwise.lab.build import standing
from shardwise.lab.demos._contract import CARD, Demo, Played, Setting
from shardwise.lab.emulated import Emulated, emulated, emulated_of, named_cluster
from shardwise.lab.facts import LabComparison, Measured
from shardwise.lab.knobs import Knobs
from shardwise.lab.marking import marking, require_marks
from shardwise.lab.measured import watching
from shardwise.lab.predict import wire_flows
from shardwise.lab.traffic import Transfer, transferred

SHORT, LONG = 128 << 10, 768 << 10
"""bytes of each sender into one port"""
DRAWS = 8
"""connections are made anew so often: other ports, other hashes"""
SEEDS = 200
PAIRS = tuple((gpu, gpu + 4) for gpu in range(4))
PAIR_BYTES = 256 << 10
WAYS = (1, 4, 16)
TARGET = "leaf 0 > node 0 gpu 0"


def _link(fabric: Emulated, name: str) -> int:
    return next(link for link in range(len(fabric.tree.links)) if fabric.tree.links.name_of(link) == name)


def _into_one(setting: Setting, on: str, knobs: Knobs, size: int) -> tuple[float, float, Measured]:
    """(measured, predicted) seconds until all others have sent to the first GPU, and what the ports saw."""
    fabric = emulated_of(on, knobs)
    matrix = np.zeros((fabric.gpus, fabric.gpus))
    matrix[1:, 0] = size
    flows = wire_flows(fabric.tree, matrix, range(fabric.gpus))
    says = float(finish_times(flows, fabric.tree.links.capacity).max())
    setting.said(f"{fabric.gpus - 1} senders into one port, {knobs.buffer_bytes // 1000} kB of buffer")
    with standing(fabric) as built, marking(built), watching(built, (_link(fabric, TARGET),)) as watch:
        ends = transferred(built, [Transfer(gpu, 0, size) for gpu in range(1, fabric.gpus)], setting.limit_s)
    found = watch.facts()
    setting.runs.append(found)
    return max(ends), says, found


def _deepest(found: Measured) -> float:
    return float(next((p.queue_bytes or 0 for p in found.ports if p.link == TARGET), 0))


def _incast(setting: Setting) -> Played:
    told: list[LabComparison] = []
    for size in (1_000_000, 24_000):
        knobs = Knobs(card_bytes_per_s=CARD, buffer_bytes=size, window_bytes=None)
        seconds, says, found = _into_one(setting, "star8", knobs, SHORT)
        which = f"{size // 1000} kB buffer"
        told += [
            LabComparison(what=f"{which}: until the last has sent", measured=seconds, predicted=says, unit="s"),
            LabComparison(what=f"{which}: longest queue", measured=_deepest(found), predicted=None, unit="bytes"),
            LabComparison(what=f"{which}: packets dropped", measured=sum(found.drops.values()), predicted=None,
                       unit="packets"),
            LabComparison(what=f"{which}: senders' time-outs", measured=found.timeouts, predicted=None, unit="times"),
        ]  # fmt: skip
    return tuple(told)


def _ecn(setting: Setting) -> Played:
    require_marks()
    told: list[LabComparison] = []
    for which, mark in (("without marks", None), ("marks from 30 kB on", 30_000)):
        knobs = Knobs(card_bytes_per_s=CARD, buffer_bytes=256_000, window_bytes=None, ecn_bytes=mark)
        seconds, says, found = _into_one(setting, "star4", knobs, LONG)
        told += [
            LabComparison(what=f"{which}: until the last has sent", measured=seconds, predicted=says, unit="s"),
            LabComparison(what=f"{which}: longest queue", measured=_deepest(found), predicted=None, unit="bytes"),
            LabComparison(what=f"{which}: marked packets received", measured=found.marks_received, predicted=None,
                       unit="packets"),
            LabComparison(what=f"{which}: retransmitted", measured=found.retransmits, predicted=None, unit="packets"),
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
                times = [
                    max(transferred(built, [Transfer(a, b, PAIR_BYTES, ways) for a, b in PAIRS], setting.limit_s))
                    for _ in range(DRAWS)
                ]
            setting.runs.append(watch.facts())
            told.append(LabComparison(
                what=f"{ways} connection{'s' * (ways > 1)} a pair: part of line rate the slowest pair gets",
                measured=mean(ideal / seconds for seconds in times), predicted=collided(ways), unit="share",
            ))  # fmt: skip
    return tuple(told)


def _ecmp_seconds(fabric: Emulated, pairs: int) -> float:
    """A pair alone at line rate."""
    matrix = np.zeros((8, 8))
    for a, b in PAIRS[:pairs]:
        matrix[a, b] = PAIR_BYTES
    return float(finish_times(wire_flows(fabric.tree, matrix, range(8)), fabric.tree.links.capacity).max())


def collided(ways: int, seeds: int = SEEDS) -> float:
    """The planner's hash instead of the kernel's: mean over its seeds of the slowest pair's part of line rate."""
    cluster, own = named_cluster("leaf-spine")
    usual, found = replace(own, connections=ways), []
    matrix = np.zeros((8, 8))
    for a, b in PAIRS:
        matrix[a, b] = PAIR_BYTES
    for seed in range(seeds):
        fabric = emulated(cluster, Knobs(card_bytes_per_s=CARD), replace(usual, seed=seed))
        flows = wire_flows(fabric.tree, matrix, range(8))
        alone = PAIR_BYTES * float(flows.weight.max() if flows.weight is not None else 1.0) / CARD
        found.append(alone / float(finish_times(flows, fabric.tree.links.capacity).max()))
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
