"""Rows of a batch of policies that agree in some fields, so that what depends on those alone is worked out once for all
of them. A scan lays its policies out so that such rows follow each other; a single policy is a run of one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Ints
from shardwise.spec.distinct import ranked
from shardwise.spec.policy import Policies
from shardwise.work.layout import Numbers

SHORT = 0.5
"""runs for each policy, above which spreading them out costs more than it saves"""
WIDEST = 16
"""entries of a table for each policy, beyond which looking up in it takes longer than what it saves"""
LARGEST = 2**62
"""number that still names a run: as much as 64 bits hold, with one to spare"""


@dataclass(frozen=True)
class Runs:
    first: Ints
    """a row of each run"""
    of: Ints | None
    """the run of each row; None where every row is a run of its own"""

    def rows(self, values: Numbers) -> Numbers:
        """One value per run -> one per policy."""
        return values if self.of is None else values.take(self.of, axis=0)

    def spread(self, values: Numbers | float) -> Numbers:
        """The same, where a plain number stands for every run."""
        return self.rows(np.broadcast_to(np.asarray(values, dtype=np.float64), self.first.shape))

    def finer(self, policies: Policies, fields: Sequence[str]) -> "Runs":
        """Rows of one run that agree in these fields too."""
        if self.of is None:
            return self
        number, most, count = self.of, len(self.first), len(policies)
        for name in fields:
            column = getattr(policies, name)
            least = column.min()
            if column.max() > least:
                values, place = ranked(column - least)
                most *= len(values)
                if most > WIDEST * count:
                    return alone(count)
                number = number * len(values) + place
        if number is self.of:
            return self
        runs, of = ranked(number)
        if len(runs) > SHORT * count:
            return alone(count)
        first = np.empty(len(runs), dtype=np.int64)
        first[of[::-1]] = np.arange(count)[::-1]
        return Runs(first, of)

    def among(self, rows: Ints) -> "Runs":
        """The same runs of some of the rows, of which at least one is in each run."""
        if self.of is None:
            return alone(len(rows))
        of, first = self.of[rows], np.empty(len(self.first), dtype=np.int64)
        first[of[::-1]] = np.arange(len(rows))[::-1]
        return Runs(first, of)


def alone(count: int) -> Runs:
    """Every row is a run of its own."""
    return Runs(np.arange(count), None)


def runs_of(policies: Policies, fields: Sequence[str], *, scattered: bool = False) -> Runs:
    """`scattered`: also of rows that do not follow each other."""
    count = len(policies)
    begins = np.ones(count, dtype=np.bool_)
    if count > 1:
        begins[1:] = False
        for name in fields:
            column = getattr(policies, name)
            begins[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(begins)
    if len(first) <= SHORT * count:
        return Runs(first, np.cumsum(begins) - 1)
    return (_scattered(policies, fields) if scattered and count > 1 else None) or alone(count)


def _scattered(policies: Policies, fields: Sequence[str]) -> Runs | None:
    """Of policies in any order, where enough of them agree."""
    number, values = np.zeros(len(policies), dtype=np.int64), 1
    for name in fields:
        column = getattr(policies, name)
        least, most = int(column.min()), int(column.max())
        values *= most - least + 1
        if values > LARGEST:
            return None
        if most > least:
            number = number * (most - least + 1) + (column - least)
    _, first, of = np.unique(number, return_index=True, return_inverse=True)
    return Runs(first, of) if len(first) <= SHORT * len(policies) else None
