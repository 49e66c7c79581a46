"""A strategy of data parallelism in place of the mean gradient: what it sends, holds, costs, and how far it gets."""

from shardwise.estimate.synced.choice import Choice, choice_of, choices_of
from shardwise.estimate.synced.convergence import Extra
from shardwise.estimate.synced.rules import allowed_with, refusal

__all__ = ["Choice", "Extra", "allowed_with", "choice_of", "choices_of", "refusal"]
