"""A published layout held against its own report and against every layout that could have run instead."""

from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from shardwise.measured.validate.layouts import PublishedLayout
from shardwise.plan.standing import Allowed, Contest
from shardwise.plugins.pipeline import usual_schedule
from shardwise.question.studies.build import report_of
from shardwise.question.studies.why import Difference, waterfall, why_slower
from shardwise.report.report import Report
from shardwise.spec.arch import model_of
from shardwise.spec.model import Model
from shardwise.spec.policy import AXES, Policy
from shardwise.spec.rules import Verdict, verdict_of
from shardwise.spec.software import Stack
from shardwise.step.estimate.mfu import conventions, headline
from shardwise.work.case import case_of

TOP = 0.05
SURELY = 0.9
"""chance to run out of memory above which a run that ran is mispredicted"""


class Place(Struct, frozen=True, kw_only=True):
    """Where the layout stands in the space of one stack."""

    stack: str
    step_s: float
    """of the layout, priced by this stack"""
    legal: int
    fitting: int
    faster: int
    """fitting policies of the space with a shorter step"""
    share_faster: float
    best: Policy | None
    best_step_s: float | None
    why: str
    """the layout against the best, part by part"""
    waterfall: tuple[Difference, ...]

    @property
    def at_the_top(self) -> bool:
        return self.share_faster <= TOP


class MissingFeature(Struct, frozen=True, kw_only=True):
    """Something the best policy of today has and the program of the layout had not."""

    what: str
    change: float | None
    """of the layout's step, when it alone is added; None where the layout cannot run with it alone"""


class LayoutStudy(Struct, frozen=True, kw_only=True):
    name: str
    published: PublishedLayout
    policy: Policy
    verdict: Verdict
    report: Report | None
    """by the layout's own stack; None where it is illegal"""
    reported_step_s: float
    reported_mfu: float
    """as `mfu_causal_half` counts"""
    own: Place | None
    """among what the layout's own program could run"""
    own_same_recompute: float | None
    """share faster among those of its own program that recompute as it does"""
    today: Place | None
    """among what the modern stack runs; None where that is the same"""
    degrees_today: float | None
    """share of today's policies faster than the best one with the layout's degrees; None where none fits"""
    missing: tuple[MissingFeature, ...]

    @property
    def had_room(self) -> bool:
        """It fits, or lacks no more memory than published peaks differ from predicted ones."""
        return self.report is not None and (self.report.fits or self.report.out_of_memory_chance < SURELY)

    @property
    def error(self) -> float | None:
        """predicted over reported step time, less 1"""
        return None if self.report is None else self.report.step_s / self.reported_step_s - 1

    @property
    def inside_band(self) -> bool | None:
        if self.report is None or self.report.error_range is None:
            return None
        low, high = self.report.error_range
        return self.report.step_s * (1 + low) <= self.reported_step_s <= self.report.step_s * (1 + high)


@dataclass(frozen=True)
class _Case:
    layout: PublishedLayout
    model: Model

    def report(self, policy: Policy, stack: Stack) -> Report:
        return report_of(case_of(self.model, self.layout.cluster, self.layout.job, stack), policy, traffic=False)

    def verdict(self, policy: Policy) -> Verdict:
        return verdict_of(self.model, self.layout.cluster, self.layout.job, policy, cure=False)

    def contest(self, stack: Stack, allowed: Allowed) -> Contest:
        return Contest(case_of(self.model, self.layout.cluster, self.layout.job, stack), allowed)


