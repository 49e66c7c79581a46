"""What the planner's flow model says of a case on an emulated fabric: seconds, bytes over every link.

Each message is a flow on the links of its way, as large as it is on the wire (`wire`), with what comes back for it. A
token bucket that is full lets its burst through at once. Nothing here is fitted; the one number that is measured is
`message_s`, the time of a message of a kilobyte.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.duration import duration_of
from shardwise.fabric.solver import Flows, finish_times
from shardwise_lab.cases import LabCase
from shardwise_lab.emulated import Emulated
from shardwise_lab.knobs import USUAL_WINDOW
from shardwise_lab.sends import WireSends
from shardwise_lab.wire import pairs_of, seated, wire_flows

USUAL_MESSAGE_S = 0.5e-3
"""until it is measured: of a kilobyte between two processes that gloo wakes"""


@dataclass(frozen=True)
class Predicted:
    seconds: float
    link_bytes: Floats
    rank_s: Floats
    """of each rank: until it has sent and received all"""


def predicted(fabric: Emulated, case: LabCase, order: Sequence[int], message_s: float = USUAL_MESSAGE_S) -> Predicted:
    """`order`: the GPU of each rank."""
    steps = case.steps(len(order))
    found = laid(fabric, case.sends(len(order)), order, steps * message_s)
    if not case.ring:
        return found
    return replace(found, rank_s=_around(_hops(fabric, case, order), steps) * found.seconds)


def _hops(fabric: Emulated, case: LabCase, order: Sequence[int]) -> Floats:
    """Of the hop to each rank of a ring: its time, as a share of the slowest. Data alone: acknowledgements need too
    little of a slow card to wait for it."""
    pairs = seated(pairs_of(case.sends(len(order)), fabric.knobs.window_bytes or USUAL_WINDOW), np.asarray(order))
    ways = fabric.tree.routes(pairs.source, pairs.target)
    flows = Flows(ways.links, pairs.ahead[ways.message] * ways.share, ways.weight)
    by_gpu = np.zeros(fabric.gpus)
    np.maximum.at(by_gpu, pairs.target[ways.message], finish_times(flows, fabric.tree.links.capacity))
    return np.asarray(by_gpu[np.asarray(order)] / by_gpu.max())


def laid(fabric: Emulated, sends: WireSends, order: Sequence[int], waits_s: float = 0.0) -> Predicted:
    """Messages that start together; `waits_s`: beyond their bytes."""
    pairs, capacity = pairs_of(sends, fabric.knobs.window_bytes or USUAL_WINDOW), fabric.tree.links.capacity
    flows, pair = wire_flows(fabric.tree, seated(pairs, np.asarray(order, dtype=np.int64)))
    on_links = flows.link_bytes(len(capacity))
    saved = let_through(fabric, on_links)
    seconds = max(duration_of(flows, capacity).seconds - saved, 0.0) + waits_s
    ends = np.maximum(finish_times(flows, capacity) - saved, 0.0) + waits_s
    rank_s = np.zeros(len(order))
    for ranks in (pairs.source, pairs.target):
        np.maximum.at(rank_s, ranks[pair], ends)
    return Predicted(seconds, on_links, rank_s)


def _around(hops: Floats, steps: int) -> Floats:
    """When each rank of a ring is done; `hops`: what the hop to each takes alone. A slow hop holds up everyone, but a
    rank that is so many hops away from it is done as many rounds earlier: behind it, because its last messages crossed
    the slow hop that much earlier; before it, because its last ones wait that much less for room."""
    ranks = np.arange(len(hops))
    apart = (ranks[:, None] - ranks[None, :]) % len(ranks)
    away = np.minimum(apart, len(ranks) - apart)
    return np.asarray((hops[None, :] * (1.0 - away / steps)).max(axis=1))


def let_through(fabric: Emulated, on_links: Floats) -> float:
    """Seconds that the full bucket of the busiest link saves."""
    capacity = fabric.tree.links.capacity
    busiest = int(np.argmax(on_links / capacity))
    return float(min(fabric.knobs.burst_bytes, on_links[busiest]) / capacity[busiest])


def in_turn(
    fabric: Emulated, cases: Sequence[LabCase], order: Sequence[int], message_s: float = USUAL_MESSAGE_S
) -> Predicted:
    """Collectives one after another, without a pause in which buckets would fill again."""
    known = {case: predicted(fabric, case, order, message_s) for case in set(cases)}
    again = [let_through(fabric, known[case].link_bytes) for case in cases[1:]]
    seconds = sum(known[case].seconds for case in cases) + sum(again)
    return Predicted(seconds, sum((known[case].link_bytes for case in cases), np.zeros(len(fabric.tree.links))),
                     np.full(len(order), seconds) if len(cases) > 1 else known[cases[0]].rank_s)  # fmt: skip


def blind(
    fabric: Emulated, cases: Sequence[LabCase], order: Sequence[int], message_s: float = USUAL_MESSAGE_S
) -> float:
    """What a model says that knows the speed of a card and nothing of switches."""
    ranks = len(order)
    return sum(blind_sends(fabric, case.sends(ranks), case.steps(ranks) * message_s) for case in cases)


def blind_sends(fabric: Emulated, sends: WireSends, waits_s: float) -> float:
    """The busiest sender or receiver at full rate."""
    pairs = pairs_of(sends, fabric.knobs.window_bytes or USUAL_WINDOW)
    busiest = max(
        float(np.bincount(ranks, weights=pairs.ahead).max(initial=0.0)) for ranks in (pairs.source, pairs.target)
    )
    return busiest / card_rate(fabric) + waits_s


def card_rate(fabric: Emulated) -> float:
    """bytes/s of a card, as most have it."""
    links = fabric.tree.links
    return float(np.median(links.capacity[links.tier == min(1, len(links.tiers) - 1)]))
