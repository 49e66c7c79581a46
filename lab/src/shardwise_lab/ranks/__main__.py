"""`python -m shardwise_lab.ranks`: reads an order from stdin, forks the ranks of each world, writes spans to stdout."""

# ruff: noqa: E402
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Lock

import msgspec
import torch  # noqa: F401  before the fork, so that all ranks share it

from shardwise.run.runtime.parent import die_with_parent
from shardwise.user_cache import keep_compiled_code_private
from shardwise_lab.inside import enter
from shardwise_lab.order import Answer, LabOrder, LabWorld, Span
from shardwise_lab.ranks.collectives import collective_spans
from shardwise_lab.ranks.jobs import job_steps
from shardwise_lab.ranks.training import training_spans

REALTIME = 5
_PIPE = Lock()
"""held by the rank that writes its answer"""


def main() -> int:
    keep_compiled_code_private()
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=LabOrder)
    for number, world in enumerate(order.worlds):
        if not _ran(order, number, world):
            return 1
    return 0


def _ran(order: LabOrder, number: int, world: LabWorld) -> bool:
    children = []
    for rank in range(len(world.order)):
        child = os.fork()
        if child == 0:
            os._exit(_rank(order, number, world, rank))
        children.append(child)
    good = True
    while children:
        child, status = os.wait()
        children.remove(child)
        if status and good:
            good = False  # the others would wait for it in vain
            for other in children:
                os.kill(other, signal.SIGKILL)
    return good


def _rank(order: LabOrder, number: int, world: LabWorld, rank: int) -> int:
    import torch.distributed as dist

    try:
        die_with_parent()
        enter(order.spaces[world.order[rank]])
        os.environ.update(
            GLOO_SOCKET_IFNAME=order.interface, MASTER_ADDR=order.addresses[world.order[0]],
            MASTER_PORT=str(order.port + number), RANK=str(rank), WORLD_SIZE=str(len(world.order)),
        )  # fmt: skip
        if order.realtime:
            with suppress(PermissionError):  # in the namespaces of a user who is not root
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REALTIME))
        dist.init_process_group("gloo", rank=rank, world_size=len(world.order))
        told = _told(number, world, rank)
        dist.barrier()
        _written(b"".join(msgspec.json.encode(each) + b"\n" for each in told))
        return 0
    except BaseException:
        traceback.print_exc()
        return 1


def _told(number: int, world: LabWorld, rank: int) -> Sequence[Answer]:
    if world.job is not None:
        return job_steps(number, world)
    found = training_spans(world) if world.training else collective_spans(world)
    return [Span(world=number, case=case, turn=turn, rank=rank, start_s=start, end_s=end)
            for case, turn, start, end in found]  # fmt: skip


def _written(lines: bytes) -> None:
    """All at once: ranks share the pipe, and one that is full takes a part of it."""
    with _PIPE:
        while lines:
            lines = lines[os.write(1, lines) :]


if __name__ == "__main__":
    sys.exit(main())
