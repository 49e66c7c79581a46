"""Which policy is best: the space of legal ones, and ways to look through it."""

from shardwise.search.every import every
from shardwise.search.exhaustive import Candidate, Ranked, scan
from shardwise.search.space import USUAL, Limits, Space, space

__all__ = ["USUAL", "Candidate", "Limits", "Ranked", "Space", "every", "scan", "space"]
