"""Steps of many policies by part, priced at once: what comparing policies needs, and no more."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.band import NO_BAND, band_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.learned import learned_band
from shardwise.step.estimate.synced import choice_of
from shardwise.work.case import Case


class StepParts(Struct, frozen=True, kw_only=True):
    policy: Policy
    step_s: float
    time_s: dict[str, float]
    """exposed seconds of a step by part; they add up to step_s"""
    error_band: float | None
    """the larger side of the band that measured steps lay in; None where nothing alike was measured"""
    error_range: tuple[float, float] | None
    """both sides"""
    error_basis: str
    """the band in words"""

    @property
    def shares(self) -> dict[str, float]:
        return {part: seconds / self.step_s for part, seconds in self.time_s.items()}


def parts_of(case: Case, policies: Sequence[Policy]) -> list[StepParts]:
    """Of legal policies, in their order; one estimate for all that share a strategy of data parallelism."""
    places: dict[str, list[int]] = {}
    for place, policy in enumerate(policies):
        places.setdefault(policy.sync, []).append(place)
    rows: dict[int, StepParts] = {}
    band = band_of(case)
    for sync, mine in places.items():
        together = Policies.of([policies[place] for place in mine])
        found = estimate(case, together, sync=choice_of(sync, case.job.optimizer.name))
        band = learned_band(case, found.work, found.times) or band
        for row, place in enumerate(mine):
            rows[place] = StepParts(policy=policies[place], step_s=float(found.times.step_s[row]),
                                    time_s=parts_at(found, row), error_band=band.half_width if band else None,
                                    error_range=(band.low, band.high) if band else None,
                                    error_basis=str(band) if band else NO_BAND)  # fmt: skip
    return [rows[place] for place in range(len(policies))]


def parts_at(found: Estimate, row: int) -> dict[str, float]:
    shape = found.times.step_s.shape
    return {part: float(np.broadcast_to(seconds, shape)[row]) for part, seconds in found.times.parts.items()}
