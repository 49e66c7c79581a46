"""`checkpoints diff`: the tensors in which two checkpoints differ, whatever formats they are in."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from shardwise.answers.answer import Answer, Cell, FactList, Part, Table
from shardwise.run.runtime.formats.diff import TensorDifference, by_weight, differences_of
from shardwise.run.runtime.formats.opened import open_checkpoint

MOST_ROWS = 40


class Side(Struct, frozen=True, kw_only=True):
    path: str
    format: str
    step: int | None
    tensors: int


class DiffAnswer(Answer, frozen=True, kw_only=True):
    a: Side
    b: Side
    equal: int
    """tensors that are the same bit for bit"""
    differences: Sequence[TensorDifference]

    def parts(self) -> Iterator[Part]:
        for name, side in (("a", self.a), ("b", self.b)):
            step = "no step stated" if side.step is None else f"step {side.step:,}"
            yield FactList(name, [(side.path, f"{side.format}, {step}, {side.tensors:,} tensors")])
        count = len(self.differences)
        yield FactList("", [("equal", f"{self.equal:,} tensors"), ("different", f"{count:,} tensors")])
        if count:
            rows = [_cells(one) for one in self.differences[:MOST_ROWS]]
            yield Table(f"first {len(rows)} differences", ("tensor", "kind", "difference", "largest"), rows, words=3)

    @property
    def exit_code(self) -> int:
        return 1 if self.differences else 0


def _cells(one: TensorDifference) -> list[Cell]:
    if one.only_in:
        return [one.tensor, one.kind, f"only in {one.only_in}", None]
    forms = f"{one.forms[0]} against {one.forms[1]}; " if one.forms else ""
    amount = f"{one.unequal:,} of {one.elements:,} elements" if one.elements else "not compared"
    return [one.tensor, one.kind, f"{forms}{amount}", f"{one.most:.3g}" if one.elements else None]


ANSWERS = (DiffAnswer,)


def diff_answer(a: Path, b: Path, read: Callable[[int], None]) -> DiffAnswer:
    """`read`: called with bytes read."""
    first, second = open_checkpoint(a, "a"), open_checkpoint(b, "b")
    found = list(differences_of(first, second, read))
    return DiffAnswer(
        a=Side(path=str(a), format=first.format, step=first.step, tensors=len(first.tensors)),
        b=Side(path=str(b), format=second.format, step=second.step, tensors=len(second.tensors)),
        equal=len({*by_weight(first), *by_weight(second)}) - len(found), differences=found,
    )  # fmt: skip
