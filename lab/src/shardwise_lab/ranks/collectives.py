"""Cases as torch runs them: (case, turn, start, end) of this rank.

gloo may send the two directions of a pair one after the other: word that a receive is posted waits behind data that
goes the same way. Where every rank exchanges with others at once receives are therefore posted by all before anyone
sends, as NCCL's channels do, and the fabric sets the pace.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from shardwise_lab.cases import LabCase
from shardwise_lab.order import LabWorld

REST_S = 0.04
"""at least before and after a turn, so that queues are empty, buckets full and ticks tell its bytes from a barrier's"""
SLOT_S = 0.1
SMALL = 1 << 20
Work = Callable[[], object]


def collective_spans(world: LabWorld) -> list[tuple[int, int, float, float]]:
    found = []
    for number, case in enumerate(world.cases):
        prepared = _ring(case) if case.ring else _exchange(case)
        if case.bytes <= SMALL:  # connections are made by the first use
            first = prepared()
            dist.barrier()
            first()
        for turn in range(case.times):
            dist.barrier()
            go = prepared()
            start = together()
            go()
            found.append((number, turn, start, time.monotonic()))
            time.sleep(REST_S)
    return found


def together() -> float:
    """All ranks start at one moment of the clock they share. After a barrier alone some would send already while others
    wait for its last message, which queues behind that."""
    dist.barrier()
    moment = SLOT_S * (int((time.monotonic() + REST_S) / SLOT_S) + 1)
    time.sleep(max(moment - time.monotonic(), 0.0))
    return time.monotonic()


def _ring(case: LabCase) -> Callable[[], Work]:
    ranks = dist.get_world_size()
    each = max(case.bytes // 4 // ranks, 1)
    whole, part = torch.ones(each * ranks), torch.ones(each)
    parts = list(whole.chunk(ranks))
    run: dict[str, Work] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather(parts, part),
        "reduce_scatter": lambda: dist.reduce_scatter(part, parts),
    }
    return lambda: run[case.op]


def _exchange(case: LabCase) -> Callable[[], Work]:
    """Posts the receives; what it returns sends, and waits for all."""
    rank = dist.get_rank()
    table = (case.matrix(dist.get_world_size()) // 4).astype(int)
    outgoing = {int(to): torch.ones(int(size)) for to, size in enumerate(table[rank]) if size}
    incoming = {int(of): torch.empty(int(size)) for of, size in enumerate(table[:, rank]) if size}

    def prepared() -> Work:
        posted = [dist.irecv(buffer, of) for of, buffer in incoming.items()]

        def go() -> None:
            sent = [dist.isend(buffer, to) for to, buffer in outgoing.items()]
            for work in (*sent, *posted):
                if work is not None:
                    work.wait()

        return go

    return prepared
