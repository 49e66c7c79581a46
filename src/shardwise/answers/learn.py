"""`learn`: what runs of yours say of each cause that a prediction can err by, kept in a profile."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, Notes, Part, shown, table

Spread = Annotated[float, shown("spread before", lambda value: f"{value:.2f}")]


class CauseRow(Struct, frozen=True, kw_only=True):
    """One cause that predictions can err by, before and after the runs."""

    cause: Annotated[str, shown("cause")]
    factor: Annotated[float, shown("factor", lambda value: f"{value:.2f}")]
    """on a step that it decides alone"""
    spread_before: Spread
    """standard deviation of the factor's logarithm"""
    spread: Annotated[float, shown("after", lambda value: f"{value:.2f}")]


class LearnedRunRow(Struct, frozen=True, kw_only=True):
    """One run of the profile."""

    source: Annotated[str, shown("run")]
    job: Annotated[str, shown("job")]
    program: Annotated[str, shown("program")]
    measured_s: Annotated[float, shown("measured s", "s")]
    predicted_s: Annotated[float, shown("predicted s", "s")]
    ratio: Annotated[float, shown("ratio", lambda value: f"{value:.2f}")]
    """measured over predicted"""
    taken: Annotated[bool, shown("taken", "yes")]
    """False: it contradicts the others"""


class LearnAnswer(Answer, frozen=True, kw_only=True):
    """A profile's runs, and what they say together."""

    out: str
    device: str
    runs: Sequence[LearnedRunRow]
    causes: Sequence[CauseRow]
    """those that the runs tell most of first"""
    next: str = ""
    """what to measure to know more"""

    @property
    def exit_code(self) -> int:
        """1: nothing could be learned from a run that was given."""
        return 0 if all(run.taken for run in self.runs) else 1

    def parts(self) -> Iterator[Part]:
        if self.runs:
            yield table(f"{self.device}: runs", self.runs)
            yield table("what they say", self.causes)
        yield Notes([self.next] if self.next else [], "measure next")


ANSWERS = (LearnAnswer,)
