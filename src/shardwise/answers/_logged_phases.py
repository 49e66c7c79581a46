"""Phases that a log states: of reinforcement learning beside their prediction, of others by their timers."""

from collections.abc import Iterator
from statistics import median
from typing import Annotated

from msgspec import Struct

from shardwise.answers._why_question import LogMeasured
from shardwise.answers.answer import shown


class LoggedPhase(Struct, frozen=True, kw_only=True):
    """Of a step, beside its prediction where that has one."""

    phase: Annotated[str, shown("phase")]
    measured_s: Annotated[float, shown("measured s", "s")]
    """median; of timers over all ranks, of the slowest"""
    share: Annotated[float | None, shown("%", "%")]
    """of the step, where its seconds are known"""
    predicted_s: Annotated[float | None, shown("predicted s", "s")]
    lost_s: Annotated[float | None, shown("more s", "s")]
    least_s: Annotated[float | None, shown("quickest rank s", "s")] = None
    """median, where the log has the ranks apart"""


def phases_of_log(each: LogMeasured) -> Iterator[LoggedPhase]:
    """Medians of the steps behind the first, and what `posttrain` says of the same layout and lengths."""
    steps = [step for step in each.log.steps[each.pace.dropped :] or each.log.steps if step.phases is not None]
    if not steps:
        yield from _timers(each)
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


def _timers(each: LogMeasured) -> Iterator[LoggedPhase]:
    after = each.log.steps[each.pace.dropped - 1].line if 0 < each.pace.dropped <= len(each.log.steps) else -1
    names = dict.fromkeys(timer.name for timer in each.log.timers)
    for name in list(names)[:MOST]:
        same = [timer for timer in each.log.timers if timer.name == name]
        same = [timer for timer in same if timer.line > after] or same
        low, high = median([timer.low_s for timer in same]), median([timer.high_s for timer in same])
        yield LoggedPhase(
            phase=name, measured_s=high, predicted_s=None, lost_s=None,
            share=high / each.pace.mean_s if each.pace.exact and each.pace.mean_s else None,
            least_s=low if low < high else None,
        )  # fmt: skip


MOST = 24
"""timers of a log"""
PHASES = {"rollout": "rollout_s", "log-probs": "log_probs_s", "update": "update_s", "weight sync": "sync_s"}
