"""Phases of a log of reinforcement learning beside their prediction."""

from collections.abc import Iterator
from statistics import median
from typing import Annotated

from msgspec import Struct

from shardwise.answers._why_question import LogMeasured
from shardwise.answers.answer import shown


class LoggedPhase(Struct, frozen=True, kw_only=True):
    """Of a step of reinforcement learning, beside its prediction."""

    phase: Annotated[str, shown("phase")]
    measured_s: Annotated[float, shown("measured s", "s")]
    """median"""
    share: Annotated[float, shown("%", "%")]
    """of the step"""
    predicted_s: Annotated[float | None, shown("predicted s", "s")]
    lost_s: Annotated[float | None, shown("more s", "s")]


def phases_of_log(each: LogMeasured) -> Iterator[LoggedPhase]:
    """Medians of the steps behind the first, and what `posttrain` says of the same layout and lengths."""
    steps = [step for step in each.log.steps[each.pace.dropped :] or each.log.steps if step.phases is not None]
    if not steps:
        return
    whole = median([step.seconds for step in steps if step.seconds] or [0.0])
    row = each.whole
    for name, field in PHASES.items():
        told = [value for step in steps if (value := getattr(step.phases, field)) is not None]
        said = None if row is None else getattr(row, field)
        if told:
            measured = median(told)
            yield LoggedPhase(
                phase=name, measured_s=measured, share=measured / whole if whole else 0.0, predicted_s=said,
                lost_s=None if said is None else measured - said,
            )  # fmt: skip
    if whole:
        yield LoggedPhase(
            phase="step", measured_s=whole, share=1.0, predicted_s=None if row is None else row.step_s,
            lost_s=None if row is None else whole - row.step_s,
        )  # fmt: skip


PHASES = {"rollout": "rollout_s", "log-probs": "log_probs_s", "update": "update_s", "weight sync": "sync_s"}
