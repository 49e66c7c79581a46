"""What the planner's flow model says of a case on an emulated fabric: seconds, bytes over every link.

Each message is a flow on the links of its way. On the wire it is more: Ethernet, IP and TCP headers with every packet,
and an acknowledgement of every second packet on the way back. A token bucket that is full lets its burst through at
once. Nothing here is fitted; the one number that is measured is `message_s`, the time of a message of a kilobyte.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.fabric.duration import duration_of
from shardwise.fabric.links import Floats, RoutedFabric
from shardwise.fabric.solver import Flows, finish_times
from shardwise.lab.cases import LabCase
from shardwise.lab.emulated import Emulated
from shardwise.lab.knobs import HEADERS, MTU, PAYLOAD

WIRE = (MTU + 14) / PAYLOAD
"""bytes on the wire for each byte of data"""
ACKNOWLEDGED = HEADERS / (2 * PAYLOAD)
"""bytes back for each byte of data"""
USUAL_MESSAGE_S = 0.5e-3
"""until it is measured: of a kilobyte between two processes that gloo wakes"""


@dataclass(frozen=True)
class Predicted:
    seconds: float
    link_bytes: Floats
    rank_s: Floats
    """of each rank: until it has sent and received all"""


def wire_flows(fabric: RoutedFabric, matrix: Floats, order: Sequence[int]) -> Flows:
    """Bytes from rank to rank, as flows over links with what the wire adds. `order`: the GPU of each rank."""
    source, target = np.nonzero(matrix)
    gpus, size = np.asarray(order, dtype=np.int64), matrix[source, target]
    ahead, back = fabric.routes(gpus[source], gpus[target]), fabric.routes(gpus[target], gpus[source])
    weights = [
        factor * (np.ones(routes.links.shape) if routes.weight is None else routes.weight)
        for routes, factor in ((ahead, WIRE), (back, ACKNOWLEDGED))
    ]
    links = np.concatenate([ahead.links, back.links], axis=1)
    weight = np.where(links < len(fabric.links), np.concatenate(weights, axis=1), 0.0)
    return Flows(links, size[ahead.message] * ahead.share, weight)


def predicted(fabric: Emulated, case: LabCase, order: Sequence[int], message_s: float = USUAL_MESSAGE_S) -> Predicted:
    matrix = case.matrix(len(order))
    flows, capacity = wire_flows(fabric.tree, matrix, order), fabric.tree.links.capacity
    on_links = flows.link_bytes(len(capacity))
    saved = _let_through(fabric, on_links)
    seconds = max(duration_of(flows, capacity).seconds - saved, 0.0) + case.steps(len(order)) * message_s
    if case.ring:
        return Predicted(seconds, on_links, np.full(len(order), seconds))
    ends = np.maximum(finish_times(flows, capacity) - saved, 0.0) + message_s
    source, target = np.nonzero(matrix)
    rank_s, each = np.zeros(len(order)), np.repeat(np.arange(len(source)), len(ends) // max(len(source), 1))
    for ranks in (source, target):
        np.maximum.at(rank_s, ranks[each], ends)
    return Predicted(seconds, on_links, rank_s)


def _let_through(fabric: Emulated, on_links: Floats) -> float:
    """Seconds that the full bucket of the busiest link saves."""
    capacity = fabric.tree.links.capacity
    busiest = int(np.argmax(on_links / capacity))
    return float(min(fabric.knobs.burst_bytes, on_links[busiest]) / capacity[busiest])


def in_turn(
    fabric: Emulated, cases: Sequence[LabCase], order: Sequence[int], message_s: float = USUAL_MESSAGE_S
) -> Predicted:
    """Collectives one after another, without a pause in which buckets would fill again."""
    known = {case: predicted(fabric, case, order, message_s) for case in set(cases)}
    again = [_let_through(fabric, known[case].link_bytes) for case in cases[1:]]
    seconds = sum(known[case].seconds for case in cases) + sum(again)
    return Predicted(seconds, sum((known[case].link_bytes for case in cases), np.zeros(len(fabric.tree.links))),
                     np.full(len(order), seconds) if len(cases) > 1 else known[cases[0]].rank_s)  # fmt: skip


def blind(
    fabric: Emulated, cases: Sequence[LabCase], order: Sequence[int], message_s: float = USUAL_MESSAGE_S
) -> float:
    """What a model says that knows the speed of a card and nothing of switches: the busiest sender at full rate."""
    total = 0.0
    for case in cases:
        matrix = case.matrix(len(order)) * WIRE
        busiest = max(float(matrix.sum(axis=1).max()), float(matrix.sum(axis=0).max()))
        total += busiest / card_rate(fabric) + case.steps(len(order)) * message_s
    return total


def card_rate(fabric: Emulated) -> float:
    """bytes/s of a card, as most have it."""
    links = fabric.tree.links
    return float(np.median(links.capacity[links.tier == min(1, len(links.tiers) - 1)]))
