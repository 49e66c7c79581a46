"""Elastic runs under a killer, with bits flipped on purpose, and the run without either that skips the same
micro-batches: one replica that computes every other's gradient too, one after another."""

import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import msgspec
import torch
from msgspec.structs import replace

from _kills_runs import children_of
from shardwise.run.runtime.elastic.held_state import gradients
from shardwise.run.runtime.elastic.keeper import ReplicaKeeper, run_elastic
from shardwise.run.runtime.elastic.mean import SealedGradient
from shardwise.run.runtime.elastic.member import ReplicaMember
from shardwise.run.runtime.elastic.replicas import part_of_batch, split_of
from shardwise.run.runtime.elastic.talk import Turn, Vote
from shardwise.run.runtime.train.ending import TrainingResult
from shardwise.run.runtime.train.feed import batch_of
from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.lines import StepLine
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.rates import rate_at
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings
from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of

LAYOUTS = {
    "dp 4": Policy(dp=4, zero=0, micro_batch=1),
    "dp 3": Policy(dp=3, zero=0, micro_batch=1),
    "dp 3, tp 2": Policy(dp=3, zero=0, tp=2, micro_batch=1),
    "hsdp 3 x 2": Policy(dp=6, zero=3, shard_group=2, micro_batch=1),
    "hsdp 3 x 2, zero 1": Policy(dp=6, zero=1, shard_group=2, micro_batch=1),
}
FOREVER = 10**6
KINDS = ("gradient", "weight", "moment")


@dataclass(frozen=True)
class Flip:
    """One bit, in one rank's memory, before it has its peers' gradients of a step."""

    step: int
    replica: int
    place: int
    kind: str
    draw: float
    bit: int


def order_for(layout: str, steps: int, out: str) -> TrainingOrder:
    policy = LAYOUTS[layout]
    model = model_from_shape(
        "llama", layers=2, hidden=32, heads=4, kv_heads=2, ffn=96, glu=True, vocab=128, tied=False
    )  # fmt: skip
    policy = replace(policy, sp=policy.tp > 1)
    job = Job(seq=16, global_batch=2 * policy.dp, precision=PRECISIONS["fp32"])
    task = Task(model=model, job=job, policy=policy, stack=stack_of("shardwise"))
    return TrainingOrder(task=task, settings=TrainingSettings(steps=steps, export=out, progress="none", timeout_s=60))


def skipping(order: TrainingOrder, taken: Sequence[Sequence[int]]) -> None:
    """The reference, exported where the order says. `taken`: replicas whose micro-batches each step has."""
    split = split_of(order)

    def train(_: int) -> None:
        trainer = Trainer(split.order, torch.device("cpu"))
        engine = trainer.engine
        for step, replicas in enumerate(taken):
            sums: list[torch.Tensor] = []
            for replica in replicas:
                engine.accumulate(batch_of(engine, trainer.source, part_of_batch(split, replica, step)))
                found = [grad.clone() for grad in gradients(engine)]
                sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
                for sync in engine.syncs:
                    sync.clear()
                engine.pipeline.done.clear()
            # gradients are back where a step leaves them: computed once more, then overwritten
            engine.accumulate(batch_of(engine, trainer.source, part_of_batch(split, replicas[0], step)))
            for grad, total in zip(gradients(engine), sums, strict=True):
                grad.copy_(total / len(replicas))
            engine.update(rate_at(trainer.settings, step))
            engine.world.comm.events.clear()
            trainer.step += 1
        assert not trainer.export()

    forked(split.ranks, train)


def weights(folder: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(folder).glob("*.safetensors")))


@contextmanager
def paced(pace_s: float, flips: Sequence[Flip] = ()) -> Iterator[None]:
    """Ranks forked meanwhile wait so long for their batch, as for a GPU's work, and have these bits flipped."""
    computed, tried, averaged = ReplicaMember._compute, ReplicaMember._tried, SealedGradient.mean
    here: list[Flip] = []
    made: set[Flip] = set()

    def compute(self: ReplicaMember, step: int) -> None:
        begun = monotonic()
        computed(self, step)
        sleep(max(0.0, pace_s - (monotonic() - begun)))

    def try_(self: ReplicaMember, turn: Turn) -> Vote:
        place = self.engine.world.rank
        here[:] = [one for one in flips if (one.step, one.replica, one.place) == (turn.step, self.replica, place)]
        if self.replica not in turn.heals:
            for one in here:
                if one.kind != "gradient" and one not in made:
                    made.add(one)
                    states = self.engine.optimizer.states()
                    flipped(self.engine.locals()[0].tensor if one.kind == "weight" else states[0]["exp_avg"], one)
        return tried(self, turn)

    def mean(self: SealedGradient, *given: object) -> torch.Tensor:
        for one in here:
            if one.kind == "gradient" and one not in made:
                made.add(one)
                flipped(self.flat, one)
        return averaged(self, *given)  # type: ignore[arg-type]

    ReplicaMember._compute, ReplicaMember._tried, SealedGradient.mean = compute, try_, mean  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        ReplicaMember._compute, ReplicaMember._tried, SealedGradient.mean = computed, tried, averaged  # type: ignore[method-assign]


def flipped(tensor: torch.Tensor, one: Flip) -> None:
    words = tensor.view(-1).view(torch.int32)
    words[int(one.draw * len(words))] ^= -(1 << 31) if one.bit == 31 else 1 << one.bit


@dataclass
class ChaosRun:
    result: TrainingResult
    kills: int
    told_at: list[float]
    """when each step was known to be made"""


def elastic_run(
    order: TrainingOrder, every: int, draw: random.Random | None = None, between_s: float = 0.0, restarts: int = FOREVER
) -> ChaosRun:
    """In a process of its own, whose ranks are killed at random, `between_s` apart on average."""
    with tempfile.TemporaryDirectory() as folder:
        answer, errors = Path(folder) / "answer", Path(folder) / "errors"
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT, 0o600), 2)
                sys.stderr = os.fdopen(2, "w")
                with _clocked() as told_at:
                    result = run_elastic(order, restarts, every)
                answer.write_bytes(msgspec.msgpack.encode((result, told_at)))
                code = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(code)
        kills = 0
        if draw is None:
            os.waitpid(pid, 0)
        else:
            kills = _killed(pid, draw, between_s)
        if not answer.exists():
            raise RuntimeError(errors.read_text())
        result, told_at = msgspec.msgpack.decode(answer.read_bytes(), type=tuple[TrainingResult, list[float]])
    return ChaosRun(result, kills, told_at)


@contextmanager
def _clocked() -> Iterator[list[float]]:
    """When the launcher has each step's line."""
    told, found = ReplicaKeeper._tell, list[float]()

    def tell(self: ReplicaKeeper, line: StepLine | None) -> None:
        known = len(self.lines)
        told(self, line)
        if len(self.lines) > known:
            found.append(monotonic())

    ReplicaKeeper._tell = tell  # type: ignore[method-assign]
    try:
        yield found
    finally:
        ReplicaKeeper._tell = told  # type: ignore[method-assign]


def _killed(pid: int, draw: random.Random, between_s: float) -> int:
    """Until the run is over."""
    kills, due = 0, monotonic() + draw.expovariate(1 / between_s)
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if monotonic() >= due:
            due += draw.expovariate(1 / between_s)
            if ranks := sorted(children_of(pid)):
                try:
                    os.kill(draw.choice(ranks), signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
        sleep(0.002)
    return kills
