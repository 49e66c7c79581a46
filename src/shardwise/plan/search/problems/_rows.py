"""The rows of an integer program, one after another."""

from collections.abc import Callable, Sequence

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import IntegerProgram


class ProgramRows:
    def __init__(self) -> None:
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._low: list[float] = []
        self._high: list[float] = []

    def row(self, entries: Sequence[tuple[Ints, Floats]], low: float, high: float) -> None:
        """low <= the sum of values times columns <= high."""
        for columns, values in entries:
            self._rows.append(np.full(len(columns), len(self._low), dtype=np.int64))
            self._columns.append(columns)
            self._values.append(values)
        self._low.append(low)
        self._high.append(high)

    def program(
        self,
        cost: Floats,
        whole: Ints,
        least: Floats,
        most: Floats,
        point: Callable[[Floats], Ints],
        seconds: Callable[[float], float],
        answer: Callable[[Ints], Ints] | None = None,
    ) -> IntegerProgram:
        return IntegerProgram(
            cost=cost, whole=whole, least=least, most=most, rows=np.concatenate(self._rows),
            columns=np.concatenate(self._columns), values=np.concatenate(self._values), low=np.array(self._low),
            high=np.array(self._high), point=point, seconds=seconds, answer=answer,
        )  # fmt: skip
