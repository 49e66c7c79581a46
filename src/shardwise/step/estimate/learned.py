"""Steps corrected by the runs a profile holds: the mean of the posterior, its band, and what was learned of each cause.

Runs of another program than the case's say nothing here. A part of the step takes its own factor and that of the whole
step; what sizes and hidden communication add is shared by all parts.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardwise.arrays import Floats
from shardwise.cost.calibrate.profile import LearnedRun, Profile
from shardwise.step.estimate.band import ErrorBand, band_of
from shardwise.step.estimate.causes import CAUSES, HIDDEN, SHARES, causes_of
from shardwise.step.estimate.posterior import Posterior, prior_of
from shardwise.step.estimate.time import Times
from shardwise.work import Work
from shardwise.work.case import Case

COVERED = 1.5
"""a step this many times as uncertain as one of the runs themselves lies outside what they cover"""


def job_of(case: Case) -> str:
    return f"{case.model.name} on {case.cluster.gpu.name}"


def runs_for(profile: Profile | None, stack: str) -> tuple[LearnedRun, ...]:
    """Those of the same program, whichever release."""
    program = _program(stack)
    return () if profile is None else tuple(run for run in profile.runs if _program(run.stack) == program)


def _program(stack: str) -> str:
    return stack.partition("@")[0]


def causes_of_runs(runs: Sequence[LearnedRun]) -> Floats:
    """A row for each run, a column for each of CAUSES."""
    return np.array([[run.causes.get(name, 0.0) for name in CAUSES] for run in runs]).reshape(len(runs), len(CAUSES))


def posterior_of(runs: Sequence[LearnedRun]) -> Posterior:
    errors = np.log([run.measured_s / run.predicted_s for run in runs]) if runs else np.empty(0)
    return Posterior(prior_of(False), causes_of_runs(runs), errors, [run.job for run in runs])


def after_runs(case: Case, work: Work, times: Times) -> Times:
    """The same where the case's profile holds no run of its program."""
    runs = runs_for(case.profile, case.stack.name)
    if not runs:
        return times
    known, job = posterior_of(runs), job_of(case)
    step = times.step_s * np.exp(known.at(_causes(case, work, times), job).mean)
    factors, every = known.factors(job), np.ones_like(step)
    of_part = {part: np.exp(factors[CAUSES.index(name)]) for name, parts in SHARES.items() for part in parts}
    parts = {part: seconds * of_part.get(part, 1.0) for part, seconds in times.parts.items()}
    whole = step / sum(parts.values(), start=0.0 * every)
    return replace(times, step_s=step, parts={part: seconds * whole for part, seconds in parts.items()})


def least_after_runs(case: Case, work: Work, times: Times) -> Times:
    """A bound below `after_runs` of whatever settings the policies of these times are given."""
    runs = runs_for(case.profile, case.stack.name)
    if not runs:
        return times
    known, job, causes = posterior_of(runs), job_of(case), _causes(case, work, times)
    factors = known.factors(job)
    open_ = [CAUSES.index(name) for name in (*HIDDEN, "zero 3", "narrow numbers")]
    shares = [CAUSES.index(name) for name in SHARES]
    settled = [place for place in range(len(CAUSES)) if place not in (*open_, *shares)]
    least = min(0.0, factors[shares].min()) + np.minimum(factors[open_], 0.0).sum()
    fixed = np.isin(np.arange(len(CAUSES)), settled).astype(float)
    scale = np.exp(causes[:, settled] @ factors[settled] + least + known.least_near(causes, fixed, job))
    parts = {part: seconds * scale for part, seconds in times.parts.items()}
    return replace(times, step_s=times.step_s * scale, parts=parts)


def learned_band(case: Case, work: Work, times: Times) -> ErrorBand | None:
    """Of the first policy's step, which `after_runs` corrected. None where there is nothing to correct it by."""
    runs, blind = runs_for(case.profile, case.stack.name), band_of(case)
    if not runs or blind is None:
        return None
    known, job = posterior_of(runs), job_of(case)
    found = known.at(_causes(case, work, times)[:1], job)
    reach = float(found.reach * found.deviation[0])
    near = float(np.median(known.at(known.causes, job).deviation))
    covered = "within" if found.deviation[0] <= COVERED * near else "outside"
    moved = ", ".join(said(known, job)) or "as predicted"
    words = f"learned from {_counted(len(runs))}: {moved}; this step is {covered} what they cover"
    return ErrorBand(float(np.expm1(-reach)), float(np.expm1(reach)), blind.missing, words)


def change_reach(case: Case, work: Work, times: Times) -> Floats:
    """How far the logarithm of the change from the first policy's step to each of the others' may lie from its
    prediction, in a band of 80 %."""
    causes, known = _causes(case, work, times), posterior_of(runs_for(case.profile, case.stack.name))
    return known.change(causes[0], causes[1:], job_of(case))


def said(known: Posterior, job: str, most: int = 3) -> list[str]:
    """The causes that runs moved most, each with its factor on a step that it decides alone."""
    factors = known.factors(job)
    moved = sorted(range(len(CAUSES)), key=lambda place: -abs(factors[place]))
    told = [place for place in moved if abs(factors[place]) >= 0.01 and known.causes[:, place].any()]
    return [f"{CAUSES[place]} x {np.exp(factors[place]):.2f}" for place in told[:most]]


def learned_run(
    case: Case, work: Work, times: Times, source: str, measured_s: float, offset: float | None
) -> LearnedRun:
    """`times`: of one policy, as it was predicted without any run."""
    row = _causes(case, work, times)[0]
    causes = {name: round(float(value), 6) for name, value in zip(CAUSES, row, strict=True) if value}
    return LearnedRun(
        source=source, job=job_of(case), stack=case.stack.name, measured_s=measured_s,
        predicted_s=float(times.step_s[0]), causes=causes, memory_offset_bytes=offset,
    )  # fmt: skip


def _causes(case: Case, work: Work, times: Times) -> Floats:
    band = band_of(case)
    return causes_of(case, work, times, band.missing if band else ())


def _counted(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"
