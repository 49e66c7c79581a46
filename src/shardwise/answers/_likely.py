"""Likely causes of the difference between a measured step and its prediction, by how far published runs err by each."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers._why_question import RunAsMeant
from shardwise.answers.answer import Part, shown, table
from shardwise.measured.learn import measured_run, shares_of
from shardwise.step.estimate.band import band_of

SHOWN = 4
LEAST = 0.01
"""share of the predicted step: a smaller part is not listed"""


class LikelyCause(Struct, frozen=True, kw_only=True):
    cause: Annotated[str, shown("likely cause")]
    seconds: Annotated[float, shown("ms", lambda seconds: f"{seconds * 1e3:+,.1f}")]
    """of the difference; below zero: faster than predicted"""
    spread_s: Annotated[float, shown("+-", lambda seconds: f"{seconds * 1e3:,.1f}")]
    """standard deviation, since a log states only the sum"""


def likely_causes(ran: RunAsMeant | None, step_s: float | None) -> list[LikelyCause]:
    """None where the step or its prediction is not known."""
    if ran is None or not step_s or band_of(ran.launch.case) is None:
        return []
    run = measured_run(ran.launch.case, ran.launch.policy, "this run", step_s, None)
    return [
        LikelyCause(cause=each.cause, seconds=each.seconds, spread_s=each.spread_s)
        for each in shares_of(run)[:SHOWN]
        if abs(each.seconds) > LEAST * run.predicted_s
    ]


def likely_table(causes: Sequence[LikelyCause]) -> Iterator[Part]:
    if causes:
        yield table("likely causes of the difference, by published runs", causes)
