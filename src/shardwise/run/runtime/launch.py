"""A run on this machine: what would be refused later is refused here, then one rank runs in this process, or more are
started."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from shardwise.run.runtime.checkpoints.agree import AgreedRefusal
from shardwise.run.runtime.ranks import RanksFailed, run_ranks
from shardwise.run.runtime.rollout.engine import engine_task
from shardwise.run.runtime.rollout.order import refuse_unlike
from shardwise.run.runtime.share_gpu import SharedGpuSeats
from shardwise.run.runtime.train.ending import TrainingResult
from shardwise.run.runtime.train.feed import evaluated_on, trained_on
from shardwise.run.runtime.train.rank import BAD_INPUT, give_up, train
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings, checked
from shardwise.run.runtime.weights.export import check_export
from shardwise.run.runtime.weights.load import opened
from shardwise.user_cache import keep_compiled_code_private


def device_for(asked: str, ranks: int) -> str:
    """cuda where this machine has a device for every rank, else cpu."""
    if asked not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device: {asked!r} is unknown; write auto, cpu or cuda")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "cuda" and found < ranks:
        raise ValueError(f"device: {found} CUDA devices for {ranks} ranks; write --device cpu, or fewer ranks")
    return "cuda" if found >= ranks and asked != "cpu" else "cpu"


def machine_name(device: str) -> str:
    """As its driver calls it, or cpu, which is what `calibrate` calls a processor."""
    return torch.cuda.get_device_name() if device == "cuda" else device


def refuse(order: TrainingOrder) -> None:
    """Before the first step: what would end the run later."""
    settings, model = order.settings, order.task.model
    _writable(settings)
    if settings.init:
        opened(model, Path(settings.init))
    if settings.export:
        check_export(order.task.tuned_model, Path(settings.export))


def prepare(order: TrainingOrder) -> None:
    """Texts are tokenized, once for all ranks."""
    trained_on(order)
    if order.settings.eval_every:
        evaluated_on(order)


def _writable(settings: TrainingSettings) -> None:
    for field, text in (
        ("tensorboard", settings.tensorboard), ("checkpoints", settings.checkpoints), ("records", settings.records),
    ):  # fmt: skip
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


def launch(
    order: TrainingOrder, *, max_restarts: int = 0, elastic: bool = False, checksum_every: int = 0,
    shared: bool = False, before: Callable[[], None] = lambda: None,
) -> TrainingResult:  # fmt: skip
    """Under torchrun this process is one of its ranks. `before`: what is done once nothing is refused any more;
    `elastic`: replicas go on without a lost one; `shared`: all ranks have the same GPU."""
    checked(order.task)
    if elastic:
        if order.rollout is not None:
            raise ValueError("algorithm: rollouts cannot be run with --elastic; leave one of the two away")
        return _elastic(order, max_restarts, checksum_every, before)
    if order.rollout is not None:
        refuse_unlike(order.rollout, order.task, order.settings)
        engine_task(order.task, order.rollout)
    keep_compiled_code_private()
    ranks = order.ranks
    if "TORCHELASTIC_RUN_ID" in os.environ:
        try:
            if os.environ.get("RANK", "0") == "0":
                refuse(order)
                before()
            return train(order)
        except ConnectionError as error:
            give_up(error)
        except AgreedRefusal as refusal:
            if os.environ.get("RANK", "0") == "0":
                raise
            raise RanksFailed("", BAD_INPUT) from refusal
    refuse(order)
    prepare(order)
    before()
    if ranks == 1 and not max_restarts:
        return train(order)
    return run_ranks(order, ranks, max_restarts, seats=SharedGpuSeats() if shared else None)


def _elastic(order: TrainingOrder, restarts: int, every: int, before: Callable[[], None]) -> TrainingResult:
    from shardwise.run.runtime.elastic.keeper import run_elastic
    from shardwise.run.runtime.elastic.replicas import split_of

    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError("elastic: it starts its own ranks; write 'shardwise run' without torchrun")
    split_of(order)
    refuse(order)
    prepare(order)
    before()
    return run_elastic(order, restarts, every)
