"""Building blocks of orders: alternating forwards and backwards, and a tape that numbers micro-batches by itself."""

from collections import Counter, deque

from shardwise.plugins.schedules._contract import Action, Kind

Step = tuple[Kind, int]
"""a kind of piece and the chunk it is for"""


def pieces(kind: Kind, micro_batches: int, chunk: int = 0) -> list[Action]:
    return [Action(kind, i, chunk) for i in range(micro_batches)]


def alternate(forwards: list[Action], backwards: list[Action], warm_up: int) -> list[Action]:
    """`warm_up` forwards alone, then a forward and a backward in turn, then the backwards that are left."""
    alone = min(warm_up, len(forwards))
    pairs = zip(forwards[alone:], backwards[: len(backwards) - alone], strict=True)
    return [*forwards[:alone], *(piece for pair in pairs for piece in pair), *backwards[len(backwards) - alone :]]


def rounds(kind: Kind, pp: int, micro_batches: int, chunks: range) -> list[Action]:
    """pp micro-batches through every chunk, then the next pp."""
    return [
        Action(kind, first + i, chunk) for first in range(0, micro_batches, pp) for chunk in chunks for i in range(pp)
    ]


def with_weights(order: list[Action], delay: int) -> list[Action]:
    """Weight gradients after their input gradients, `delay` of them put off; what is still owed comes at the end."""
    owed: deque[Action] = deque()
    filled: list[Action] = []
    for piece in order:
        filled.append(piece)
        if piece.kind == "I":
            owed.append(Action("W", piece.micro_batch, piece.chunk))
            if len(owed) > delay:
                filled.append(owed.popleft())
    return [*filled, *owed]


F0: Step = ("F", 0)
F1: Step = ("F", 1)
B1: Step = ("B", 1)
I0: Step = ("I", 0)
I1: Step = ("I", 1)
W0: Step = ("W", 0)
W1: Step = ("W", 1)


class Tape:
    """One rank's order, written as kinds and chunks; each chunk's micro-batches are counted up kind by kind."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self._next: Counter[tuple[str, int]] = Counter()
        self._owed: deque[Action] = deque()

    def count(self, kind: Kind, chunk: int) -> int:
        return self._next[self._line(kind), chunk]

    def repeat(self, times: int, *steps: Step) -> None:
        for _ in range(times):
            for kind, chunk in steps:
                self.add(kind, chunk)

    def add(self, kind: Kind, chunk: int) -> None:
        line = self._line(kind)
        action = Action(kind, self._next[line, chunk], chunk)
        self._next[line, chunk] += 1
        self.actions.append(action)
        if kind == "I":
            self._owed.append(Action("W", action.micro_batch, chunk))

    def pair(self, forward: int, backward: int) -> None:
        """A forward of one chunk together with a backward of the other."""
        self.add("F", forward)
        self.actions[-1] = self.actions[-1]._replace(joined=True)
        self.add("B", backward)

    def pay_weight(self) -> None:
        """The oldest weight gradient not yet computed, if there is one."""
        if self._owed:
            self.actions.append(self._owed.popleft())

    @staticmethod
    def _line(kind: Kind) -> str:
        return "backward" if kind in "BI" else kind
