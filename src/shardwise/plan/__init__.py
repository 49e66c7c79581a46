"""Search for the best policy: the space of legal ones, and ways to scan it."""

from shardwise.plan.candidate import Candidate
from shardwise.plan.every import every, table_of
from shardwise.plan.exhaustive import Ranking, scan
from shardwise.plan.space import Limits, Space, space

__all__ = ["Candidate", "Limits", "Ranking", "Space", "every", "scan", "space", "table_of"]
