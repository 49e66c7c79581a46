"""`python -m shardwise_lab.ranks.run`: what `shardwise run` does on one machine, each rank in its GPU's namespace.

The launcher, its restarts, time-outs, records and checkpoints are the runtime's own; only where ranks sit is the lab's.
Reads an order from stdin; exit code 0 when all steps were made, as `run` has it otherwise.
"""

# ruff: noqa: E402
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import socket
import sys
from contextlib import AbstractContextManager, nullcontext

import msgspec

from shardwise.run.runtime.launch import prepare, refuse
from shardwise.run.runtime.ranks import RanksFailed, run_ranks
from shardwise.run.runtime.train.optimizer import OptimizerSettings
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings, checked
from shardwise.user_cache import keep_compiled_code_private
from shardwise_lab.inside import enter, inside
from shardwise_lab.order import RunOrder


class NamespaceSeats:
    """Every rank in a namespace of its own."""

    def __init__(self, order: RunOrder) -> None:
        self.order, self.address = order, order.address

    def prepared(self) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = self.order.interface

    def listener(self) -> socket.socket:
        return inside(self.order.spaces[0], self._listening)

    def _listening(self) -> socket.socket:
        found = socket.socket()
        found.bind((self.address, 0))
        found.listen(socket.SOMAXCONN)
        return found

    def enter(self, rank: int) -> None:
        enter(self.order.spaces[rank])

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()


def training_of(order: RunOrder) -> TrainingOrder:
    job, folder = order.job, order.folder
    task = Task(model=job.model, job=job.job, policy=job.policy, stack=job.stack)
    settings = TrainingSettings(
        steps=order.steps, every=order.every, timeout_s=order.timeout_s, progress="none", log=f"{folder}/steps.jsonl",
        records=f"{folder}/records", checkpoints=f"{folder}/checkpoints",
        optimizer=OptimizerSettings(name=job.job.optimizer.name),
    )  # fmt: skip
    checked(task)
    return TrainingOrder(task=task, settings=settings)


def main() -> int:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=RunOrder)
    keep_compiled_code_private()
    asked = training_of(order)
    refuse(asked)
    prepare(asked)
    try:
        return run_ranks(asked, len(order.spaces), order.max_restarts, seats=NamespaceSeats(order)).code
    except RanksFailed as failure:
        print(failure, file=sys.stderr, flush=True)
        return failure.code


if __name__ == "__main__":
    sys.exit(main())
