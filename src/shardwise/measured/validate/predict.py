"""Predicts every case. Rows that differ in policy and global batch alone are priced together."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from shardwise.arrays import Floats
from shardwise.cost.calibrate.profile import Profile
from shardwise.measured.validate.facts import shown_beside
from shardwise.measured.validate.interpret import MeasuredCase, UnsupportedRow, measured_case
from shardwise.measured.validate.milder import milder_cases, sharded_rather
from shardwise.measured.validate.networks import NetworkSpread, spread_of, widened
from shardwise.measured.validate.studies import SAME, PricedCase, same_in_all
from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import legal, verdict_of
from shardwise.spec.software import named
from shardwise.step.estimate.band import ErrorBand, band_of
from shardwise.step.estimate.causes import CAUSES, causes_of, on_network
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.mfu import conventions
from shardwise.step.estimate.releases import disagree, range_words
from shardwise.work.case import case_of

PACES = ("slow", "middle", "fast")
"""of the networks that a run may have had"""
FLOORED = ("batch divides", "interleaving")
"""rules that a measured row need not keep"""


@dataclass(frozen=True)
class Prediction:
    measured: MeasuredRow
    verdict: str
    why: str
    step_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    peak_bytes: float | None = None
    """as what it is compared with was measured: by the program's own counters, or by the driver's"""
    peak_share: float | None = None
    """of the GPU's peak: what one token per second and GPU is"""
    policy: Policy | None = None
    stack: str = ""
    causes: Floats = field(default_factory=lambda: np.zeros(len(CAUSES)), compare=False, repr=False)
    """of the step, one number for each of CAUSES"""
    band: ErrorBand | None = None
    """in which the measured step should lie"""
    learned_from: tuple[int, ...] | None = None
    """rows that the step was corrected by; None: nothing was to be learned from"""
    stacks_s: dict[str, float] | None = None
    """steps of every stack that passes as the program, where the row names no release of it and they disagree"""

    @property
    def measured_mfu(self) -> float | None:
        truth = self.measured.tokens_per_s_per_gpu
        return truth * self.peak_share if truth and self.peak_share else None

    @cached_property
    def error(self) -> float | None:
        """predicted over measured step time, less 1 (a step predicted too slow is positive)"""
        truth = self.measured.tokens_per_s_per_gpu
        return truth / self.tokens_per_s_per_gpu - 1 if truth and self.tokens_per_s_per_gpu else None

    @property
    def inside(self) -> bool | None:
        """whether the measured step lies in the band"""
        if self.error is None or self.band is None:
            return None
        return self.band.low <= 1 / (1 + self.error) - 1 <= self.band.high


def predict(rows: list[MeasuredRow], stack: str = "auto", profile: Profile | None = None) -> list[Prediction]:
    """`profile` serves the rows of its own GPU; a table without any is refused."""
    found: dict[int, Prediction] = {}
    cases: list[MeasuredCase] = []
    alike: dict[object, list[MeasuredRow]] = defaultdict(list)
    for row in rows:
        alike[row.run].append(row)
    for row, *others in alike.values():
        try:
            cases.append(replace(measured_case(row, stack), rows=1 + len(others)))
        except UnsupportedRow as reason:
            found[row.row] = Prediction(row, "unsupported", str(reason))
    if profile is not None and cases and not any(profile.fits(case.cluster.gpu) for case in cases):
        profile.on(cases[0].cluster.gpu)
    found |= {prediction.measured.row: prediction for prediction in predict_cases(cases, profile)}
    found |= _with_room(cases, found, stack, profile)
    found |= _sharded_rather(cases, found, stack, profile)
    found |= _on_other_networks(cases, found, profile)
    if stack == "auto":
        found |= _rivals(cases, found, profile)
    for first, *others in alike.values():
        found |= {row.row: replace(found[first.row], measured=row) for row in others}
    return [found[row.row] for row in rows]


