"""`checkpoints convert`: what was written in another format, proven equal, and what could not be carried over."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from shardwise.answers.answer import Answer, FactList, Part
from shardwise.run.runtime.formats.convert import convert
from shardwise.run.runtime.formats.opened import open_checkpoint
from shardwise.units import memory_text


class ConvertAnswer(Answer, frozen=True, kw_only=True):
    source: str
    source_format: str
    out: str
    format: str
    ranks: int
    """whose files the rows were dealt out to"""
    tensors: int
    bytes: int
    step: int | None
    equal: bool
    """every tensor was read back and compared bit for bit"""
    left: Mapping[str, str]
    """what was not carried over: why"""

    def parts(self) -> Iterator[Part]:
        step = "none stated" if self.step is None else f"{self.step:,}"
        yield FactList(f"{self.source_format} to {self.format}", [
            ("written", self.out), ("tensors", f"{self.tensors:,}, {memory_text(self.bytes)}"), ("step", step),
            ("proof", "read back, every tensor equal bit for bit"),
        ])  # fmt: skip
        if self.left:
            yield FactList("not carried over", list(self.left.items()))


ANSWERS = (ConvertAnswer,)


def convert_answer(source: Path, out: Path, to: str, ranks: int, read: Callable[[int], None]) -> ConvertAnswer:
    """`read`: called with bytes read."""
    opened = open_checkpoint(source, "source")
    done = convert(opened, to, out, ranks, read)
    return ConvertAnswer(
        source=str(source), source_format=opened.format, out=str(out), format=to, ranks=ranks, tensors=done.tensors,
        bytes=done.bytes, step=done.step, equal=True, left=done.left,
    )  # fmt: skip
