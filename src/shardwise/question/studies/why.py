"""Why one policy is faster than another, part by part; why a policy does not win."""

from msgspec import Struct

from shardwise.question.studies.parts import StepParts
from shardwise.report.report import Report
from shardwise.spec.policy import Policy
from shardwise.spec.rules import Verdict
from shardwise.units import gib, time_text

TimedStep = Report | StepParts
TIE = 5e-4
NAMED = 3
"""parts named in a sentence"""


class Difference(Struct, frozen=True, kw_only=True):
    part: str
    seconds: float
    """of the other step, less the winner's"""


class WhyNot(Struct, frozen=True, kw_only=True):
    policy: Policy
    verdict: str
    """illegal, out of memory, slower or it wins"""
    why: str
    step_s: float | None
    peak_bytes: float | None
    slower: float | None
    """step time over the winner's, less 1"""
    over_bytes: float
    waterfall: tuple[Difference, ...]
    nearest: Policy | None = None
    """where it is illegal: the legal policy that changes least"""


def waterfall(winner: TimedStep, other: TimedStep) -> tuple[Difference, ...]:
    """What each part adds to the other's step, largest loss first; the parts add up to the whole difference."""
    parts = dict.fromkeys([*winner.time_s, *other.time_s])
    found = [
        Difference(part=part, seconds=other.time_s.get(part, 0.0) - winner.time_s.get(part, 0.0)) for part in parts
    ]
    return tuple(sorted(found, key=lambda item: -item.seconds))


def because(differences: tuple[Difference, ...], step_s: float) -> str:
    """The parts that matter, losses and gains: 'bubble +120 ms, tp_comm -30 ms'."""
    large = sorted(differences, key=lambda item: -abs(item.seconds))[:NAMED]
    words = [
        f"{item.part} {'+' if item.seconds > 0 else '-'}{time_text(abs(item.seconds))}"
        for item in large
        if abs(item.seconds) > 1e-4 * step_s
    ]
    return ", ".join(words) or "no part differs"


def out_of_memory(report: Report, limit: float) -> str:
    stage = report.fullest_stage
    return f"out of memory by {gib(report.peak_bytes - limit)} GiB on stage {stage}: {report.largest_kind}"


def why_slower(winner: TimedStep, other: TimedStep) -> str:
    slower = other.step_s / winner.step_s - 1
    if abs(slower) < TIE:
        return "as fast"
    return f"step {slower:+.1%}: {because(waterfall(winner, other), winner.step_s)}"


def refused(policy: Policy, verdict: Verdict) -> WhyNot:
    return WhyNot(
        policy=policy, verdict="illegal", why=f"{verdict.rule}: {verdict.why}", step_s=None, peak_bytes=None,
        slower=None, over_bytes=0.0, waterfall=(), nearest=verdict.cure,
    )  # fmt: skip


def why_not(winner: TimedStep | None, other: Report, limit: float) -> WhyNot:
    """A legal policy against the winner (None when nothing fits) and the memory that may be filled."""
    over = max(other.peak_bytes - limit, 0.0)
    slower = None if winner is None else other.step_s / winner.step_s - 1
    if over:
        verdict, why = "out of memory", out_of_memory(other, limit)
    elif winner is None or slower is None or other.policy == winner.policy:
        verdict, why = "it wins", "the plan recommends it"
    elif slower <= TIE:
        verdict = "as fast" if slower >= -TIE else "faster"
        why = f"{why_slower(winner, other)}; {gib(limit - other.peak_bytes)} GiB of what may be filled stay free"
    else:
        verdict, why = "slower", why_slower(winner, other)
    return WhyNot(
        policy=other.policy, verdict=verdict, why=why, step_s=other.step_s, peak_bytes=other.peak_bytes, slower=slower,
        over_bytes=over, waterfall=() if winner is None else waterfall(winner, other),
    )  # fmt: skip