def _with_room(
    cases: list[MeasuredCase], found: dict[int, Prediction], stack: str, profile: Profile | None
) -> dict[int, Prediction]:
    """Rows that would not fit, by the first milder reading that does."""
    full = [case for case in cases if found[case.measured.row].verdict == "oom"]
    readings = {case.measured.row: list(milder_cases(case, stack)) for case in full}
    fits: dict[int, Prediction] = {}
    for place in range(max(map(len, readings.values()), default=0)):
        again = [found_[place] for row, found_ in readings.items() if row not in fits and place < len(found_)]
        fits |= {p.measured.row: p for p in predict_cases(again, profile) if p.verdict == "ok"}
    return fits


def _sharded_rather(
    cases: list[MeasuredCase], found: dict[int, Prediction], stack: str, profile: Profile | None
) -> dict[int, Prediction]:
    """Rows that tell neither recompute nor ZeRO and would recompute all for want of room, where a stage of ZeRO is
    faster."""
    full = [case for case in cases if (policy := found[case.measured.row].policy) and policy.recompute == "full"]
    again = [reading for case in full if (reading := sharded_rather(case, stack)) is not None]
    return {
        p.measured.row: p
        for p in predict_cases(again, profile)
        if p.verdict == "ok" and (p.step_s or 0.0) < (found[p.measured.row].step_s or 0.0)
    }


def _on_other_networks(
    cases: list[MeasuredCase], found: dict[int, Prediction], profile: Profile | None
) -> dict[int, Prediction]:
    """Rows that do not state their network, with bands that reach to what slow and fast ones would make of them."""
    spreads = network_spreads(cases, found, profile)
    return {
        row: replace(
            was, band=widened(was.band, case.unstated.usual, spreads[row]),
            causes=on_network(was.causes, spreads[row].deviation),
        )
        for case in cases
        if (row := case.measured.row) in spreads and case.unstated is not None
        and (was := found[row]).band is not None
    }  # fmt: skip


def network_spreads(
    cases: list[MeasuredCase], found: dict[int, Prediction], profile: Profile | None = None
) -> dict[int, NetworkSpread]:
    """Of the rows that do not state their network, by row."""
    steps: dict[int, list[float]] = defaultdict(list)
    for pace in PACES:
        there = [
            replace(case, cluster=getattr(case.unstated, pace), candidates=(policy,))
            for case in cases
            if case.unstated is not None and (policy := found[case.measured.row].policy) is not None
        ]
        for prediction in predict_cases(there, profile):
            if prediction.step_s:
                steps[prediction.measured.row].append(prediction.step_s)
    return {row: spread_of(*each) for row, each in steps.items() if len(each) == len(PACES)}


def _rivals(cases: list[MeasuredCase], found: dict[int, Prediction], profile: Profile | None) -> dict[int, Prediction]:
    """Rows that name a program without a release, with the steps of all stacks that pass as it."""
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    others: dict[str, list[MeasuredCase]] = defaultdict(list)
    for case in cases:
        row = case.measured.row
        for rival in named(case.stack).rivals if found[row].step_s else ():
            steps[row][case.stack.name] = found[row].step_s or 0.0
            others[rival.name].append(measured_case(case.measured, rival.name))
    for other in others.values():
        for prediction in predict_cases(other, profile):
            if prediction.step_s:
                steps[prediction.measured.row][prediction.stack] = prediction.step_s
    return {row: _said(found[row], by_stack) for row, by_stack in steps.items() if disagree(by_stack)}


def _said(prediction: Prediction, by_stack: dict[str, float]) -> Prediction:
    why = "; ".join(filter(None, (prediction.why, range_words(by_stack))))
    return replace(prediction, why=why, stacks_s=by_stack)


def predict_cases(cases: Iterable[MeasuredCase], profile: Profile | None = None) -> list[Prediction]:
    """Every case, batch after batch: not in the order given. `profile` serves the cases of its own GPU."""
    batches: dict[int, list[MeasuredCase]] = defaultdict(list)
    keys: dict[object, int] = {}
    for case in cases:
        key = (
            case.model,
            id(case.cluster),
            case.job.seq,
            case.job.pipeline_passes,
            case.job.precision.name,
            case.stack,
        )
        batches[keys.setdefault(key, len(keys))].append(case)
    found = [each for batch in batches.values() for each in _batch(batch, profile)]
    shared = same_in_all([each for each in found if isinstance(each, PricedCase)])
    return [each if isinstance(each, Prediction) else _prediction(each, shared.get(id(each))) for each in found]


