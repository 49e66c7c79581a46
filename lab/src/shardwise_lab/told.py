"""One case as a row and as load over time: what ranks and ports said beside what was predicted."""

from collections.abc import Sequence
from statistics import median

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.series import spread
from shardwise_lab.cases import LabCase
from shardwise_lab.emulated import Emulated
from shardwise_lab.facts import LabRow, PortBytes, PortLoad
from shardwise_lab.order import Span
from shardwise_lab.predict import Predicted, blind
from shardwise_lab.sampler import TICK_S, Samples

ENOUGH = 1_000_000
"""bytes over a link below which a share of them says nothing"""
MOST_BINS = 600
SPREAD, PRESSED = 0.05, 0.3
"""turns that differ by more than this while something waited for a core so long were held up by other work: a link has
the same speed in all of them"""
TOGETHER_S = 0.02
"""a turn in which a rank began later than this after the first, held up by other work, is left out"""


def turn_times(spans: Sequence[Span]) -> list[float]:
    """Of each turn: from when the last rank began to when the last was done."""
    return [end - start for start, end in _turns(spans)]


def _turns(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """(last start, last end) of each."""
    return [(max(s.start_s for s in each), max(s.end_s for s in each)) for each in _good(spans)]


def _good(spans: Sequence[Span]) -> list[list[Span]]:
    """Turns that all ranks began together, or all turns where none was."""
    by_turn = [[s for s in spans if s.turn == turn] for turn in sorted({span.turn for span in spans})]
    good = [each for each in by_turn if max(s.start_s for s in each) - min(s.start_s for s in each) <= TOGETHER_S]
    return good or by_turn


def told_row(
    fabric: Emulated, order: tuple[int, ...], name: str, cases: Sequence[LabCase], says: Predicted,
    spans: Sequence[Span], samples: Samples, message_s: float,
) -> LabRow:  # fmt: skip
    times, turns = turn_times(spans), _turns(spans)
    pressure = float(np.mean([samples.pressure(start, end) for start, end in turns]))
    held_up = pressure > PRESSED and max(times) > (1.0 + SPREAD) * min(times)
    # other work can only make it longer
    measured = min(times) if held_up else median(times)
    ports = _ports(fabric, spans, says.link_bytes, samples)
    return LabRow(
        fabric=fabric.cluster.name, order=order, op=name, bytes=sum(case.bytes for case in cases),
        measured_s=measured, turns_s=tuple(times), predicted_s=says.seconds,
        rank_s=tuple(median(s.end_s - s.start_s for s in spans if s.rank == rank) for rank in range(len(order))),
        predicted_rank_s=tuple(says.rank_s.tolist()), blind_s=blind(fabric, cases, order, message_s),
        error=says.seconds / measured - 1.0, ring=all(case.ring for case in cases), ports=ports,
        bytes_error=bytes_error(ports), pressure=pressure, disturbed=held_up,
    )  # fmt: skip


def bytes_error(ports: Sequence[PortBytes], turns: int = 1) -> float:
    """The most that a port with enough bytes in so many turns differs."""
    shares = [abs(p.measured_bytes / p.predicted_bytes - 1.0) for p in ports if turns * p.predicted_bytes > ENOUGH]
    return max(shares, default=0.0)


def _ports(fabric: Emulated, spans: Sequence[Span], says: Floats, samples: Samples) -> tuple[PortBytes, ...]:
    """The median turn's bytes, from when the first rank began: what it sends before the last has come counts too."""
    sent = np.median(
        np.stack([samples.between(min(s.start_s for s in turn), max(s.end_s for s in turn)) for turn in _good(spans)]),
        axis=0,
    )
    deep = samples.deepest(min(s.start_s for s in spans), max(s.end_s for s in spans))
    return port_rows_of(fabric, says, sent, deep)


def port_rows_of(fabric: Emulated, says: Floats, sent: Floats, deep: dict[int, int]) -> tuple[PortBytes, ...]:
    return tuple(
        PortBytes(link=fabric.tree.links.name_of(link), predicted_bytes=float(says[link]),
                  measured_bytes=float(sent[link]), queue_bytes=deep.get(link))
        for link in np.flatnonzero((says > 0) | (sent > ENOUGH)).tolist()
    )  # fmt: skip


def told_load(fabric: Emulated, row: LabRow, says: Predicted, spans: Sequence[Span], samples: Samples) -> PortLoad:
    """The busiest link, from the first turn's beginning on, as many bins of a tick as are shown."""
    capacity = fabric.tree.links.capacity
    link = int(np.argmax(says.link_bytes / capacity))
    turns = _turns(spans)
    begin = turns[0][0] - 2 * TICK_S
    bins = min(int((turns[-1][1] - begin) / TICK_S) + 3, MOST_BINS)
    edges = begin + TICK_S * np.arange(bins + 1, dtype=np.float64)
    start = np.array([turn[0] for turn in turns])
    each = np.full(len(turns), float(says.link_bytes[link]))
    expected = spread(start, start + says.seconds, each, edges) / TICK_S
    seen = np.diff(np.interp(edges, samples.at_s, samples.bytes[:, link].astype(np.float64))) / TICK_S
    queue = np.zeros(bins, dtype=np.int64)
    if link in samples.watched:
        column = samples.queues[:, samples.watched.index(link)]
        queue = np.interp(edges[1:], samples.at_s, column.astype(np.float64)).astype(np.int64)
    return PortLoad(
        what=f"{row.op} {row.bytes:,} bytes", link=fabric.tree.links.name_of(link), bin_s=TICK_S,
        capacity_bytes_per_s=float(capacity[link]), measured_bytes_per_s=tuple(seen.tolist()),
        predicted_bytes_per_s=tuple(expected.tolist()), queue_bytes=tuple(queue.tolist()),
    )  # fmt: skip


def seen_loads(
    fabric: Emulated, what: str, begin: float, end: float, samples: Samples, links: int = 2
) -> tuple[PortLoad, ...]:
    """Of the ports that carried most, from the first byte over them on, where nothing is predicted."""
    sent, capacity = samples.between(begin, end), fabric.tree.links.capacity
    found = []
    for link in np.argsort(-sent / capacity, kind="stable")[:links].tolist():
        if not sent[link]:
            continue
        column = samples.bytes[:, link].astype(np.float64)
        first = float(samples.at_s[int(np.argmax(column > column[0]))]) - 2 * TICK_S
        edges = first + TICK_S * np.arange(min(int((end - first) / TICK_S) + 3, MOST_BINS) + 1, dtype=np.float64)
        queue = np.zeros(len(edges) - 1)
        if link in samples.watched:
            queue = np.interp(edges[1:], samples.at_s, samples.queues[:, samples.watched.index(link)])
        found.append(PortLoad(
            what=what, link=fabric.tree.links.name_of(link), bin_s=TICK_S, capacity_bytes_per_s=float(capacity[link]),
            measured_bytes_per_s=tuple((np.diff(np.interp(edges, samples.at_s, column)) / TICK_S).tolist()),
            predicted_bytes_per_s=(), queue_bytes=tuple(queue.astype(np.int64).tolist()),
        ))  # fmt: skip
    return tuple(found)
