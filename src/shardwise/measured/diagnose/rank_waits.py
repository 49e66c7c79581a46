"""Several ranks side by side: who arrives last at a collective, and what the others wait for it.

In a synchronous job every rank's step takes equally long, so step times tell nothing; but a collective ends for all at
once, and the slow rank waits least in it. The ends also say how far the ranks' clocks lie apart.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from shardwise.measured.diagnose.device_trace import RankTrace
from shardwise.measured.diagnose.intervals import NOTHING, Times, length, union

FEW = 2
"""collectives that two ranks must share before their clocks are compared"""
NAMED = 0.5
"""a rank is named when it alone explains so much of all waiting"""
CLOCK_S = 1e-6
"""of a collective: profilers tell no shorter times"""
SLOW_GROUP = 1.3
"""a group whose transfers take so many times those of its peers has a slow link"""
PEERS = 3
"""groups that do the same, at least, before one is called slow"""

Call = dict[int, tuple[float, float]]
"""rank's place among the traces -> begin and end"""
Key = tuple[str, int, int]


@dataclass(frozen=True)
class SlowGroup:
    ranks: tuple[int, ...]
    op: str
    times: float
    """of what its peers take for the same message"""


@dataclass(frozen=True)
class RankWaits:
    waits: tuple[Times, ...]
    """of each rank: when it stood in a collective that others had not reached, on its own clock"""
    caused_s: tuple[float, float] | tuple[float, ...]
    """by each rank: what the middle one of its group waited for it, over the whole trace"""
    last_share: tuple[float, ...]
    """of its collectives, in how many it came last"""
    shared: int
    """collectives that several of the traces have in common"""
    slow_groups: tuple[SlowGroup, ...]

    @property
    def culprit(self) -> int | None:
        """The one place among the traces that explains most of the waiting."""
        total = sum(self.caused_s)
        if total <= CLOCK_S * self.shared:
            return None
        worst = max(range(len(self.caused_s)), key=lambda place: self.caused_s[place])
        return worst if self.caused_s[worst] >= NAMED * total else None


def waits_of(traces: Sequence[RankTrace]) -> RankWaits:
    calls = _calls(traces)
    offsets = _clocks(list(calls.values()), len(traces))
    calls = {key: call for key, call in calls.items() if _at_once(call, offsets)}
    begin: list[list[float]] = [[] for _ in traces]
    until: list[list[float]] = [[] for _ in traces]
    caused, last, joined_in = [0.0] * len(traces), [0] * len(traces), [0] * len(traces)
    for call in calls.values():
        arrivals = {place: start - offsets[place] for place, (start, _) in call.items()}
        latest = max(arrivals, key=lambda place: arrivals[place])
        others = [moment for place, moment in arrivals.items() if place != latest]
        caused[latest] += arrivals[latest] - median(others)
        last[latest] += 1
        for place, moment in arrivals.items():
            joined_in[place] += 1
            # nobody waits beyond the end of the call
            stop = min(arrivals[latest] + offsets[place], call[place][1])
            if stop > call[place][0]:
                begin[place].append(moment + offsets[place])
                until[place].append(stop)
    waits = tuple(union(np.array(b), np.array(e)) if b else NOTHING for b, e in zip(begin, until, strict=True))
    shares = tuple(count / all_ if all_ else 0.0 for count, all_ in zip(last, joined_in, strict=True))
    return RankWaits(waits, tuple(caused), shares, len(calls), tuple(_slow_groups(traces, calls, offsets)))


def _at_once(call: Call, offsets: list[float]) -> bool:
    """Nobody leaves a collective before all have come: what does not overlap was paired by mistake, as where a profiler
    began later or left some out."""
    begun = max(start - offsets[place] for place, (start, _) in call.items())
    ended = min(end - offsets[place] for place, (_, end) in call.items())
    return begun <= ended + CLOCK_S


def waited(times: Times) -> float:
    return length(times)