def _batch(cases: list[MeasuredCase], profile: Profile | None) -> list[PricedCase | Prediction]:
    first = cases[0]
    if profile is not None and not profile.fits(first.cluster.gpu):
        profile = None
    policies: list[Policy] = []
    batches: list[int] = []
    spans: list[tuple[MeasuredCase, int, int]] = []
    for case, allowed in zip(cases, _allowed(cases), strict=True):
        spans.append((case, len(policies), len(allowed)))
        policies += allowed
        batches += [case.job.global_batch] * len(allowed)
    if not policies:
        return [_illegal(case) for case in cases]
    whole = case_of(first.model, first.cluster, first.job, first.stack, profile)
    its_own = set(batches) == {first.job.global_batch}
    several = None if its_own else np.array(batches)
    result = estimate(whole, Policies.of(policies), every_stage=True, batches=several)
    sources = {case.measured.word("source") for case in cases}
    bands = {source: band_of(whole, source) for source in sources}
    causes = {
        source: causes_of(whole, result.work, result.times, band.missing if band else ())
        for source, band in bands.items()
    }
    return [
        PricedCase(
            case,
            tuple(policies[start : start + count]),
            result,
            causes[case.measured.word("source")],
            start,
            bands[case.measured.word("source")],
        )
        if count
        else _illegal(case)
        for case, start, count in spans
    ]


def _allowed(cases: list[MeasuredCase]) -> list[list[Policy]]:
    """Of each case the candidates that can run."""
    found: dict[int, list[Policy]] = {}
    by_batch: dict[int, list[MeasuredCase]] = defaultdict(list)
    for case in cases:
        by_batch[case.job.global_batch].append(case)
    for some in by_batch.values():
        every = [policy for case in some for policy in case.candidates]
        # sources publish nominal batches that do not always divide: floor them instead of refusing the row
        flags = iter(legal(some[0].model, some[0].cluster, some[0].job, Policies.of(every), skip=FLOORED))
        for case in some:
            found[id(case)] = [policy for policy in case.candidates if next(flags)]
    return [found[id(case)] for case in cases]


def _prediction(priced: PricedCase, shared: int | None) -> Prediction:
    """`shared`: which of its policies the whole study has; else the best of them."""
    case, result = priced.case, priced.result
    place = priced.best() if shared is None else shared
    best, policy = priced.start + place, priced.policies[place]
    empty = int(result.empty_stages[best])
    if empty > case.stack.abilities.empty_stages:
        why = f"stages have layers: {empty} of {policy.pp} stages would hold no parameter"
        return Prediction(case.measured, "illegal", why, stack=case.stack.name)
    step = result.times.step_s
    return Prediction(
        case.measured,
        "ok" if result.fits[best] else "oom",
        "; ".join((*case.assumed, *(() if shared is None else (SAME,)))),
        step_s=float(step[best]),
        tokens_per_s_per_gpu=float(result.tokens_per_s_per_gpu[best]),
        peak_bytes=float(result.memory.peak[best]) + shown_beside(case.measured, case.stack),
        peak_share=_flops_per_token(case.model, case.job.seq) / case.cluster.gpu.peak("bf16"),
        policy=policy,
        stack=case.stack.name,
        causes=priced.causes[best],
        band=priced.band,
    )


@lru_cache(maxsize=1024)
def _flops_per_token(model: Model, seq: int) -> float:
    return next(c.flops_per_token for c in conventions(model, seq) if c.key == "full_square")


def _illegal(case: MeasuredCase) -> Prediction:
    verdict = verdict_of(case.model, case.cluster, case.job, case.candidates[0], cure=False)
    return Prediction(case.measured, "illegal", f"{verdict.rule}: {verdict.why}")
