"""Writing checkpoints while a run goes on: values are copied first, and ranks agree over a process group of their own.

A step has its final name when every part in its manifest is there. What goes wrong on any rank is known to all of them.
"""

import re
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as write_checkpoint

from shardwise.measured.record.writer import say
from shardwise.run.runtime.checkpoints.agree import Agreement
from shardwise.run.runtime.checkpoints.folder import beside, final_name, prune
from shardwise.run.runtime.checkpoints.opened import OpenedFolder
from shardwise.run.runtime.checkpoints.state import state_of
from shardwise.run.runtime.checkpoints.storage import BlockWriter
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.parts import Parts, SavesParts
from shardwise.run.runtime.train.quiet import quiet


class CopyStager(AsyncStager):
    """What is written in the background: copies of the values, made before the next step changes them."""

    _synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return {name: v.copied() if isinstance(v, Parts) else v.clone() for name, v in state_dict.items()}

    def synchronize_staging(self) -> None:
        """The copies are there when `stage` returns."""

    def close(self) -> None:
        """Nothing is kept."""


class SaveFailed(RuntimeError):
    """On all ranks."""


class CheckpointSaver:
    """Writes those of one run; every rank makes one before the first step. `check`: OSError where the folder is not the
    one that was opened. `keep`: so many newest ones stay; 0: all. `go_on`: when one has failed, others are tried."""

    def __init__(
        self, engine: TrainingEngine, folder: Path, agreed: Agreement, *, of: Mapping[str, Any] | None = None,
        check: Callable[[], None] = lambda: None, in_background: bool = True, keep: int = 0, go_on: bool = False,
    ) -> None:  # fmt: skip
        self.engine, self.folder, self.agreed, self.of, self.keep = engine, folder, agreed, of or {}, keep
        self.check, self.in_background, self.go_on = check, in_background, go_on
        self.saved: int | None = None
        """last step that this run has saved, or gone on from"""
        self.failed = ""
        """what went wrong with the last one; the first rank has said it"""
        self._done = threading.Event()
        self._done.set()

    def save(self, step: int) -> None:
        """Waits for the one before, if it is still under way."""
        self.wait()
        if self.failed and not self.go_on:
            # all ranks know by now, and the run is about to end
            return
        self.failed = ""
        engine, common = self.engine, self._common(step)
        if not self.in_background:
            writing: Future[Any] = Future()
            try:
                writing.set_result(write_checkpoint(state_of(engine), **common))
            except CheckpointException as problem:
                writing.set_exception(problem)
            self._finish(writing, step)
            return
        self._done.clear()
        under_way = async_save(state_of(engine), async_stager=CopyStager(), **common)
        assert isinstance(under_way, Future)
        under_way.add_done_callback(lambda written: self._finish(written, step))

    def _common(self, step: int) -> dict[str, Any]:
        return {
            "storage_writer": BlockWriter(self.folder, step, self.agreed.rank, self.of, self.check),
            "planner": SavesParts(), "process_group": self.agreed.group, "no_dist": not dist.is_initialized(),
        }  # fmt: skip

    def _finish(self, written: Future[Any], step: int) -> None:
        """In the thread that wrote."""
        try:
            try:
                written.result()
            except BaseException as problem:
                self.failed = f"checkpoint of step {step}: {reason_of(problem)}"
                self._tell(self.failed)
                if self.agreed.rank == 0:
                    self._clear(step)
                return
            self.saved = step
            if self.keep and self.agreed.rank == 0:
                try:
                    self.check()
                    prune(self.folder, self.keep)
                except OSError as problem:
                    self._tell(f"checkpoints: older ones than the {self.keep} newest cannot be deleted: {problem}")
        finally:
            self._done.set()

    def _clear(self, step: int) -> None:
        """Of what failed: it may be why the disk is full."""
        with suppress(OSError):
            self.check()
            shutil.rmtree(beside(self.folder, step), ignore_errors=True)

    def _tell(self, line: str) -> None:
        if self.agreed.rank == 0:
            say(line)

    def wait(self) -> None:
        """Until the last one is whole, or has failed."""
        self._done.wait()


def reason_of(problem: BaseException) -> str:
    """One line: of several ranks the first that failed, and what the system said."""
    if isinstance(problem, CheckpointException):
        rank, (why, _) = next(iter(problem.failures.items()))
        return f"{_said(why)} (rank {rank})"
    return f"the ranks lost each other ({_said(problem)})" if isinstance(problem, RuntimeError) else _said(problem)


def _said(why: BaseException) -> str:
    """In one line, without the place in torch's own sources that some begin with."""
    said = (why.strerror if isinstance(why, OSError) else None) or str(why) or type(why).__name__
    return re.sub(r"^\[\S*\] ", "", said.splitlines()[0]).split(". ")[0][:200]


def save(engine: TrainingEngine, folder: Path, step: int, of: Mapping[str, Any] | None = None) -> Path:
    """At once, by all ranks, in a folder that nobody else writes in."""
    folder.mkdir(parents=True, exist_ok=True)
    opened = OpenedFolder(folder)
    saver = CheckpointSaver(engine, folder, Agreement(_WAIT), of=of, check=opened.check, in_background=False)
    try:
        with quiet():
            saver.save(step)
    finally:
        opened.close()
    if saver.failed:
        raise SaveFailed(saver.failed)
    return final_name(folder, step)


_WAIT = timedelta(minutes=10)
