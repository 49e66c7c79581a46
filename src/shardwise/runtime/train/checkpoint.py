"""Checkpoints by torch's DCP: every rank writes its own parts, any other layout reads what it needs of them.

A parameter and its moments are stored under the parameter's name and whole shape. A checkpoint is whole when its folder
has its final name: it is written beside it and moved. Training may go on meanwhile: the values are copied first, and
the ranks agree over a process group of their own.
"""

import re
import shutil
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_loader import load as read_checkpoint
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as write_checkpoint

from shardwise.runtime.train.engine import TrainingEngine
from shardwise.runtime.train.parts import LoadsParts, Parts, SavesParts
from shardwise.runtime.train.quiet import quiet

_FOLDER = re.compile(r"step-(\d{8})")


class CopyStager(AsyncStager):
    """What is written in the background: copies of the values, made before the next step changes them."""

    _synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return {name: v.copied() if isinstance(v, Parts) else v.clone() for name, v in state_dict.items()}

    def synchronize_staging(self) -> None:
        """The copies are there when `stage` returns."""

    def close(self) -> None:
        """Nothing is kept."""


class Checkpoints:
    """Those of one run; every rank makes one before the first step."""

    def __init__(self, engine: TrainingEngine, folder: Path, *, in_background: bool) -> None:
        self.engine, self.folder, self.in_background = engine, folder, in_background
        self.leads = engine.world.rank == 0
        if self.leads:
            for half in folder.glob(".step-*"):
                shutil.rmtree(half, ignore_errors=True)
        # messages of a checkpoint under way must not get between those of a step; they are in the host's memory
        spread = in_background and dist.is_initialized()
        self.group = dist.new_group(backend="gloo", timeout=engine.world.wait) if spread else None
        _meet()
        self._done = threading.Event()
        self._done.set()
        self._apart = False
        self._failed: BaseException | None = None

    def save(self, step: int) -> None:
        """Waits for the one before, if it is still under way."""
        self.wait()
        if not self.in_background:
            save(self.engine, self.folder, step)
            return
        state = _plain(state_of(self.engine), step) | _of_strategy(self.engine)
        self._done.clear()
        self._apart = True
        writing = async_save(
            state, checkpoint_id=str(_beside(self.folder, step)), planner=SavesParts(), process_group=self.group,
            async_stager=CopyStager(), no_dist=_alone(),
        )  # fmt: skip
        assert isinstance(writing, Future)
        writing.add_done_callback(lambda written: self._finish(written, step))

    def _finish(self, written: Future[Any], step: int) -> None:
        """In the thread that wrote: the first rank ends last, when everyone's parts are there."""
        try:
            written.result()
            if self.leads:
                _moved(self.folder, step)
        except BaseException as error:
            self._failed = error
        finally:
            self._done.set()

    def wait(self) -> None:
        """Until the last one is whole, which a rank knows of its own part alone: they meet."""
        self._done.wait()
        if self._apart and self.group is not None:
            dist.barrier(group=self.group)
        self._apart = False
        if self._failed is not None:
            raise RuntimeError(f"checkpoint: {self._failed}") from self._failed


def state_of(engine: TrainingEngine) -> dict[str, Parts]:
    """Parameters and moments by name. The first rank of those that hold the same writes it."""
    found: dict[str, Parts] = {}
    engine.optimizer.ensure_states()
    own = engine.across.own_names if engine.across else ""
    for local, states in zip(engine.locals(), engine.optimizer.states(), strict=True):
        for kind, values in (("parameter", local.tensor), *states.items()):
            for span in local.spans:
                name = f"{own}{kind}.{span.held.piece.name}"
                parts = found.setdefault(name, Parts(span.held.piece.shape, values.dtype))
                parts.add(span, values)
    return found


def save(engine: TrainingEngine, folder: Path, step: int) -> Path:
    """Whole or not there: a run that dies while it writes leaves a folder that no one reads."""
    if engine.world.rank == 0:
        shutil.rmtree(_beside(folder, step), ignore_errors=True)
    _meet()
    state = _plain(state_of(engine), step) | _of_strategy(engine)
    with quiet():
        write_checkpoint(state, checkpoint_id=str(_beside(folder, step)), planner=SavesParts(), no_dist=_alone())
    _meet()
    if engine.world.rank == 0:
        _moved(folder, step)
    _meet()
    return _final(folder, step)


def _final(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}"


def _beside(folder: Path, step: int) -> Path:
    return folder / f".step-{step:08}"


def _moved(folder: Path, step: int) -> None:
    shutil.rmtree(_final(folder, step), ignore_errors=True)
    _beside(folder, step).rename(_final(folder, step))


def load(engine: TrainingEngine, path: Path) -> int:
    """The step it was taken after. The layout may be another than the one that wrote it."""
    strategy = _of_strategy(engine)
    wanted = _plain(state_of(engine), 0) | strategy
    _refuse_other_strategy(path, wanted)
    with quiet():
        read_checkpoint(wanted, checkpoint_id=str(path), planner=LoadsParts(flatten_state_dict=False), no_dist=_alone())
    step = int(wanted["step"])
    if engine.across is not None:
        head = _head(engine)
        engine.across.load({name.removeprefix(head): tensor for name, tensor in strategy.items()}, step)
    engine.optimizer.set_steps(step)
    for sync in engine.syncs:
        sync.gather()
    engine.world.comm.events.clear()
    return step


def _head(engine: TrainingEngine) -> str:
    return f"sync.{engine.world.rank}."


def _of_strategy(engine: TrainingEngine) -> dict[str, Tensor]:
    """State of a strategy of data parallelism belongs to its rank."""
    saved = engine.across.saved() if engine.across is not None else {}
    return {_head(engine) + name: tensor for name, tensor in saved.items()}


def _refuse_other_strategy(path: Path, wanted: dict[str, Any]) -> None:
    known = set(FileSystemReader(str(path)).read_metadata().state_dict_metadata)
    missing = sorted(set(wanted) - known)
    if missing:
        raise ValueError(
            f"checkpoints: {path.name} lacks {missing[0]!r}; it was written with another --sync or, under one, another "
            "number of ranks, and workers that differ cannot be dealt out anew"
        )


def load_newest(engine: TrainingEngine, folder: Path) -> int:
    found = newest(folder)
    return 0 if found is None else load(engine, found)


def newest(folder: Path) -> Path | None:
    whole = sorted(p for p in folder.glob("step-*") if _FOLDER.fullmatch(p.name)) if folder.is_dir() else []
    return whole[-1] if whole else None


def _plain(state: dict[str, Parts], step: int) -> dict[str, Any]:
    return {**state, "step": torch.tensor(step)}


def _meet() -> None:
    if not _alone():
        dist.barrier()


def _alone() -> bool:
    return not dist.is_initialized()
