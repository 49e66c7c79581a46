"""The training loop of one rank: steps, learning rate, logs, checkpoints."""

import json
import math
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import perf_counter

import torch
from msgspec import Struct

from shardwise.estimate.mfu import conventions
from shardwise.runtime.train.corpus import ByteWindows, built_in_corpus
from shardwise.runtime.train.engine import Engine
from shardwise.runtime.train.feed import batch_of
from shardwise.runtime.train.task import Order, Settings


class StepLine(Struct, frozen=True, kw_only=True):
    step: int
    loss: float
    grad_norm: float
    rate: float
    step_s: float
    tokens_per_s: float
    """of all ranks"""
    tflops_per_rank: float
    mfu: float | None
    peak_bytes: int
    """allocated on a CUDA device; 0 on the CPU"""

    def text(self) -> str:
        """As torchtitan prints it."""
        memory = f"{self.peak_bytes / 2**30:5.2f}GiB"
        mfu = "" if self.mfu is None else f"  mfu: {self.mfu:.2%}"
        return (
            f"step: {self.step:2}  loss: {self.loss:7.4f}  grad_norm: {self.grad_norm:7.4f}  memory: {memory}  "
            f"tps: {self.tokens_per_s:,.0f}  tflops: {self.tflops_per_rank:,.2f}{mfu}"
        )


def rate_at(settings: Settings, step: int) -> float:
    """Linear warm-up, then constant or a cosine down to a tenth."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    if settings.decay == "constant":
        return settings.rate
    done = (step - settings.warmup) / max(settings.steps - settings.warmup, 1)
    return settings.rate * (0.1 + 0.45 * (1.0 + math.cos(math.pi * done)))


def source_of(order: Order) -> ByteWindows:
    settings, task = order.settings, order.task
    path = Path(settings.data) if settings.data else built_in_corpus(Path(tempfile.gettempdir()) / "shardwise")
    return ByteWindows(path, task.job.seq, task.model.vocab, task.seed)


class Trainer:
    def __init__(self, order: Order, device: torch.device) -> None:
        self.order, self.settings = order, order.settings
        self.engine = Engine(order.task, device, order.settings.optimizer, timedelta(seconds=order.settings.timeout_s))
        self.source = source_of(order)
        self.step = 0
        flops = {c.key: c for c in conventions(order.task.model, order.task.job.seq)}["full_square"]
        self.step_flops = flops.flops_per_token * order.task.job.step_tokens

    @property
    def leads(self) -> bool:
        return self.engine.world.rank == 0

    def run(self, told: Callable[[StepLine], None] | None = None) -> list[StepLine]:
        """Trains to the last step; checkpoints where asked for."""
        lines = []
        while self.step < self.settings.steps:
            line = self.one_step()
            lines.append(line)
            if self.leads:
                self._log(line)
                if told is not None:
                    told(line)
            self._checkpoint()
        return lines

    def one_step(self) -> StepLine:
        engine, start, rate = self.engine, perf_counter(), rate_at(self.settings, self.step)
        part = engine.accumulate(batch_of(engine, self.source, self.step)).double() / engine.world.tp.size
        with engine.world.comm.during("step"):
            loss = float(engine.world.comm.all_reduce(part, engine.world.everyone))
        norm = engine.update(rate)
        self.step += 1
        return self._line(loss, norm, rate, perf_counter() - start)

    def _line(self, loss: float, norm: float, rate: float, seconds: float) -> StepLine:
        ranks, peak = self.engine.world.size, self.settings.peak_flops_per_s
        per_rank = self.step_flops / seconds / ranks
        cuda = self.engine.world.device.type == "cuda"
        return StepLine(
            step=self.step, loss=loss, grad_norm=norm, rate=rate, step_s=seconds,
            tokens_per_s=self.order.task.job.step_tokens / seconds, tflops_per_rank=per_rank / 1e12,
            mfu=per_rank / peak if peak else None,
            peak_bytes=torch.cuda.max_memory_allocated() if cuda else 0,
        )  # fmt: skip

    def _log(self, line: StepLine) -> None:
        if self.settings.log:
            with open(self.settings.log, "a", encoding="utf-8") as file:
                file.write(json.dumps({name: getattr(line, name) for name in line.__struct_fields__}) + "\n")

    def _checkpoint(self) -> None:
        settings = self.settings
        due = self.step == settings.steps or (settings.every and self.step % settings.every == 0)
        if settings.checkpoints and due:
            from shardwise.runtime.train.checkpoint import save

            save(self.engine, Path(settings.checkpoints), self.step)

    def resume(self) -> int:
        """Goes on from the newest whole checkpoint; the step it was taken after, 0 where there is none."""
        if self.settings.checkpoints:
            from shardwise.runtime.train.checkpoint import load_newest

            self.step = load_newest(self.engine, Path(self.settings.checkpoints))
        return self.step


def to_stderr(line: StepLine) -> None:
    print(line.text(), file=sys.stderr, flush=True)
