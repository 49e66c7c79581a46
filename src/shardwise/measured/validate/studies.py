"""Rows of one scaling study: what it did not publish was the same in all of its runs.

Rows of one source that differ in the number of GPUs (and with it in replicas and batch) are one job made larger. Each
by itself, the best candidate of a large run may be one for which the small run has no memory: ZeRO shards its optimizer
over more GPUs. Who scales a job does not change its settings, so the candidate is taken that fits all runs.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats
from shardwise.measured.validate.interpret import MeasuredCase
from shardwise.spec.policy import Policy
from shardwise.step.estimate.band import ErrorBand
from shardwise.step.estimate.closed_form import Estimate

SAME = "what is not published taken as the same for all numbers of GPUs"
_SAME_COLUMNS = (
    "source", "model", "gpu", "gpus_per_node", "dtype", "seq", "tp", "pp", "vpp", "cp", "ep", "zero_stage_or_fsdp",
    "micro_batch", "recompute", "software",
)  # fmt: skip
Open = tuple[int, int, str, int, str, float]
"""settings that tables leave out: micro-batch, chunks, recompute, tensor parallelism of experts, offloading"""


@dataclass(frozen=True)
class PricedCase:
    """The candidates of a row that can run, and what they take."""

    case: MeasuredCase
    policies: tuple[Policy, ...]
    result: Estimate
    causes: Floats
    """of every policy of the result"""
    start: int
    """where they begin in the result"""
    band: ErrorBand | None

    @property
    def _here(self) -> slice:
        return slice(self.start, self.start + len(self.policies))

    def best(self) -> int:
        """A tuned setting is the fastest that fits; when none fits, the smallest."""
        fits = self.result.fits[self._here]
        if not fits.any():
            return int(np.argmin(self.result.memory.peak[self._here]))
        return int(np.argmin(np.where(fits, self.result.times.step_s[self._here], np.inf)))

    def fitting(self) -> dict[Open, tuple[int, float]]:
        """Place and seconds of those that fit, by their open settings."""
        fits, step = self.result.fits[self._here], self.result.times.step_s[self._here]
        return {_open(policy): (place, float(step[place])) for place, policy in enumerate(self.policies) if fits[place]}


def same_in_all(priced: list[PricedCase]) -> dict[int, int]:
    """Place of the candidate that a row's whole study has, by the identity of its case; without those that are a study
    of their own, and those of a study in which nothing fits every run."""
    studies: dict[tuple[str, ...], list[PricedCase]] = defaultdict(list)
    for each in priced:
        studies[tuple(each.case.measured.word(column) for column in _SAME_COLUMNS)].append(each)
    found: dict[int, int] = {}
    for study in studies.values():
        sizes = {each.case.cluster.gpus for each in study}
        if len(sizes) < 2 or max(len(each.policies) for each in study) == 1:
            continue
        fitting = [each.fitting() for each in study]
        common = set(fitting[0]).intersection(*fitting[1:])
        if common:
            rows = [each.case.rows for each in study]
            chosen = min(
                common, key=lambda open_: sum(n * np.log(each[open_][1]) for n, each in zip(rows, fitting, strict=True))
            )
            found |= {id(each): fits[chosen][0] for each, fits in zip(study, fitting, strict=True)}
    return found


def _open(policy: Policy) -> Open:
    return (
        policy.micro_batch, policy.vpp, policy.recompute, policy.etp, policy.offload, policy.offload_share,
    )  # fmt: skip
