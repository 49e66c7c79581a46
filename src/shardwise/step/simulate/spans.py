"""A computed pipeline as rows of a timeline."""

from typing import NamedTuple

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.step.simulate.costs import Costs
from shardwise.step.simulate.pipeline import TaskTimes
from shardwise.step.simulate.sent import SentBytes
from shardwise.step.simulate.timeline import KINDS, LANES, Spans
from shardwise.step.tasks.engine import EngineRun
from shardwise.step.tasks.program import FORWARD, WEIGHT_GRADIENT, Program


class Rows(NamedTuple):
    """Spans of one lane and mostly one kind."""

    lane: str
    kind: Ints
    rank: Ints
    micro_batch: Ints
    chunk: Ints
    start_s: Floats
    end_s: Floats
    bytes: Floats
    peer: Ints


def joined(rows: list[Rows]) -> Spans:
    full = [r for r in rows if len(r.rank)]

    def column(name: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        return np.concatenate([getattr(r, name) for r in full])

    lane = np.concatenate([np.full(len(r.rank), LANES.index(r.lane), dtype=np.int64) for r in full])
    names = ("rank", "kind", "micro_batch", "chunk", "start_s", "end_s", "bytes", "peer")
    return Spans(lane=lane, **{name: column(name) for name in names})  # type: ignore[arg-type]


def whole_rank(lane: str, kind: str, ranks: Ints, start: Floats, end: Floats, bytes_: Floats | None = None,
               chunk: Ints | None = None) -> Rows:  # fmt: skip
    """Spans that belong to no micro-batch; those without length and bytes are left out."""
    keep = (end > start) | (bytes_ > 0 if bytes_ is not None else False)
    none = np.full(int(keep.sum()), -1, dtype=np.int64)
    return Rows(
        lane, np.full(len(none), KINDS.index(kind), dtype=np.int64), ranks[keep], none,
        none if chunk is None else chunk[keep], start[keep], end[keep],
        np.zeros(len(none)) if bytes_ is None else bytes_[keep], none,
    )  # fmt: skip


def compute_rows(program: Program, run: EngineRun, ranks: Ints) -> Rows:
    count = len(program.rank)
    # the program's codes for forward, backward and its two halves are the timeline's first kinds
    return Rows(
        "compute", program.kind, ranks[program.rank], program.micro_batch, program.chunk, run.start, run.end,
        np.zeros(count), np.full(count, -1, dtype=np.int64),
    )  # fmt: skip


def send_rows(program: Program, run: EngineRun, timed: TaskTimes, bytes_: float, ranks: Ints) -> Rows:
    """From the moment the result is there until it has arrived."""
    receiver = np.flatnonzero(program.crosses)
    sender = program.needs[receiver]
    begin = run.end[program.done[sender]] - timed.stopped[sender]
    return Rows(
        "pp", np.full(len(sender), KINDS.index("send"), dtype=np.int64), ranks[program.rank[sender]],
        program.micro_batch[sender], program.chunk[sender], begin, begin + timed.send[sender],
        np.full(len(sender), bytes_), ranks[program.rank[receiver]],
    )  # fmt: skip


def stream_rows(program: Program, run: EngineRun, costs: Costs, sent: SentBytes, ranks: Ints) -> list[Rows]:
    """Collectives inside the layers, drawn from their task's start on: as long as they take, not when each runs."""
    rows = []
    back = program.kind != FORWARD
    for axis, stream in costs.streams.items():
        seconds = np.where(back, stream.seconds[1][program.stage], stream.seconds[0][program.stage])
        forward, backward = sent.of_task(axis)
        bytes_ = np.where(back, backward[program.stage], forward[program.stage])
        keep = (seconds > 0) & (program.kind != WEIGHT_GRADIENT)
        end = run.start + np.minimum(seconds, run.end - run.start)
        rows.append(_rows(axis, "collective", program, keep, ranks, (run.start, end, bytes_)))
    return rows


def recompute_rows(program: Program, run: EngineRun, costs: Costs, ranks: Ints) -> list[Rows]:
    """Forwards repeated for the backward, drawn from its start on: as long as they take, not when each layer's runs."""
    seconds = costs.recompute[program.stage]
    keep = (seconds > 0) & (program.kind != FORWARD) & (program.kind != WEIGHT_GRADIENT)
    end = run.start + np.minimum(seconds, run.end - run.start)
    return [_rows("compute", "recompute", program, keep, ranks, (run.start, end, np.zeros(len(seconds))))]


def copy_rows(program: Program, run: EngineRun, costs: Costs, ranks: Ints) -> list[Rows]:
    """Activations to the host while their forward runs, and back while the backward does."""
    seconds, sent = costs.copy_s[program.stage], costs.copy_bytes[program.stage]
    keep = (seconds > 0) & (program.kind != WEIGHT_GRADIENT)
    end = run.start + np.minimum(seconds, run.end - run.start)
    return [_rows("copy", "copy", program, keep, ranks, (run.start, end, sent))]


def _rows(lane: str, kind: str, program: Program, keep: Ints, ranks: Ints,
          timing: tuple[Floats, Floats, Floats]) -> Rows:  # fmt: skip
    count = int(keep.sum())
    return Rows(
        lane, np.full(count, KINDS.index(kind), dtype=np.int64), ranks[program.rank[keep]],
        program.micro_batch[keep], program.chunk[keep], timing[0][keep], timing[1][keep], timing[2][keep],
        np.full(count, -1, dtype=np.int64),
    )  # fmt: skip
