"""Starts the ranks of a run on this machine: torchrun's elastic launcher, with its restarts."""

import os
import sys
import tempfile
from pathlib import Path

import msgspec
import torch
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from shardwise.runtime.train.feed import evaluated_on, trained_on
from shardwise.runtime.train.lines import StepLine
from shardwise.runtime.train.rank import give_up, train
from shardwise.runtime.train.task import TrainingOrder, TrainingSettings, checked, write_order
from shardwise.runtime.weights.export import check_export
from shardwise.runtime.weights.load import opened


def device_for(asked: str, ranks: int) -> str:
    """cuda where this machine has a device for every rank, else cpu."""
    if asked not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device: {asked!r} is unknown; write auto, cpu or cuda")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "cuda" and found < ranks:
        raise ValueError(f"device: {found} CUDA devices for {ranks} ranks; write --device cpu, or fewer ranks")
    return "cuda" if found >= ranks and asked != "cpu" else "cpu"


def prepare(order: TrainingOrder) -> None:
    """Once, before ranks start: what they would all refuse is refused here, and texts are tokenized."""
    settings, model = order.settings, order.task.model
    _writable(settings)
    trained_on(order)
    if settings.eval_every:
        evaluated_on(order)
    if settings.init:
        opened(model, Path(settings.init))
    if settings.export:
        check_export(model, Path(settings.export))


def _writable(settings: TrainingSettings) -> None:
    for field, text in (("tensorboard", settings.tensorboard), ("checkpoints", settings.checkpoints)):
        try:
            if text:
                Path(text).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{field}: {text!r} cannot be made ({error.strerror}); write a folder") from None
    try:
        if settings.log:
            _is_log(Path(settings.log))
            Path(settings.log).open("a").close()
    except OSError as error:
        raise ValueError(f"log: {settings.log!r} cannot be written ({error.strerror}); write a file") from None


def _is_log(path: Path) -> None:
    """Lines are appended: not to what is something else, and not to a pipe, which would wait for a reader."""
    if path.is_fifo():
        raise ValueError(f"log: {str(path)!r} is a pipe; write a file")
    if path.is_file():
        with path.open("rb") as file:
            if file.read(1) not in (b"", b"{"):
                raise ValueError(f"log: {str(path)!r} is there and holds no steps; write another path")


def launch(order: TrainingOrder, *, max_restarts: int = 0) -> list[StepLine]:
    """One rank runs here; more are started by torchrun. Under torchrun this is one of them."""
    checked(order.task)
    ranks = order.task.policy.gpus
    if "TORCHELASTIC_RUN_ID" in os.environ:
        try:
            return train(order)
        except ConnectionError as error:
            give_up(error)
    prepare(order)
    if ranks == 1 and not max_restarts:
        return train(order)
    from torch.distributed.run import main as torchrun

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="shardwise-run-") as folder:
        path = Path(folder) / "order.json"
        write_order(order, path)
        words = ["--standalone", "--nproc-per-node", str(ranks), "--max-restarts", str(max_restarts)]
        words += ["--monitor-interval", "0.1", "-m", "shardwise.runtime.train.rank", str(path)]
        try:
            torchrun(words)
        except SignalException:
            raise KeyboardInterrupt from None
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            raise ValueError(f"run: rank {rank} ended with {failure.exitcode}; its own words are above") from None
        sys.stderr.flush()
        return msgspec.json.decode((Path(folder) / "result.json").read_bytes(), type=list[StepLine])
