"""Runs the orders of a schedule with pieces of fixed length and free transfers: who does what when, or a deadlock."""

from dataclasses import dataclass

from shardwise.plugins.schedules._contract import Action, Schedule

LENGTH = {"F": 1, "B": 2, "I": 1, "W": 1}


class Deadlock(AssertionError):
    pass


@dataclass(frozen=True)
class Run:
    orders: list[list[Action]]
    start: list[list[int]]
    """of each action of each rank"""
    end: list[list[int]]

    @property
    def length(self) -> int:
        return max(times[-1] for times in self.end)

    def busy(self, rank: int) -> int:
        return sum(LENGTH[a.kind] for a in self.orders[rank])

    def span(self, rank: int) -> int:
        return self.end[rank][-1] - self.start[rank][0]


def run(schedule: Schedule, pp: int, vpp: int, micro_batches: int, *, apart: bool = False) -> Run:
    """Each rank does its pieces in order, each as soon as what it needs is there; joined pieces as one, or `apart`."""
    orders = schedule.order(pp, vpp, micro_batches)
    held = 2 if schedule.both_ends else vpp
    stages = [[schedule.stage(rank, chunk, pp, vpp) for chunk in range(held)] for rank in range(pp)]
    last = pp * vpp - 1
    done: dict[tuple[str, int, int], int] = {}
    start: list[list[int]] = [[] for _ in orders]
    end: list[list[int]] = [[] for _ in orders]
    left = sum(len(order) for order in orders)
    while left:
        before = left
        for rank, order in enumerate(orders):
            while len(end[rank]) < len(order):
                first = len(end[rank])
                group = order[first : first + 1 + (order[first].joined and not apart)]
                ready = [done.get(n, -1) for a in group for n in needs(a, stages[rank][a.chunk], last)]
                if min(ready, default=0) < 0:
                    break
                at = max([*ready, end[rank][-1] if end[rank] else 0])
                until = at + sum(LENGTH[a.kind] for a in group)
                for action in group:
                    start[rank].append(at)
                    end[rank].append(until)
                    kind = "I" if action.kind == "B" else action.kind
                    done[kind, stages[rank][action.chunk], action.micro_batch] = until
                left -= len(group)
        if left == before:
            raise Deadlock(f"{schedule.name} pp {pp} vpp {vpp} m {micro_batches}: {left} pieces can never start")
    return Run(orders, start, end)


def needs(action: Action, stage: int, last: int) -> list[tuple[str, int, int]]:
    """What must be there; "I" stands for the input gradient of a whole backward too."""
    if action.kind == "F":
        return [("F", stage - 1, action.micro_batch)] if stage else []
    if action.kind == "W":
        return [("I", stage, action.micro_batch)]
    own = [("F", stage, action.micro_batch)]
    return own if stage == last else [*own, ("I", stage + 1, action.micro_batch)]


def most_held(order: list[Action]) -> int:
    """Activations of a rank at its fullest moment, in chunks: from the forward until no gradient needs them."""
    held = most = 0
    for action in order:
        held += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        most = max(most, held)
    return most
