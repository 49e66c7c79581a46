"""Where the steps are told: JSON lines, TensorBoard, stderr - with a bar below the lines on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from shardwise.measured.record.writer import AddedFile, forget_stderr
from shardwise.run.runtime.train.lines import StepLine
from shardwise.run.runtime.train.task import TrainingSettings
from shardwise.run.runtime.train.tensorboard import EventFile


class StepSink(Protocol):
    def __call__(self, line: StepLine, /) -> None: ...


class Teller:
    """Every step goes to all of them; one that cannot be written does not end the run."""

    def __init__(self, settings: TrainingSettings, shown: StepSink) -> None:
        self.log = AddedFile(Path(settings.log), "log") if settings.log else None
        self.events = EventFile(Path(settings.tensorboard)) if settings.tensorboard else None
        self.shown, self._blind = shown, ""

    def __call__(self, line: StepLine) -> None:
        if self.log is not None:
            # a loss that is not a number is null: JSON has no word for it
            self.log.add(msgspec.json.encode(line.fields()) + b"\n")
        if self.events is not None:
            self.events.add(line.step, line.scalars())
        try:
            self.shown(line)
        except OSError as error:
            self._blind = f"stderr ({error.strerror})"
            forget_stderr()

    @property
    def unwritten(self) -> list[str]:
        """What lacks steps, and why."""
        files = [self.log, self.events.file if self.events is not None else None]
        return [*(file.failed for file in files if file is not None and file.failed), *filter(None, [self._blind])]


@contextmanager
def teller(settings: TrainingSettings, done: int) -> Iterator[Teller]:
    """For the rank that leads; `done`: steps that were made before."""
    with _stderr(settings, done) as shown:
        yield Teller(settings, shown)


@contextmanager
def _stderr(settings: TrainingSettings, done: int) -> Iterator[StepSink]:
    if settings.progress == "none":
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield _printed if settings.progress == "lines" else _every_tenth(settings.steps)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=settings.steps, completed=done)

        def show(line: StepLine) -> None:
            for text in _texts(line) if settings.progress == "lines" else ():
                console.print(text, soft_wrap=True)
            bar.update(task, completed=line.step, description=f"loss {line.loss:.4f}")

        yield show


def _printed(line: StepLine) -> None:
    for text in _texts(line):
        print(text, file=sys.stderr, flush=True)


def _every_tenth(steps: int) -> StepSink:
    """Where there is no terminal to draw a bar on."""
    apart = max(steps // 10, 1)

    def show(line: StepLine) -> None:
        if line.step % apart == 0 or line.step == steps:
            _printed(line)

    return show


def _texts(line: StepLine) -> list[str]:
    return [text for text in (line.text(), line.eval_text()) if text]
