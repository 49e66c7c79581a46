"""The training loop of post-training: answers in, weights out.

Step n trains on the answers that were rolled out with the weights before step n - lag. With a lag of 1 or more both
sides work at once, and the answers of the next steps wait in a buffer, which is part of a checkpoint: a run that is
killed goes on bit for bit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import torch
from msgspec.structs import replace
from torch import Tensor

from shardwise.run.runtime.checkpoints.agree import AgreedRefusal
from shardwise.run.runtime.checkpoints.stated import ROLLOUT as WAITING_ANSWERS
from shardwise.run.runtime.moved import moved
from shardwise.run.runtime.parallel.comm import CONTROL, RankComm
from shardwise.run.runtime.parallel.forward import forward_only
from shardwise.run.runtime.rollout.bridge import Bridge
from shardwise.run.runtime.rollout.engine import AnsweringEngine, RolledAnswers
from shardwise.run.runtime.rollout.exchange import StepOrders, take_answers
from shardwise.run.runtime.rollout.expected import ANSWERS, LOG_PROBS, PHASES, ROLLOUT, SYNC, UPDATE, ExpectedBytes
from shardwise.run.runtime.rollout.objective import advantages
from shardwise.run.runtime.rollout.order import RolloutOrder
from shardwise.run.runtime.rollout.prompts import rolled_out
from shardwise.run.runtime.rollout.reshard import WeightMover
from shardwise.run.runtime.rollout.rewards import REWARDS
from shardwise.run.runtime.rollout.tokens import StepTokens
from shardwise.run.runtime.train.ending import StopRequest, TrainingResult
from shardwise.run.runtime.train.lines import RolloutLine, StepLine
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.rates import rate_at
from shardwise.run.runtime.train.task import TrainingOrder

WAITING = "waiting"
"""for answers of other ranks"""


class PosttrainTrainer(Trainer):
    def __init__(
        self, order: TrainingOrder, device: torch.device, bridge: Bridge, asked: StopRequest | None = None
    ) -> None:
        super().__init__(order, device, asked)
        assert order.rollout is not None
        self.rollout: RolloutOrder = order.rollout
        self.task, self.bridge = order.task, bridge
        self.expected = ExpectedBytes(order.task, order.rollout)
        gpus, job = order.task.policy.gpus, order.task.job
        rolling = range(gpus, gpus + self.rollout.ranks)
        self.leaders, self.orders = rolling[:: self.rollout.tp], StepOrders(bridge, rolling)
        self.own = None if rolling else AnsweringEngine(order.task, self.rollout, device)
        self.mover = WeightMover(bridge, self.engine, self.own.chunk if self.own is not None else None)
        self.width = 2 * job.seq - self.rollout.prompt_tokens + 1
        self.buffer = torch.zeros(self.rollout.lag, job.global_batch, self.width, dtype=torch.float64)
        """tables of answers that wait for their step"""
        self.asked_until = 0
        """the first step whose answers nobody has been asked for"""
        self.seconds: dict[str, float] = {}
        self.sent: dict[str, float] = {}
        self.taken: list[RolledAnswers] = []
        if self.rollout.lag:
            self.engine.kept[WAITING_ANSWERS] = self.buffer

    def resume(self) -> int:
        try:
            done = super().resume()
        except AgreedRefusal:
            self._ended()
            raise
        self.asked_until = done + self.rollout.lag if done else 0
        return done

    def run(self, told: Callable[[StepLine], None] | None = None) -> TrainingResult:
        result = super().run(told)
        self._ended()
        return result

    def _ended(self) -> None:
        """Nothing is rolled out any more."""
        if self.leads:
            self.orders.give(range(0))

    def one_step(self) -> StepLine:
        start, rate, lag, step = perf_counter(), rate_at(self.settings, self.step), self.rollout.lag, self.step
        self.seconds, self.sent, self.taken = {}, dict.fromkeys(PHASES, 0.0), []
        ahead = self._asked(step + lag)
        for early in ahead[:-1]:
            self.buffer[early % lag] = self._answers(early)
        table = self.buffer[step % lag].clone() if lag else self._answers(step)
        found = RolledAnswers.unpacked(table, self.task.job.seq)
        reward = self._reward(found)
        loss, norm, outside = self._trained(found, reward, rate)
        if lag:
            self.buffer[step % lag] = self._answers(step + lag)
        line = self.line(loss, norm, rate, perf_counter() - start)
        return replace(line, rollout=self._told(found, reward, outside, age=min(lag, step)))

    def _asked(self, newest: int) -> range:
        """Weights of now go out, and answers are asked for up to those of the step `newest`."""
        wanted = range(self.asked_until, newest + 1)
        self.asked_until = wanted.stop
        if self.leads:
            self.orders.give(wanted)
        self.bridge.events.clear()
        with self._timed(SYNC):
            self.mover.move()
        self.sent[SYNC] += sum(event.bytes for event in self.bridge.events)
        return wanted

    def _answers(self, step: int) -> Tensor:
        """Of this step, which were asked for, as a table on every rank."""
        table = self._own_answers(self.own, step) if self.own is not None else self._others_answers()
        self.taken.append(RolledAnswers.unpacked(table, self.task.job.seq))
        return table

    def _own_answers(self, engine: AnsweringEngine, step: int) -> Tensor:
        world = engine.world
        with self._timed(ROLLOUT, world.comm):
            found = rolled_out(engine, self.source, step).packed()
        if world.dp.size > 1:
            with self._timed(ANSWERS, world.comm):
                found = world.comm.gathered(moved(found, world.device), world.dp).cpu()
        return found

    def _others_answers(self) -> Tensor:
        world, rows = self.engine.world, self.task.job.global_batch // len(self.leaders)
        table = torch.empty(self.task.job.global_batch, self.width, dtype=torch.float64)
        with self._timed(WAITING):
            if self.leads:
                table, seconds, sent = take_answers(self.bridge, self.leaders, rows, self.width)
                self.seconds[ROLLOUT] = self.seconds.get(ROLLOUT, 0.0) + seconds
                self.sent[ROLLOUT] += sent
                self.sent[ANSWERS] += table.numel() * table.element_size() + self.expected.beside
            with world.comm.during("step"):
                return world.comm.broadcast(moved(table, world.device), world.everyone).cpu()

    def _reward(self, found: RolledAnswers) -> Tensor:
        first = self.rollout.prompt_tokens
        prompts, answers = found.tokens[:, :first], found.tokens[:, first:]
        return REWARDS[self.rollout.reward](prompts, answers, found.there)

    def _trained(self, found: RolledAnswers, reward: Tensor, rate: float) -> tuple[float, float, Tensor]:
        """Loss, norm of the gradient, and tokens clipped on this rank."""
        comm, now = self.engine.world.comm, dict[int, Tensor]()
        tokens = StepTokens(self.engine, found, advantages(self.rollout.algorithm, reward, self.rollout.group))
        with self._timed(LOG_PROBS, comm):
            forward_only(self.engine.pipeline, tokens.batch({}), self.task.micro_batches, now.__setitem__)
        weights, outside = tokens.weights(now, self.rollout.clip)
        with self._timed(UPDATE, comm):
            loss, norm = self.updated(tokens.batch(weights), rate)
        return loss, norm, outside

    @contextmanager
    def _timed(self, phase: str, comm: RankComm | None = None) -> Iterator[None]:
        """Adds the seconds, and the bytes of the messages that the planner counts."""
        start, mark = perf_counter(), len(comm.events) if comm is not None else 0
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + perf_counter() - start
        if comm is not None:
            self.sent[phase] += sum(event.bytes for event in comm.events[mark:] if event.axis != CONTROL)

    def _told(self, found: RolledAnswers, reward: Tensor, outside: Tensor, age: int) -> RolloutLine:
        """With what all ranks have sent."""
        world, tokens = self.engine.world, float(found.lengths.sum())
        if self.own is not None:
            self.own.world.comm.events.clear()
        mine = torch.tensor([*(self.sent[phase] for phase in PHASES), float(outside)], dtype=torch.float64)
        with world.comm.during("step"):
            *sent, clipped = world.comm.all_reduce(moved(mine, world.device), world.everyone).tolist()
        return RolloutLine(
            reward=float(reward.mean()), answer_tokens=tokens / len(found.lengths), age=age,
            clipped=clipped / world.tp.size / tokens, seconds=self.seconds,
            bytes=dict(zip(PHASES, sent, strict=True)), expected_bytes=self.expected.of_step(self.taken),
        )  # fmt: skip
