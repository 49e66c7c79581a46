"""Flight recorders of several ranks: which collective nobody finished, and who did not come to it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

NEVER_CALLED = "they never called it: look at what their hosts do (stack, data, exception)"
NO_DUMP = "they left no dump, the others wait for them: a dead process, or one stuck outside collectives"
NEVER_ENDED = "all called it and it did not end: the network or a GPU"
IN_A_CIRCLE = "they wait in other groups for ranks that wait here: groups used in another order"
UNEVEN = ("broadcast", "scatter", "gather", "reduce", "alltoall", "all_to_all", "alltoallv")
"""one rank gives or takes what the others do not: their sizes differ by right"""


@dataclass(frozen=True)
class GroupState:
    """One process group as one rank saw it."""

    group: str
    """name, the same on all ranks"""
    description: str
    enqueued: int
    """number of the last collective that the rank called; -1: none"""
    completed: int
    ranks: tuple[int, ...] = ()
    """members, where the dump lists them"""


@dataclass(frozen=True)
class RecordedCall:
    group: str
    number: int
    op: str
    sizes: str
    """of its input"""
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
    """ranks that did not call it, or called something else"""
    why: str


Group = tuple[str, tuple[int, ...]]
Members = list[tuple[RecorderDump, GroupState]]
Calls = Sequence[tuple[RecorderDump, RecordedCall]]
"""of one group"""


def stuck_in(dumps: Sequence[RecorderDump]) -> list[Stuck]:
    """Groups that stand still; first those whose missing ranks wait nowhere themselves."""
    members: dict[Group, Members] = defaultdict(list)
    calls: dict[Group, list[tuple[RecorderDump, RecordedCall]]] = defaultdict(list)
    for dump in dumps:
        groups = {state.group: (state.group, state.ranks) for state in dump.groups}
        for state in dump.groups:
            members[groups[state.group]].append((dump, state))
        for call in dump.calls:
            calls[groups.get(call.group, (call.group, ()))].append((dump, call))
    waiting = {dump.called for dump in dumps if any(state.enqueued > state.completed for state in dump.groups)}
    present = {dump.rank for dump in dumps}
    found = [stuck for group, states in members.items()
             if (stuck := _stuck(_with_ranks(group, len(states) == len(dumps), present), states, calls[group],
                                 present)) is not None]  # fmt: skip
    return _judged(found, waiting)


def _with_ranks(group: Group, everybody: bool, present: set[int | None]) -> Group:
    """A group whose members no dump lists, as gloo's: where all dumps are of it, every rank up to the last is."""
    name, ranks = group
    numbers = [rank for rank in present if rank is not None]
    return (name, tuple(range(max(numbers) + 1))) if not ranks and everybody and numbers else group


def _stuck(group: Group, states: Members, calls: Calls, present: set[int | None]) -> Stuck | None:
    name, ranks = group
    called = f"{name} ({states[0][1].description})" if states[0][1].description else name
    furthest = max(state.enqueued for _, state in states)
    behind = [dump.called for dump, state in states if state.enqueued < furthest]
    waits = any(state.completed < state.enqueued for _, state in states)
    if behind and waits:
        number = min(state.enqueued for _, state in states) + 1
        return Stuck(called, number, _op(calls, number), tuple(behind), NEVER_CALLED)
    if different := _different(called, calls):
        return different
    finished = min(state.completed for _, state in states)
    if not waits or finished >= furthest:
        return None
    absent = tuple(f"rank {rank}" for rank in ranks if rank not in present)
    op = _op(calls, finished + 1)
    return Stuck(called, finished + 1, op, absent, NO_DUMP if absent else NEVER_ENDED)


def _judged(found: list[Stuck], waiting: set[str]) -> list[Stuck]:
    """Ranks missing in one group because they wait in another are victims: those who wait nowhere are named."""
    idle = [tuple(rank for rank in stuck.missing if rank not in waiting) for stuck in found]
    named = [Stuck(stuck.group, stuck.number, stuck.op, free or stuck.missing, stuck.why)
             for stuck, free in zip(found, idle, strict=True)]  # fmt: skip
    if found and not any(idle) and all(stuck.why == NEVER_CALLED for stuck in found):
        named = [Stuck(stuck.group, stuck.number, stuck.op, stuck.missing, IN_A_CIRCLE) for stuck in named]
    order = sorted(range(len(found)), key=lambda at: (not idle[at], not found[at].missing, found[at].number))
    return [named[at] for at in order]


def _op(calls: Calls, number: int) -> str:
    return next((call.op for _, call in calls if call.number == number), "")


def _different(group: str, calls: Calls) -> Stuck | None:
    """The first number under which ranks called different things: a mistake of the program."""
    kinds_by_number: dict[int, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for dump, call in calls:
        uneven = any(call.op.lower().startswith(op) for op in UNEVEN)
        kinds_by_number[call.number][call.op, "" if uneven else call.sizes].append(dump.called)
    for number in sorted(kinds_by_number):
        kinds = kinds_by_number[number]
        if len(kinds) > 1:
            (op, sizes), odd = min(kinds.items(), key=lambda kind: len(kind[1]))
            return Stuck(group, number, op, tuple(odd), f"they called {op} {sizes}, the others something else")
    return None
