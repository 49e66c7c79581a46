"""Time-outs of collectives in logs: ranks that report one waited; the rank behind them is the one to look at."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

_GROUP = re.compile(r"\[PG (?:ID )?(\w{1,20})(?: PG GUID (\w{1,40}))?[^\]]{0,40}Rank (\d{1,6})\]")
_RANK = re.compile(r"\[Rank (\d{1,6})\]", re.I)
_TIMED_OUT = re.compile(r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_WORK = re.compile(r"last enqueued (?:NCCL )?work: (\d{1,12}),? last completed (?:NCCL )?work: (-?\d{1,12})")


@dataclass(frozen=True)
class TimedOut:
    """Collectives that ranks of one group report, and who is behind."""

    reporting: tuple[int, ...]
    behind: tuple[int, ...]
    """ranks whose last collective is earlier than the others'"""
    number: int
    """of the first collective that did not end"""
    op: str

    @property
    def text(self) -> str:
        first = f"{self.op.lower() or 'collective'} {self.number:,} timed out on {_ranks(self.reporting)}"
        if self.behind:
            return f"{first}; {_ranks(self.behind)} had not come so far: look there, not at those who report"
        return f"{first}, all at the same place: a rank that does not report, the network or a GPU"


def timed_out(lines: Iterable[str]) -> TimedOut | None:
    """None where no line reports a collective's time-out."""
    first: dict[int, int] = {}
    ops: dict[int, str] = {}
    enqueued: dict[str, dict[int, int]] = defaultdict(dict)
    for line in lines:
        if (match := _TIMED_OUT.search(line)) and (named := _RANK.search(line)):
            rank, number = int(named[1]), int(match[1])
            if number < first.get(rank, number + 1):
                first[rank], ops[rank] = number, match[2]
        if (work := _WORK.search(line)) and (group := _GROUP.search(line)):
            ranks = enqueued[group[2] or group[1]]
            ranks[int(group[3])] = max(ranks.get(int(group[3]), 0), int(work[1]))
    if not first:
        return None
    number = min(first.values())
    behind = next((late for ranks in enqueued.values() if (late := _late(ranks))), ())
    if not behind and len(enqueued) < 2 and len(set(ops.values())) == 1:
        behind = _late(first)
    return TimedOut(tuple(sorted(first)), behind, number, next(ops[rank] for rank in first if first[rank] == number))


def _late(ranks: dict[int, int]) -> tuple[int, ...]:
    """Ranks behind the furthest one, if they are the fewer."""
    furthest = max(ranks.values())
    late = tuple(sorted(rank for rank, number in ranks.items() if number < furthest))
    return late if late and 2 * len(late) <= len(ranks) else ()


def _ranks(ranks: tuple[int, ...]) -> str:
    named = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
