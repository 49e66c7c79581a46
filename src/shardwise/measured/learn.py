"""Runs of one site added to a profile: which are taken, which contradict the others, what is still open."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from shardwise.cost.calibrate.profile import LearnedRun, Profile
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.causes import CAUSES, SHARES
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.learned import learned_run, posterior_of
from shardwise.step.estimate.posterior import Posterior, prior_of
from shardwise.work.case import Case

FAR = 3.0
"""deviations from what the other runs foretell at which a run contradicts them"""
MEASURE = {
    "tp and cp": "a run with more tensor parallelism", "ep": "a run with more expert parallelism",
    "pp": "a run with more stages", "dp": "a run over more data-parallel ranks",
    "bubble": "a run with fewer micro-batches",
    "host": "a run with a smaller micro-batch", "recompute": "a run that recomputes",
    "compute": "one more run like these", "optimizer": "a run with fewer micro-batches",
}  # fmt: skip
"""which run would tell most of a cause"""


class CauseLearned(NamedTuple):
    cause: str
    factor: float
    before: float
    after: float


class CauseShare(NamedTuple):
    """One cause's part in the difference between a measured step and its prediction."""

    cause: str
    seconds: float
    spread_s: float
    """standard deviation: a log tells only the sum"""


def measured_run(case: Case, policy: Policy, source: str, measured_s: float, peak_bytes: float | None) -> LearnedRun:
    """`case`: with the rates of the profile and without its runs, so that runs compose in any order."""
    found = estimate(case, Policies.of([policy]), every_stage=True)
    offset = None if peak_bytes is None else peak_bytes - float(found.memory.peak[0])
    return learned_run(case, found.work, found.times, source, measured_s, offset)


def with_runs(profile: Profile, runs: Iterable[LearnedRun]) -> tuple[Profile, list[LearnedRun]]:
    """The profile with the runs that agree with those it has, and the others. A run that it has already (the same file
    and program) is replaced. Two runs that contradict each other are both taken: nobody knows which is right."""
    kept, refused = list(profile.runs), []
    for run in runs:
        this = (run.source, run.stack, run.causes)
        kept = [other for other in kept if (other.source, other.stack, other.causes) != this]
        if contradicts(run, kept):
            refused.append(run)
        else:
            kept.append(run)
    return replace(profile, runs=tuple(kept)), refused


def contradicts(run: LearnedRun, others: Sequence[LearnedRun]) -> bool:
    """Whether at least two others of its job agree and foretell another step."""
    alike = tuple(other for other in others if (other.stack, other.job) == (run.stack, run.job))
    if len(alike) < 2:
        return False
    row = posterior_of((run,))
    found = posterior_of(alike).at(row.causes, run.job)
    return bool(abs(row.errors[0] - found.mean[0]) > FAR * found.deviation[0])


def what_runs_say(runs: tuple[LearnedRun, ...]) -> list[CauseLearned]:
    """Of each cause that the runs have, most learned first; for a step of the first run's job."""
    known, prior = posterior_of(runs), prior_of(False)
    job, factors = runs[0].job, posterior_of(runs).factors(runs[0].job)
    before = np.sqrt(prior.site + prior.job)
    after = np.array([_deviation(known, place, job) for place in range(len(CAUSES))])
    found = [
        CauseLearned(name, float(np.exp(factors[place])), float(before[place]), float(after[place]))
        for place, name in enumerate(CAUSES)
        if np.any(known.causes[:, place])
    ]
    return sorted(found, key=lambda row: row.after / row.before)


def shares_of(run: LearnedRun) -> list[CauseShare]:
    """The difference dealt out to its causes in proportion to how often predictions err by each, the largest first."""
    prior, row = prior_of(False), posterior_of((run,)).causes[0]
    means, variances = row * prior.mean, row**2 * (prior.site + prior.job + prior.own)
    error, whole = float(np.log(run.measured_s / run.predicted_s)), float(variances.sum())
    if not error or not whole:
        return []
    second = (run.measured_s - run.predicted_s) / error
    shares = means + variances / whole * (error - means.sum())
    spreads = np.sqrt(variances * (1.0 - variances / whole))
    found = [
        CauseShare(name, float(share) * second, float(spread) * abs(second))
        for name, share, spread in zip(CAUSES, shares, spreads, strict=True)
        if share
    ]
    return sorted(found, key=lambda each: -abs(each.seconds))


def _deviation(known: Posterior, place: int, job: str) -> float:
    """Of one cause's factor: what is left of its spread."""
    prior, column = known.prior, known.causes[:, place]
    shared = column * (prior.site[place] + prior.job[place] * np.array([float(job == other) for other in known.jobs]))
    left = prior.site[place] + prior.job[place] - float(shared @ known.inverse @ shared)
    return float(np.sqrt(max(left, 0.0)))


def measure_next(runs: tuple[LearnedRun, ...]) -> str:
    """The run that tells most of the part of these steps that is least certain."""
    known, job = posterior_of(runs), runs[0].job
    open_ = {
        name: abs(float(known.causes[:, place].mean())) * _deviation(known, place, job)
        for name in SHARES
        for place in [CAUSES.index(name)]
    }
    name = max(open_, key=lambda each: open_[each])
    return f"{MEASURE[name]}: {name} is the least certain part of these steps (+-{open_[name]:.0%} of a step)"