def _calls(traces: Sequence[RankTrace]) -> dict[Key, Call]:
    """The collectives that at least two of the traces have; one to one by their number in the group, or in order."""
    found: dict[Key, Call] = defaultdict(dict)
    for place, trace in enumerate(traces):
        seen: dict[int, int] = defaultdict(int)
        groups = [_group_key(trace, index) for index in range(len(trace.names))]
        ids: dict[str, int] = {}
        for row in np.flatnonzero(trace.of_kind("comm")).tolist():
            key = groups[trace.what[row]]
            if not key:
                continue
            number = int(trace.sequence[row])
            if number < 0:
                index = ids.setdefault(key, len(ids))
                number = seen[index]
                seen[index] += 1
                found[key, -1, number][place] = (float(trace.start_s[row]), float(trace.end_s[row]))
            else:
                found[key, 0, number][place] = (float(trace.start_s[row]), float(trace.end_s[row]))
    return {key: call for key, call in found.items() if len(call) > 1}


def _group_key(trace: RankTrace, index: int) -> str:
    """Equal on all members; messages from one rank to one are none of these."""
    name = trace.names[index]
    if name.op in ("send", ""):
        return ""
    members = ",".join(map(str, name.ranks))
    return f"{name.op} {members or name.group or name.group_size}"


def _clocks(calls: Sequence[Call], count: int) -> list[float]:
    """What each rank's clock shows beyond the first's: collectives end together."""
    apart: dict[tuple[int, int], list[float]] = defaultdict(list)
    for call in calls:
        first = min(call)
        for place, (_, end) in call.items():
            if place != first:
                apart[first, place].append(end - call[first][1])
    near: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for (one, other), differences in apart.items():
        if len(differences) >= FEW:
            near[one].append((other, median(differences)))
            near[other].append((one, -median(differences)))
    known: dict[int, float] = {}
    for root in range(count):
        # ranks that share nothing with those before have a clock of their own
        waiting = [] if root in known else [(root, 0.0)]
        while waiting:
            place, clock = waiting.pop()
            if place not in known:
                known[place] = clock
                waiting += [(other, clock + more) for other, more in near[place]]
    return [known[place] for place in range(count)]


def _slow_groups(traces: Sequence[RankTrace], calls: dict[Key, Call], offsets: list[float]) -> list[SlowGroup]:
    """Groups that do the same as others and take longer once all have arrived."""
    sizes: dict[tuple[str, int, float], dict[tuple[int, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    about = _messages(traces)
    for key, call in calls.items():
        op, ranks, size, message = about.get(key[0], ("", (), 0, 0.0))
        if not ranks:
            continue
        arrived = max(start - offsets[place] for place, (start, _) in call.items())
        ended = median(end - offsets[place] for place, (_, end) in call.items())
        sizes[op, size, message][ranks].append(max(ended - arrived, 0.0))
    found = []
    for (op, _, _), groups in sizes.items():
        middles = {ranks: median(seconds) for ranks, seconds in groups.items()}
        usual = median(middles.values())
        if len(middles) >= PEERS and usual > 0:
            found += [SlowGroup(ranks, op, middle / usual) for ranks, middle in middles.items()
                      if middle > SLOW_GROUP * usual]  # fmt: skip
    return sorted(found, key=lambda group: -group.times)


def _messages(traces: Sequence[RankTrace]) -> dict[str, tuple[str, tuple[int, ...], int, float]]:
    """Of each group: what it does, its ranks, and its usual message."""
    found: dict[str, tuple[str, tuple[int, ...], int, float]] = {}
    for trace in traces:
        for index, name in enumerate(trace.names):
            key = _group_key(trace, index) if name.kind == "comm" else ""
            if key and key not in found:
                usual = trace.message[trace.what == index]
                found[key] = name.op, name.ranks, name.group_size, float(np.median(usual)) if len(usual) else 0.0
    return found
