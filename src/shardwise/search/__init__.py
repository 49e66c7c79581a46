"""Which policy is best: the space of legal ones, and ways to look through it."""

from shardwise.search.every import every, table_of
from shardwise.search.exhaustive import Candidate, Ranked, scan
from shardwise.search.space import Limits, Space, space

__all__ = ["Candidate", "Limits", "Ranked", "Space", "every", "scan", "space", "table_of"]