def judge(layout: PublishedLayout, modern: Stack, *, ranked: bool = True) -> LayoutStudy:
    """`modern`: the stack whose whole space the layout is ranked in besides its own program's. `ranked`: among all that
    could have run instead, which takes hundreds of times as long as the prediction."""
    case = _Case(layout, model_of(layout.model))
    policy, report = _chosen(case)
    reported = _reported_step(case, policy)
    if report is None or not ranked:
        own = today = alike = degrees = None
    else:
        contest = case.contest(layout.stack, layout.allowed)
        same = layout.stack == modern and not layout.allowed
        rivals = contest if same else case.contest(modern, {})
        own = _place(case, policy, contest)
        today = None if same else _place(case, policy, rivals)
        alike = contest.standing(own.step_s, {"recompute": [policy.recompute]}).share
        degrees = _degrees(case, policy, rivals)
    rival = today or own
    return LayoutStudy(
        name=layout.name,
        published=layout,
        policy=policy,
        verdict=case.verdict(policy),
        report=report,
        reported_step_s=reported,
        reported_mfu=_mfu(case, reported),
        own=own,
        own_same_recompute=alike,
        today=today,
        degrees_today=degrees,
        missing=() if rival is None or rival.best is None else _missing(case, policy, rival.best, modern),
    )


def _chosen(case: _Case) -> tuple[Policy, Report | None]:
    """The fastest candidate that fits; else the smallest legal one; else the first."""
    legal = [policy for policy in case.layout.candidates if case.verdict(policy).legal]
    if not legal:
        return case.layout.candidates[0], None
    reports = [case.report(policy, case.layout.stack) for policy in legal]
    best = min(reports, key=lambda r: (not r.fits, r.step_s if r.fits else r.peak_bytes))
    return best.policy, best


def _reported_step(case: _Case, policy: Policy) -> float:
    """Seconds per step behind whatever the publication states."""
    layout, stated = case.layout, case.layout.reported
    if stated.step_s is not None:
        return stated.step_s
    tokens = layout.job.step_tokens / layout.cluster.gpus
    if stated.tokens_per_s_per_gpu is not None:
        return tokens / stated.tokens_per_s_per_gpu
    counted = {c.key: c.flops_per_token for c in conventions(case.model, layout.job.seq, policy.recompute)}
    rate = stated.tflops_per_gpu * 1e12 if stated.tflops_per_gpu is not None else (stated.mfu or 0.0) * _peak(case)
    return tokens * counted[stated.counts] / rate


def _peak(case: _Case) -> float:
    return case.layout.cluster.gpu.peak(case.layout.job.precision.compute)


def _mfu(case: _Case, step_s: float) -> float:
    counted = headline(case.model, case.layout.job.seq)
    return counted.utilization(case.layout.job.step_tokens / step_s / case.layout.cluster.gpus, _peak(case))


def _place(case: _Case, policy: Policy, contest: Contest) -> Place:
    stack = contest.stack
    report = case.report(policy, stack)
    found = contest.standing(report.step_s)
    best = None if found.fastest is None else case.report(found.fastest, stack)
    ahead = best is not None and found.faster > 0
    return Place(
        stack=stack.name, step_s=report.step_s, legal=found.legal, fitting=found.fitting, faster=found.faster,
        share_faster=found.share, best=found.fastest, best_step_s=None if best is None else best.step_s,
        why=why_slower(best, report) if ahead and best is not None else "nothing that fits is faster" if best
        else f"nothing that {stack.name} can run fits",
        waterfall=waterfall(best, report) if best is not None and ahead else (),
    )  # fmt: skip


def _missing(case: _Case, policy: Policy, best: Policy, stack: Stack) -> tuple[MissingFeature, ...]:
    before = case.report(policy, stack).step_s
    found = []
    for field, what in case.layout.lacks.items():
        value = getattr(best, field)
        if value == getattr(policy, field) or value in case.layout.allowed[field]:
            continue
        changed = _with(policy, field, value)
        runs = case.verdict(changed).legal
        found.append(
            MissingFeature(what=what, change=case.report(changed, stack).step_s / before - 1 if runs else None)
        )
    return tuple(found)


def _with(policy: Policy, field: str, value: bool | int | str) -> Policy:
    changed = replace(policy, **{field: value})
    return replace(changed, schedule=usual_schedule(changed.vpp)) if field == "vpp" and changed.vpp > 1 else changed


def _degrees(case: _Case, policy: Policy, rivals: Contest) -> float | None:
    """What modern software makes of the same degrees, among all that it can run."""
    best = rivals.standing(0.0, {name: [getattr(policy, name)] for name in AXES}).fastest
    return None if best is None else rivals.standing(case.report(best, rivals.stack).step_s).share
