"""Loss curves of several strategies of data parallelism, one after another on one set of local ranks:
`python -m shardwise.run.runtime.train.curves ASKED.json` prints a list of losses for each."""

import json
import sys
from pathlib import Path

import msgspec
import torch
from msgspec import Struct

from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.optimizer import OptimizerSettings
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings, checked
from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job, optimizer_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of


class CurveRequest(Struct, frozen=True, kw_only=True):
    model: str
    """path of a config.json"""
    ranks: int
    seq: int
    global_batch: int
    steps: int
    optimizer: str
    rates: dict[str, float]
    """learning rate by strategy; an empty name is the mean gradient"""


def order_of(asked: CurveRequest, sync: str) -> TrainingOrder:
    task = Task(
        model=model_of(asked.model), policy=Policy(dp=asked.ranks, zero=0, sync=sync, sp=False),
        job=Job(seq=asked.seq, global_batch=asked.global_batch, precision=PRECISIONS["fp32"],
                optimizer=optimizer_of(asked.optimizer)),
        stack=stack_of("shardwise"),
    )  # fmt: skip
    checked(task)
    settings = TrainingSettings(
        steps=asked.steps, rate=asked.rates[sync], warmup=max(asked.steps // 20, 1), decay="cosine",
        optimizer=OptimizerSettings(name=asked.optimizer, weight_decay=0.0),
    )  # fmt: skip
    return TrainingOrder(task=task, settings=settings)


def curves(asked: CurveRequest) -> dict[str, list[float]]:
    orders = {sync: order_of(asked, sync) for sync in asked.rates}

    def train(_: int) -> dict[str, list[float]]:
        return {
            sync: [line.loss for line in Trainer(order, torch.device("cpu")).run().lines]
            for sync, order in orders.items()
        }

    return forked(asked.ranks, train)[0]


if __name__ == "__main__":
    found = curves(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=CurveRequest))
    print(json.dumps(found))
