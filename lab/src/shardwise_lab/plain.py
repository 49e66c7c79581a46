"""Cases over several plain connections for each pair, without gloo, which has one: as NCCL's queue pairs spread a pair
over equal ways."""

import time
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from shardwise_lab.build import Built
from shardwise_lab.cases import LabCase
from shardwise_lab.emulated import Emulated, emulated
from shardwise_lab.facts import Measured
from shardwise_lab.measured import watching
from shardwise_lab.order import LabWorld, Span
from shardwise_lab.predict import Predicted, laid
from shardwise_lab.sends import table_sends
from shardwise_lab.told import told_load, told_row
from shardwise_lab.traffic import Transfer, transferred

REST_S = 0.05
SEEDS = 32
"""of hashes, where one picks the way of a connection"""
MOST_WATCHED = 6


def check_plain(cases: Sequence[LabCase]) -> None:
    for case in cases:
        if case.ring:
            raise ValueError(
                f"connections: {case.op} is a ring of gloo's, with one connection for each pair; write --collective "
                "all_to_all, shift, gossip, hot_expert or incast"
            )


def plain_says(fabric: Emulated, case: LabCase, order: Sequence[int]) -> Predicted:
    """A mean over hashes where ways are hashed."""
    sends = table_sends(case.matrix(len(order)), "plain")
    wiring = fabric.tree.wiring
    if wiring.routing != "ecmp":
        return laid(fabric, sends, order)
    drawn = [laid(emulated(fabric.cluster, replace(fabric.knobs, oversubscription=None), replace(wiring, seed=seed)),
                  sends, order) for seed in range(SEEDS)]  # fmt: skip
    return Predicted(
        fmean(each.seconds for each in drawn), np.mean([each.link_bytes for each in drawn], axis=0),
        np.mean([each.rank_s for each in drawn], axis=0),
    )  # fmt: skip


def plain_on(built: Built, world: LabWorld, limit_s: float, *, realtime: bool) -> Measured:
    fabric, ways = built.fabric, built.fabric.knobs.connections
    says = [plain_says(fabric, case, world.order) for case in world.cases]
    busy = sum((each.link_bytes for each in says), np.zeros(len(fabric.tree.links))) / fabric.tree.links.capacity
    watched = tuple(int(link) for link in np.argsort(-busy, kind="stable")[:MOST_WATCHED] if busy[link] > 0)
    spans: list[list[Span]] = []
    until = time.monotonic() + limit_s
    with watching(built, watched) as watch:
        for case in world.cases:
            table = case.matrix(len(world.order))
            source, target = np.nonzero(table)
            pairs = [Transfer(world.order[a], world.order[b], int(table[a, b]), ways)
                     for a, b in zip(source.tolist(), target.tolist(), strict=True)]  # fmt: skip
            turns = []
            for turn in range(case.times):
                time.sleep(REST_S)
                took = transferred(built, pairs, max(until - time.monotonic(), 0.1), realtime=realtime)
                start = time.monotonic() - max(took)
                for rank in range(len(world.order)):
                    own = [t for t, a, b in zip(took, source, target, strict=True) if rank in (a, b)]
                    turns.append(Span(world=0, case=0, turn=turn, rank=rank, start_s=start,
                                      end_s=start + max(own, default=0.0)))  # fmt: skip
            spans.append(turns)
    assert watch.samples is not None
    rows = tuple(
        told_row(fabric, world.order, f"{case.op} x{ways}", (case,), each, found, watch.samples, 0.0)
        for case, each, found in zip(world.cases, says, spans, strict=True)
    )
    loads = tuple(told_load(fabric, row, each, found, watch.samples)
                  for row, each, found in zip(rows, says, spans, strict=True))  # fmt: skip
    return watch.facts(rows, loads)
