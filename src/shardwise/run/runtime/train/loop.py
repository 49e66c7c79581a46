"""The training loop of one rank: steps, learning rate, evaluation, checkpoints."""

import math
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace
from torch import Tensor

from shardwise.measured.record.writer import rank_file
from shardwise.run.runtime.data.source import Source
from shardwise.run.runtime.moved import moved
from shardwise.run.runtime.parallel.pipeline import Batch
from shardwise.run.runtime.train.ending import CHECK_FAILED, StopRequest, TrainingResult, by_signal
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.evaluate import evaluate
from shardwise.run.runtime.train.feed import batch_of, evaluated_on, trained_on
from shardwise.run.runtime.train.lines import StepLine
from shardwise.run.runtime.train.quiet import quiet
from shardwise.run.runtime.train.rates import rate_at
from shardwise.run.runtime.train.records import RankRecorder, recorder_of
from shardwise.run.runtime.train.task import TrainingOrder
from shardwise.step.estimate.mfu import headline

if TYPE_CHECKING:
    from shardwise.run.runtime.checkpoints.of_run import RunCheckpoints
    from shardwise.run.runtime.checkpoints.save import CheckpointSaver


class Trainer:
    def __init__(self, order: TrainingOrder, device: torch.device, asked: StopRequest | None = None) -> None:
        """`asked`: by a signal, to end after the step."""
        self.order, self.settings = order, order.settings
        self.engine = TrainingEngine(
            order.task, device, order.settings.optimizer, timedelta(seconds=order.settings.timeout_s)
        )
        self.source = trained_on(order)
        self.held_out: Source | None = evaluated_on(order) if order.settings.eval_every else None
        self.step = self._loaded = 0
        self.asked = asked or StopRequest()
        self.checkpoints: RunCheckpoints | None = None
        self.records: RankRecorder | None = recorder_of(order, self.engine)
        self._someone_asked = self._save_failed = False
        self._nothing = torch.zeros(2, dtype=torch.float64, device=device)
        flops = headline(order.task.tuned_model, order.task.job.seq)
        self.step_flops = flops.flops_per_token * order.task.job.step_tokens

    @property
    def leads(self) -> bool:
        return self.engine.world.rank == 0

    def run(self, told: Callable[[StepLine], None] | None = None) -> TrainingResult:
        """Trains to the last step, unless something stops it; evaluates and checkpoints where asked for."""
        settings, lines = self.settings, list[StepLine]()
        saver = self.checkpoints.saver if self.checkpoints is not None else None
        stopped, code = "", 0
        with quiet():
            while self.step < settings.steps and not stopped:
                lines.append(self._whole_step(told))
                stopped, code = self._stopped(lines[-1])
                if saver is not None and code != CHECK_FAILED and (stopped or self._due(settings.every)):
                    self._save(saver)
            if saver is not None:
                saver.wait()
                if saver.failed and not settings.go_on_unsaved and not stopped:
                    stopped, code = saver.failed, CHECK_FAILED
        text = self._stop_text(stopped) if stopped else ""
        if self.records is not None:
            self.records.ended(text, saver.failed if saver is not None else "")
        if stopped:
            return TrainingResult(lines=lines, stopped=text, code=code)
        unwritten, exported = self._unwritten(), settings.export
        if exported and (why := self.export()):
            unwritten, exported = (*unwritten, f"the weights in {exported!r} ({why})"), ""
        return TrainingResult(
            lines=lines, unwritten=unwritten, exported=exported, code=CHECK_FAILED if unwritten else 0
        )

    def _unwritten(self) -> tuple[str, ...]:
        """The last state, where nothing holds it, and records of ranks that lack lines."""
        lacking = []
        if self.checkpoints is not None and self.checkpoints.saver.failed:
            lacking.append(f"the state after step {self.step} ({self.checkpoints.kept()})")
        if self.records is not None:
            ranks = self._everyone(bool(self.records.writer.failed))
            lacking += [f"records {str(rank_file(Path(self.settings.records), rank))!r}" for rank in ranks]
        return tuple(lacking)

    def _everyone(self, mine: bool) -> list[int]:
        """Ranks of which this holds."""
        world = self.engine.world
        flags = torch.zeros(world.size, dtype=torch.float64)
        flags[world.rank] = mine
        with world.comm.during("step"):
            flags = world.comm.all_reduce(moved(flags, world.device), world.everyone)
        return [int(rank) for rank in flags.nonzero().flatten()]

    def _save(self, saver: "CheckpointSaver") -> None:
        if self.records is None:
            saver.save(self.step)
        else:
            with self.records.saving(self.step):
                saver.save(self.step)

    def _stopped(self, line: StepLine) -> tuple[str, int]:
        """Why to end now, and the exit code; the same on all ranks, since what is asked here was summed over them."""
        for name, value in (("loss", line.loss), ("norm of the gradient", line.grad_norm)):
            if not math.isfinite(value):
                if self.checkpoints is not None and self.step == self._loaded + 1:
                    self.checkpoints.pass_over(f"the {name} of its first step, {self.step}, is {value}")
                return f"the {name} is {value}", CHECK_FAILED
        if self._save_failed and not self.settings.go_on_unsaved:
            return "a checkpoint could not be written", CHECK_FAILED
        if self._someone_asked and self.step < self.settings.steps:
            return by_signal(self.asked.signal or signal.SIGTERM)
        return "", 0

    def _stop_text(self, why: str) -> str:
        kept = self.checkpoints.kept() if self.checkpoints is not None else "there is no checkpoint"
        return f"stopped after step {self.step}: {why}; {kept}"

    def _whole_step(self, told: Callable[[StepLine], None] | None) -> StepLine:
        line = self.one_step()
        if self.records is not None:
            self.records.step_done(line.loss)
        line = self._evaluated(line)
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
        batch = batch_of(engine, self.source, self.step)
        if self.records is not None:
            batch = self.records.timed(batch)
        loss, norm = self.updated(batch, rate)
        return self.line(loss, norm, rate, perf_counter() - start)

    def updated(self, batch: Batch, rate: float) -> tuple[float, float]:
        """The optimizer's step over a whole batch: its loss, and the norm of its gradient."""
        engine = self.engine
        part = engine.accumulate(batch).double() / engine.world.tp.size
        with engine.world.comm.during("step"):
            told = engine.world.comm.all_reduce(torch.cat([part.reshape(1), self._asks()]), engine.world.everyone)
        norm = engine.update(rate)
        self.step += 1
        # read last: the device has work while the host prepares the optimizer's
        loss, asked, failed = told.tolist()
        self._someone_asked, self._save_failed = asked > 0, failed > 0
        return loss, norm

    def _asks(self) -> Tensor:
        """Whether this rank was asked to end, and whether it knows of a failed checkpoint: travels with the loss, so
        that all ranks stop after the same step."""
        failed = self.checkpoints is not None and bool(self.checkpoints.saver.failed)
        if not (failed or self.asked.asked):
            return self._nothing
        return moved(torch.tensor([self.asked.asked, failed], dtype=torch.float64), self.engine.world.device)

    def _evaluated(self, line: StepLine) -> StepLine:
        if self.held_out is None or not self._due(self.settings.eval_every):
            return line
        with self.records.other() if self.records is not None else nullcontext():
            found = evaluate(self.engine, self.held_out, self.settings.eval_steps)
        line = replace(line, eval_loss=found.loss, accuracy=found.accuracy)
        if self.order.task.model.inputs == "features":
            return line
        return replace(line, perplexity=math.exp(min(found.loss, 700.0)))

    def line(self, loss: float, norm: float, rate: float, seconds: float) -> StepLine:
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
        that were given are read. From here on the folder is this run's."""
        if self.settings.checkpoints:
            from shardwise.run.runtime.checkpoints.identity import identity_of
            from shardwise.run.runtime.checkpoints.of_run import RunCheckpoints

            self.checkpoints = RunCheckpoints(self.engine, self.settings, identity_of(self.order, self.source))
            self.step = self._loaded = self.checkpoints.resume()
        if self.records is not None:
            self.records.begun(self.step)
        if self.settings.init and (not self.step or self.engine.frozen()):
            from shardwise.run.runtime.weights.load import load_weights

            # no checkpoint has frozen weights
            load_weights(self.engine, Path(self.settings.init), frozen_only=bool(self.step))
        return self.step

    def release(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.release()

    def export(self) -> str:
        """The weights as they are now, in Hugging Face's layout: from a checkpoint, by the rank that leads. Why they
        could not be written."""
        from shardwise.run.runtime.checkpoints.folder import final_name
        from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
        from shardwise.run.runtime.checkpoints.save import SaveFailed, save
        from shardwise.run.runtime.weights.export import export

        out, task = Path(self.settings.export), self.order.task
        beside = out.with_name(f".{out.name}.checkpoint")
        kept = self.checkpoints is not None and not self.checkpoints.saver.failed
        try:
            found = (
                final_name(Path(self.settings.checkpoints), self.step) if kept else save(self.engine, beside, self.step)
            )
            if self.leads:
                export(task.tuned_model, found, out, task.job.seq, base=self.settings.init)
        except (SaveFailed, DamagedCheckpoint, OSError) as problem:
            return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        finally:
            if self.leads:
                shutil.rmtree(beside, ignore_errors=True)
        return ""


def _memory(device: torch.device) -> tuple[int, int]:
    """The most bytes this rank has held, and those the device or the machine has."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(device).total_memory
    # Linux counts in KiB, macOS in bytes
    unit = 1 if sys.platform == "darwin" else 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return used, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
