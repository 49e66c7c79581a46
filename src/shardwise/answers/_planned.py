"""A plan with what is counted on it: shares of the peak, money, free memory, risk, the parts of each step."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.plan import Candidate, Ranking
from shardwise.plan.synced import Best
from shardwise.question import Question
from shardwise.question.studies.money import money_of, run_money
from shardwise.question.studies.parts import StepParts, parts_of
from shardwise.report.report import Money
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policies
from shardwise.step.estimate.band import tuned_band
from shardwise.step.estimate.chance import out_of_memory_chance
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.memory import free_bytes
from shardwise.step.estimate.mfu import HEADLINE, Convention, conventions
from shardwise.step.estimate.synced import choice_of
from shardwise.work.case import Case

MOST_EXPLAINED = 20
"""plans whose parts are compared with the first's"""
COMPUTE = ("forward", "backward")


@dataclass(frozen=True)
class Planned:
    question: Question
    cluster: Cluster
    ranked: Ranking
    top: int
    strategies: tuple[Best, ...] = ()
    """where asked for: each strategy of data parallelism with its best policy"""

    @property
    def listed(self) -> tuple[Candidate, ...]:
        return self.ranked.best[: self.top]

    @cached_property
    def case(self) -> Case:
        return self.question.on(self.cluster)

    @cached_property
    def parts(self) -> list[StepParts]:
        return parts_of(self.case, [found.policy for found in self.ranked.best[:MOST_EXPLAINED]])

    @property
    def first(self) -> StepParts | None:
        return self.parts[0] if self.parts else None

    @cached_property
    def taken(self) -> StepParts | None:
        """The recommended policy."""
        chosen = self.ranked.recommended
        return None if chosen is None else parts_of(self.case, [chosen.policy])[0]

    @property
    def band(self) -> float:
        """The larger side of the first plan's error band."""
        return (self.first.error_band if self.first else None) or 0.0

    @cached_property
    def apart(self) -> float:
        """How far off comparisons of policies usually are, whoever runs them."""
        band = tuned_band(self.case)
        return band.half_width if band else 0.0

    @cached_property
    def conventions(self) -> dict[str, Convention]:
        data = self.listed[0].data if self.listed else None
        attended = self.question.job.seq if data is None else max(round(data.attended_tokens), 1)
        return {each.key: each for each in conventions(self.case.model, attended)}

    def mfu(self, found: Candidate, convention: str = HEADLINE) -> float:
        peak = self.cluster.gpu.peak(self.question.job.precision.compute)
        return self.conventions[convention].utilization(found.tokens_per_s_per_gpu, peak)

    def money(self, found: Candidate, tokens: float) -> Money:
        """To go as far as so many tokens of the mean gradient do, without failures."""
        return money_of(self.cluster, tokens, self._tokens_per_s(found))

    def run_money(self, found: Candidate) -> Money:
        return run_money(self.case, found.to_loss_s, self.question.job.tokens, self._tokens_per_s(found))

    def _tokens_per_s(self, found: Candidate) -> float:
        """Of the data, so far as they count towards the loss."""
        return found.tokens_per_s_per_gpu * self.cluster.gpus * found.step_s / found.to_loss_s

    def free_bytes(self, found: Candidate) -> float:
        return free_bytes(found.peak_bytes, self.cluster.gpu, self.question.stack)

    def risk(self, found: Candidate) -> float:
        """Of running out of memory."""
        return float(out_of_memory_chance(self.case, np.array([found.peak_bytes]))[0])

    def host_bytes(self, found: Candidate) -> float:
        """Of one GPU's share."""
        if found.policy.offload == "none":
            return 0.0
        sync = choice_of(found.policy.sync, self.question.job.optimizer.name)
        return float(np.max(estimate(self.case, Policies.of([found.policy]), sync=sync).memory.host_bytes))


def bottleneck_of(parts: StepParts) -> str:
    """The part other than forward and backward that costs most; compute itself where nothing else does."""
    waiting = {part: seconds for part, seconds in parts.time_s.items() if part not in COMPUTE and seconds > 0}
    return max(waiting, key=lambda part: waiting[part]) if waiting else "compute"
