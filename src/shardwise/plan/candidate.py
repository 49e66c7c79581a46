"""A policy with what it takes: what scans rank and choices are made from."""

from dataclasses import dataclass

from shardwise.spec.policy import Policy
from shardwise.step.estimate.lengths import DataStep
from shardwise.step.estimate.synced import ExtraSteps


@dataclass(frozen=True)
class Candidate:
    policy: Policy
    step_s: float
    tokens_per_s_per_gpu: float
    peak_bytes: float
    extra: ExtraSteps | None = None
    """more steps to the same loss than with the mean gradient; None: it is the mean gradient"""
    data: DataStep | None = None
    """where the lengths of the data are known: what `step_s` and the tokens are of"""

    @property
    def to_loss_s(self) -> float:
        """The step, stretched by the steps it takes more."""
        return self.step_s * (1.0 + (self.extra.share or 0.0 if self.extra else 0.0))
