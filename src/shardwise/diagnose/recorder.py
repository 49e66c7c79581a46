"""Flight recorders of several ranks: which collective nobody finished, and who did not come to it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

NEVER_ASKED = "they never asked for it: look at what their hosts do (stack, data, exception)"
ROOTED = ("broadcast", "scatter", "gather", "reduce")
"""one rank gives or takes what the others do not: their sizes differ by right"""
NEVER_ENDED = "all asked for it and it did not end: the network or a GPU"


@dataclass(frozen=True)
class GroupState:
    """Of one process group on one rank."""

    group: str
    description: str
    enqueued: int
    """number of the last collective it asked for; -1: none"""
    completed: int


@dataclass(frozen=True)
class RecordedCall:
    group: str
    number: int
    op: str
    sizes: str
    """of what goes in"""
    state: str


@dataclass(frozen=True)
class RecorderDump:
    name: str
    rank: int | None
    groups: tuple[GroupState, ...]
    calls: tuple[RecordedCall, ...]

    @property
    def called(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else self.name


@dataclass(frozen=True)
class Stuck:
    group: str
    number: int
    """of the collective"""
    op: str
    missing: tuple[str, ...]
    """ranks that did not ask for it, or asked for something else"""
    why: str


Calls = Sequence[tuple[RecorderDump, RecordedCall]]
"""of one group"""


def stuck_in(dumps: Sequence[RecorderDump]) -> list[Stuck]:
    """Groups that stand still, those first that wait for the earliest collective."""
    found: list[Stuck] = []
    members: dict[str, list[tuple[RecorderDump, GroupState]]] = defaultdict(list)
    calls: dict[str, list[tuple[RecorderDump, RecordedCall]]] = defaultdict(list)
    for dump in dumps:
        for state in dump.groups:
            members[state.group].append((dump, state))
        for call in dump.calls:
            calls[call.group].append((dump, call))
    for group, states in members.items():
        furthest = max(state.enqueued for _, state in states)
        behind = [dump.called for dump, state in states if state.enqueued < furthest]
        finished = min(state.completed for _, state in states)
        called = f"{group} ({states[0][1].description})" if states[0][1].description else group
        if behind:
            number = min(state.enqueued for _, state in states) + 1
            found.append(Stuck(called, number, _op(calls[group], number), tuple(behind), NEVER_ASKED))
        elif different := _different(group, calls[group]):
            found.append(different)
        elif finished < furthest:
            number = finished + 1
            found.append(Stuck(called, number, _op(calls[group], number), (), NEVER_ENDED))
    return sorted(found, key=lambda each: (not each.missing, each.number))


def _op(calls: Calls, number: int) -> str:
    return next((call.op for _, call in calls if call.number == number), "")


def _different(group: str, calls: Calls) -> Stuck | None:
    """The first number under which ranks asked for different things: a mistake of the program."""
    asked: dict[int, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for dump, call in calls:
        asked[call.number][call.op, "" if call.op in ROOTED else call.sizes].append(dump.called)
    for number in sorted(asked):
        kinds = asked[number]
        if len(kinds) > 1:
            (op, sizes), odd = min(kinds.items(), key=lambda each: len(each[1]))
            return Stuck(group, number, op, tuple(odd), f"they asked for {op} {sizes}, the others for something else")
    return None
