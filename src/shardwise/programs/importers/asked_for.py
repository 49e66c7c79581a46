"""Which collective a kernel of NCCL is, where its own name does not tell: an exchange of all with all is sends and
receives to NCCL, and older versions name a kernel after the first thing that it can do.

Torch marks the host's call (`nccl:all_to_all`); the kernel that was launched inside of the mark, by the same thread, is
that collective.
"""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shardwise.programs.importers.device_events import op_of

MARKS = ("nccl:", "rccl:")
MOST, MOST_THREADS = 5_000_000, 100_000


@dataclass
class AskedFor:
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    of_thread: dict[int, tuple["array[float]", "array[float]", list[str]]] = field(default_factory=dict)
    """begin, end and what was asked for"""

    def thread(self, process: object, number: object) -> int:
        """A small number of its own; -1 for what is no name of a thread."""
        if not isinstance(process, int | str) or not isinstance(number, int | str):
            return -1
        key = str(process)[:100], str(number)[:100]
        return self.threads.setdefault(key, len(self.threads)) if len(self.threads) < MOST_THREADS else -1

    def mark(self, thread: int, name: str, start: float, end: float) -> None:
        begin, until, ops = self.of_thread.setdefault(thread, (array("d"), array("d"), []))
        if len(ops) < MOST:
            begin.append(start)
            until.append(end)
            ops.append(op_of(name.partition(":")[2]))

    def at(self, thread: "NDArray[np.int64]", moment: "NDArray[np.float64]") -> list[str]:
        """What each of these launches was asked for; empty where no mark holds it."""
        found = [""] * len(thread)
        for number, (begin, until, ops) in self.of_thread.items():
            order = np.argsort(np.array(begin), kind="stable")
            starts, ends = np.array(begin)[order], np.array(until)[order]
            for row in np.flatnonzero(thread == number).tolist():
                place = int(np.searchsorted(starts, moment[row], side="right")) - 1
                if place >= 0 and moment[row] <= ends[place]:
                    found[row] = ops[int(order[place])]
        return found
