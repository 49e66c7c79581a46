"""Which policy is best: the space of legal ones, and ways to look through it."""

from shardwise.search.exhaustive import Candidate, Ranked, scan
from shardwise.search.space import Limits, space

__all__ = ["Candidate", "Limits", "Ranked", "scan", "space"]
