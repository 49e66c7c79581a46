"""A strategy of data parallelism in place of the mean gradient: what it sends, holds, costs, and how far it gets."""

from shardwise.step.estimate.synced.choice import SyncChoice, choice_of, choices_of
from shardwise.step.estimate.synced.convergence import ExtraSteps
from shardwise.step.estimate.synced.rules import allowed_with, refusal

__all__ = ["ExtraSteps", "SyncChoice", "allowed_with", "choice_of", "choices_of", "refusal"]
