"""One measured step of every rank: its messages, its pieces of compute, its memory - and all of them as a Timeline."""

import numpy as np
import torch.distributed as dist
from msgspec import Struct

from shardwise.run.runtime.parallel.comm import CONTROL, CommEvent
from shardwise.run.runtime.parallel.pipeline import Done
from shardwise.run.runtime.tracked import Tracker
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.step.simulate.timeline import KINDS, LANES, MEMORY, MemorySteps, Spans, Timeline

HOST = "host"
"""bytes in the host's memory, counted apart"""
PIECES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


class Recording(Struct, kw_only=True):
    rank: int
    stage: int
    start_s: float
    step_s: float
    events: list[CommEvent]
    done: list[Done]
    memory_bytes: dict[str, int]
    """by kind, at its own fullest moment"""


def memory_by_kind(engine: TrainingEngine, tracker: Tracker) -> dict[str, int]:
    moments = engine.optimizer.state_bytes()
    on_host = engine.optimizer.on_host
    return {
        "parameters": sum(sync.parameter_bytes() for sync in engine.syncs),
        "gradients": sum(sync.gradient_bytes() for sync in engine.syncs),
        "optimizer": 0 if on_host else moments + sum(sync.master_bytes() for sync in engine.syncs),
        "activations": tracker.peak["activations"],
        "logits": tracker.peak["logits"],
        **({HOST: moments} if on_host else {}),
    }


def collected(mine: Recording) -> list[Recording]:
    """Everyone's, on every rank."""
    if not dist.is_initialized():
        return [mine]
    found: list[Recording | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return [r for r in found if r is not None]


def timeline_of(recordings: list[Recording]) -> Timeline:
    """Clocks of the ranks of one machine agree; the step begins with the first rank's."""
    begin = min(r.start_s for r in recordings)
    place = {r.rank: index for index, r in enumerate(recordings)}
    rows = [row for r in recordings for row in (*_compute(r, begin, place), *_sent(r, begin, place))]
    columns = list(zip(*rows, strict=True))
    ints = [np.array(columns[i], dtype=np.int64) for i in (0, 1, 2, 3, 4, 8)]
    floats = [np.array(columns[i], dtype=np.float64) for i in (5, 6, 7)]
    spans = Spans(
        rank=ints[0], lane=ints[1], kind=ints[2], micro_batch=ints[3], chunk=ints[4], start_s=floats[0],
        end_s=floats[1], bytes=floats[2], peer=ints[5],
    )  # fmt: skip
    ranks = len(recordings)
    held = [(place[r.rank], MEMORY.index(kind), size) for r in recordings for kind, size in r.memory_bytes.items()
            if kind != HOST]  # fmt: skip
    memory = MemorySteps(
        rank=np.array([h[0] for h in held], dtype=np.int64), time_s=np.zeros(len(held)),
        kind=np.array([h[1] for h in held], dtype=np.int64), bytes=np.array([h[2] for h in held], dtype=np.float64),
    )  # fmt: skip
    stage = np.array([r.stage for r in recordings], dtype=np.int64)
    return Timeline(spans, memory, stage, np.ones(ranks, dtype=np.int64), max(r.step_s for r in recordings))


Row = tuple[int, int, int, int, int, float, float, float, int]


def _compute(r: Recording, begin: float, place: dict[int, int]) -> list[Row]:
    lane = LANES.index("compute")
    return [
        (
            place[r.rank],
            lane,
            KINDS.index(PIECES[d.kind]),
            d.micro_batch,
            d.chunk,
            d.start_s - begin,
            d.end_s - begin,
            0.0,
            -1,
        )
        for d in r.done
    ]


def _sent(r: Recording, begin: float, place: dict[int, int]) -> list[Row]:
    rows = []
    for e in r.events:
        if e.axis == CONTROL:
            continue
        lane, kind, peer = lane_of(e), "collective", -1
        if e.op == "send":
            others = [rank for rank in e.ranks if rank != r.rank]
            kind, peer = "send", place.get(others[0], -1) if len(others) == 1 else -1
        elif lane in ("grad", "param"):
            kind = "gather" if e.op == "all_gather" else "reduce"
        rows.append((place[r.rank], LANES.index(lane), KINDS.index(kind), -1, -1, e.start_s - begin, e.end_s - begin,
                     float(e.bytes), peer))  # fmt: skip
    return rows


def lane_of(event: CommEvent) -> str:
    if event.axis == "dp":
        if event.phase == "step" and event.op == "all_gather":
            return "param"
        return "fsdp" if event.op == "all_gather" else "grad"
    return "ep" if event.axis == "etp" else event.axis
