"""Rows of a batch of policies that follow each other and agree in some fields, so that what depends on those alone is
worked out once for each run. A scan lays its policies out so that runs are long; a single policy is a run of one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.spec.policy import Ints, Policies
from shardwise.work.layout import Numbers

SHORT = 0.5
"""runs for each policy, above which spreading them out costs more than it saves"""


@dataclass(frozen=True)
class Runs:
    first: Ints
    """row that begins each run"""
    of: Ints | None
    """the run of each row; None where every row is a run of its own"""

    def rows(self, values: Numbers) -> Numbers:
        """One value per run -> one per policy."""
        return values if self.of is None else np.asarray(values[self.of])

    def spread(self, values: Numbers | float) -> Numbers:
        """The same, where a plain number stands for every run."""
        return self.rows(np.broadcast_to(np.asarray(values, dtype=np.float64), self.first.shape))


def runs_of(policies: Policies, fields: Sequence[str]) -> Runs:
    begins = np.ones(len(policies), dtype=np.bool_)
    if len(policies) > 1:
        begins[1:] = False
        for name in fields:
            column = getattr(policies, name)
            begins[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(begins)
    if len(first) > SHORT * len(policies):
        return Runs(np.arange(len(policies)), None)
    return Runs(first, np.cumsum(begins) - 1)
