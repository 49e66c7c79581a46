"""Recorded sweeps as a pretend cluster: how many trials until one reaches 0.99 of the best measured."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from choice import FAILED_SOURCE, GROUP, TRUTH
from shardwise.cost.calibrate.profile import LearnedRun
from shardwise.measured.validate.failed import read_failed
from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.table import MeasuredRow, read_table
from shardwise.plan.exhaustive import HEADROOM
from shardwise.plan.trials import TrialBelief, belief_of
from shardwise.spec.policy import Policy
from shardwise.step.estimate.causes import CAUSES
from shardwise.step.estimate.learned import job_of
from shardwise.work.case import Case, case_of

PRETENDED = "nanotron"
"""sources that play the cluster"""
FOREIGN = "megatron-core"
"""a stack whose constants never saw the pretended program"""
NEAR = 0.99
FEWEST = 4
DRAWS = 20


@dataclass(frozen=True)
class Recorded:
    source: str
    job: tuple[str, ...]
    case: Case
    policy: Policy
    run: LearnedRun
    """as it was predicted"""
    peak_bytes: float
    measured_s: float | None
    """None: it gave no result"""

    @property
    def predicted_s(self) -> float:
        return self.run.predicted_s


def recorded_of(prediction: Prediction, stack: str, *, failed: bool) -> Recorded | None:
    row, policy = prediction.measured, prediction.policy
    if policy is None or prediction.step_s is None or prediction.peak_bytes is None:
        return None
    if not failed and not row.tokens_per_s_per_gpu:
        return None
    known = measured_case(row, stack)
    source = FAILED_SOURCE if failed else row.word("source")
    case = case_of(known.model, known.cluster, known.job, known.stack)
    measured = None if failed else case.job.step_tokens / float(row.tokens_per_s_per_gpu or 1.0) / policy.gpus
    return Recorded(
        source=source, job=(source, *(row.word(name) for name in GROUP[1:])), case=case, policy=policy,
        run=as_predicted(case, prediction), peak_bytes=prediction.peak_bytes, measured_s=measured,
    )  # fmt: skip


def as_predicted(case: Case, prediction: Prediction) -> LearnedRun:
    causes = {name: float(value) for name, value in zip(CAUSES, prediction.causes, strict=True) if value}
    step_s = prediction.step_s or 1.0
    return LearnedRun(
        source="trial", job=job_of(case), stack=case.stack.name, measured_s=step_s, predicted_s=step_s, causes=causes
    )


def jobs_of(rows: Sequence[MeasuredRow], failed: Sequence[MeasuredRow], stack: str) -> list[list[Recorded]]:
    found = [recorded_of(p, stack, failed=False) for p in predict(list(rows), stack)]
    found += [recorded_of(p, stack, failed=True) for p in predict(list(failed), stack)]
    jobs: dict[tuple[str, ...], list[Recorded]] = defaultdict(list)
    for each in found:
        if each is not None:
            jobs[each.job].append(each)
    return list(jobs.values())


def trials_needed(job: Sequence[Recorded], order: str, seed: int = 0) -> int:
    """Trials until one reaches NEAR of the best. `order`: learned, planned (fastest by prediction that fits first) or
    random."""
    best = min(run.measured_s for run in job if run.measured_s is not None)
    steps, peaks = (np.array([getattr(run, name) for run in job]) for name in ("predicted_s", "peak_bytes"))
    memory = job[0].case.cluster.gpu.memory_bytes
    fixed = {"random": list(np.random.default_rng(seed).permutation(len(job))),
             "planned": sorted(range(len(job)), key=lambda i: (peaks[i] > HEADROOM * memory, steps[i]))}  # fmt: skip
    learned = order == "learned"
    belief = belief_of(job[0].case, [r.policy for r in job], [r.run for r in job], peaks) if learned else None
    for count in range(len(job)):
        index = _next(belief) if belief is not None else int(fixed[order][count])
        measured = job[index].measured_s
        if measured is not None and measured <= best / NEAR:
            return count + 1
        if belief is not None:
            belief.tried(index, measured)
    return len(job)


def _next(belief: TrialBelief) -> int:
    """Goes on where the planner would stop: the question is when the best is found."""
    found = belief.next(least=-0.5)
    if found is not None:
        return found[0]
    return next(index for index in belief.ranked() if index not in belief.seconds)


def scored(jobs: Sequence[Sequence[Recorded]], prefix: str) -> dict[str, Any]:
    whole = [job for job in jobs if sum(run.measured_s is not None for run in job) >= FEWEST]
    learned = [trials_needed(job, "learned") for job in whole]
    planned = [trials_needed(job, "planned") for job in whole]
    random = [np.mean([trials_needed(job, "random", seed) for seed in range(DRAWS)]) for job in whole]
    return {
        f"{prefix}": float(np.mean(learned)), f"{prefix}_median": float(np.median(learned)),
        f"{prefix}_most": max(learned), f"{prefix}_within_8": float(np.mean(np.array(learned) <= 8)),
        f"{prefix}_in_plan_order": float(np.mean(planned)), f"{prefix}_in_plan_order_median": float(np.median(planned)),
        f"{prefix}_in_random_order": float(np.mean(random)), f"{prefix}_each": learned,
    }  # fmt: skip


def trial_figures(truth: Path = TRUTH) -> dict[str, Any]:
    if not truth.is_dir():
        print(f"trials: no recorded sweeps at {truth}; skipped")
        return {"trials_to_99": None}
    rows = [row for row in read_table(truth / "steps.csv") if row.word("source").startswith(PRETENDED)]
    failed = read_failed(truth / "nanotron_failed.csv")
    own, foreign = (jobs_of(rows, failed, stack) for stack in ("auto", FOREIGN))
    sizes = [len(job) for job in own if sum(run.measured_s is not None for run in job) >= FEWEST]
    figures = {"trial_jobs": len(sizes), "trial_grid_mean": float(np.mean(sizes))}
    return figures | scored(own, "trials_to_99") | scored(foreign, "trials_to_99_foreign")
