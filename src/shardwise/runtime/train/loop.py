"""The training loop of one rank: steps, learning rate, evaluation, checkpoints."""

import math
import os
import resource
import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from shardwise.estimate.mfu import headline
from shardwise.runtime.data.source import Source
from shardwise.runtime.train.engine import TrainingEngine
from shardwise.runtime.train.evaluate import evaluate
from shardwise.runtime.train.feed import batch_of, evaluated_on, trained_on
from shardwise.runtime.train.lines import StepLine
from shardwise.runtime.train.quiet import quiet
from shardwise.runtime.train.rates import rate_at
from shardwise.runtime.train.task import TrainingOrder

if TYPE_CHECKING:
    from shardwise.runtime.train.checkpoint import Checkpoints


class Trainer:
    def __init__(self, order: TrainingOrder, device: torch.device) -> None:
        self.order, self.settings = order, order.settings
        self.engine = TrainingEngine(
            order.task, device, order.settings.optimizer, timedelta(seconds=order.settings.timeout_s)
        )
        self.source = trained_on(order)
        self.held_out: Source | None = evaluated_on(order) if order.settings.eval_every else None
        self.step = 0
        flops = headline(order.task.model, order.task.job.seq)
        self.step_flops = flops.flops_per_token * order.task.job.step_tokens

    @property
    def leads(self) -> bool:
        return self.engine.world.rank == 0

    def run(self, told: Callable[[StepLine], None] | None = None) -> list[StepLine]:
        """Trains to the last step; evaluates and checkpoints where asked for."""
        settings, lines, saved = self.settings, [], self._checkpoints()
        with quiet():
            while self.step < settings.steps:
                lines.append(self._whole_step(told))
                if saved is not None and self._due(settings.every):
                    saved.save(self.step)
            if saved is not None:
                saved.wait()
        if settings.export:
            self.export()
        return lines

    def _checkpoints(self) -> "Checkpoints | None":
        if not self.settings.checkpoints:
            return None
        from shardwise.runtime.train.checkpoint import Checkpoints

        folder = Path(self.settings.checkpoints)
        return Checkpoints(self.engine, folder, in_background=self.settings.async_checkpoints)

    def _whole_step(self, told: Callable[[StepLine], None] | None) -> StepLine:
        line = self._evaluated(self.one_step())
        # nobody reads them here, and a long run would keep them all
        self.engine.world.comm.events.clear()
        self.engine.pipeline.done.clear()
        if self.leads and told is not None:
            told(line)
        return line

    def _due(self, every: int) -> bool:
        return self.step == self.settings.steps or (every > 0 and self.step % every == 0)

    def one_step(self) -> StepLine:
        engine, start, rate = self.engine, perf_counter(), rate_at(self.settings, self.step)
        part = engine.accumulate(batch_of(engine, self.source, self.step)).double() / engine.world.tp.size
        with engine.world.comm.during("step"):
            loss = engine.world.comm.all_reduce(part, engine.world.everyone)
        norm = engine.update(rate)
        self.step += 1
        # read last: the device has work while the host prepares the optimizer's
        return self._line(float(loss), norm, rate, perf_counter() - start)

    def _evaluated(self, line: StepLine) -> StepLine:
        if self.held_out is None or not self._due(self.settings.eval_every):
            return line
        loss = evaluate(self.engine, self.held_out, self.settings.eval_steps)
        return replace(line, eval_loss=loss, perplexity=math.exp(min(loss, 700.0)))

    def _line(self, loss: float, norm: float, rate: float, seconds: float) -> StepLine:
        ranks, peak = self.engine.world.size, self.settings.peak_flops_per_s
        per_rank = self.step_flops / seconds / ranks
        used, there = _memory(self.engine.world.device)
        return StepLine(
            step=self.step, loss=loss, grad_norm=norm, rate=rate, step_s=seconds,
            tokens_per_s=self.order.task.job.step_tokens / seconds, tflops_per_rank=per_rank / 1e12,
            mfu=per_rank / peak if peak else None, peak_bytes=used, memory_share=used / there, ranks=ranks,
        )  # fmt: skip

    def resume(self) -> int:
        """Goes on from the newest whole checkpoint; the step it was taken after, 0 where there is none: then weights
        that were given are read."""
        if self.settings.checkpoints:
            from shardwise.runtime.train.checkpoint import load_newest

            self.step = load_newest(self.engine, Path(self.settings.checkpoints))
        if not self.step and self.settings.init:
            from shardwise.runtime.weights.load import load_weights

            load_weights(self.engine, Path(self.settings.init))
        return self.step

    def export(self) -> None:
        """The weights as they are now, in Hugging Face's layout: from a checkpoint, by the rank that leads."""
        from shardwise.runtime.train.checkpoint import newest, save
        from shardwise.runtime.weights.export import export

        out, task = Path(self.settings.export), self.order.task
        beside = out.with_name(f".{out.name}.checkpoint")
        kept = newest(Path(self.settings.checkpoints)) if self.settings.checkpoints else None
        found = kept or save(self.engine, beside, self.step)
        if self.leads:
            export(task.model, found, out, task.job.seq)
            shutil.rmtree(beside, ignore_errors=True)


def _memory(device: torch.device) -> tuple[int, int]:
    """The most bytes this rank has held, and those the device or the machine has."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(device).total_memory
    # Linux counts in KiB, macOS in bytes
    unit = 1 if sys.platform == "darwin" else 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return used, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
