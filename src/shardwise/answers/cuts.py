"""`search cuts`: cost of every way to cut the matrices of a block, with its collectives."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec import UNSET, Struct, field

from shardwise.answers.answer import Answer, Cell, FactList, Part, Table
from shardwise.plan.search.cut_study import BEST, CutPoint, CutStudy
from shardwise.plan.search.problems.cuts import CutCollective, CutPrice

SHORT = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR", "all_to_all": "A2A"}
CUT = {"column": "col", "tokens": "tok", "experts": "exp", "sequences": "seq", "gathered": "gath", "replicated": "repl",
       "features": "feat"}  # fmt: skip
PER_TABLE = 9
"""points side by side in 80 columns"""


class CutMessage(Struct, frozen=True, kw_only=True):
    phase: str
    tensor: str
    op: str
    start: str = field(name="from")
    end: str = field(name="to")
    buffer_bytes: float
    sent_bytes: float
    time_s: float


class PlacedCut(Struct, frozen=True, kw_only=True):
    """A cut where the group lies in one way."""

    time_s: float
    compute_s: float
    forward_communication_s: float
    backward_communication_s: float
    weights_communication_s: float
    sent_bytes: float
    collectives: Sequence[CutMessage]


class CutRow(Struct, frozen=True, kw_only=True):
    names: Sequence[str]
    ends: str
    cuts: Mapping[str, str]
    """choice of each matrix and attention"""
    weight_bytes: float
    at: Mapping[str, PlacedCut]


class GroupPlace(Struct, frozen=True, kw_only=True):
    stride: int


class CutsAnswer(Answer, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("study",)

    graph: str
    cluster: str
    gpu: str
    tp: int
    tokens: int
    seq_tokens: int
    precision: str
    stack: str
    accumulate: int
    most_weight_bytes: float | None
    method: str
    proven: bool
    fits: bool
    assignments: float
    places: Mapping[str, GroupPlace]
    points: Sequence[CutRow]
    study: Any = UNSET
    """a CutStudy"""

    @property
    def exit_code(self) -> int:
        return 0 if self.fits else 1

    def parts(self) -> Iterator[Part]:
        found: CutStudy = self.study
        places = list(self.places)
        proof = f"by {found.method.title}: {'exact' if self.proven else 'not proven'}"
        work = (
            f"{self.tokens // self.seq_tokens:,} x {self.seq_tokens:,} tokens, forward and backward, {self.precision}"
        )
        best = proof if self.fits else f"none: {self._nothing(found)}"
        title = f"{self.graph} on {self.cluster}, tp {self.tp}"
        yield FactList(title, [("work", work), ("optimum" if self.proven else "best", best)])
        heads = ["#", "cut", "forward", "backward", "MB sent", *(f"{place} ms" for place in places), "weights MB"]
        rows = [[str(n), _names(point), *_cells(point, places)] for n, point in enumerate(found.points, 1)]
        bars = tuple(f"{place} ms" for place in places)
        yield Table("time and traffic of one GPU", heads, rows, words=4, bars=bars)
        yield from _cuts(found)
        if found.points:
            yield from _moves(found, found.points[0], places)

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [*_legend(self.study), *notes]

    def _nothing(self, found: CutStudy) -> str:
        least = sum(min(sizes) for sizes in next(iter(found.problems.values())).bytes)
        most = (self.most_weight_bytes or np.inf) / 1e6
        return f"no cut holds the weights in {most:,.4g} MB a rank; the least is {least / 1e6:,.4g} MB"


ANSWERS = (CutsAnswer,)


def cuts_answer(
    found: CutStudy, *, cluster: str, gpu: str, tp: int, sequences: int, seq: int, precision: str, stack: str,
    accumulate: int, most_bytes: float, notes: Sequence[str],
) -> CutsAnswer:  # fmt: skip
    strides = {place: int(problem.machine.strides["tp"]) for (_, place), problem in found.problems.items()}
    return CutsAnswer(
        graph=found.graph.name, cluster=cluster, gpu=gpu, tp=tp, tokens=sequences * seq, seq_tokens=seq,
        precision=precision, stack=stack, accumulate=accumulate,
        most_weight_bytes=most_bytes if np.isfinite(most_bytes) else None, method=found.method.name,
        proven=found.proven, fits=found.found, assignments=float(found.assignments),
        places={place: GroupPlace(stride=stride) for place, stride in strides.items()},
        points=[
            CutRow(names=point.names, ends=point.ends, cuts=point.cuts,
                   weight_bytes=next(iter(point.at.values())).weight_bytes,
                   at={place: _placed(priced) for place, priced in point.at.items()})
            for point in found.points
        ],
        study=found, notes=[*notes, *found.notes, *_assumed(found, stack, accumulate, most_bytes)],
    )  # fmt: skip


def _placed(priced: CutPrice) -> PlacedCut:
    def spent(*phases: str) -> float:
        return sum(move.seconds for move in priced.moves if move.phase in phases)

    return PlacedCut(
        time_s=priced.seconds, compute_s=priced.compute_s, forward_communication_s=spent("forward"),
        backward_communication_s=spent("backward", "again"), weights_communication_s=spent("weights"),
        sent_bytes=priced.sent_bytes,
        collectives=[
            CutMessage(phase=m.phase, tensor=m.tensor, op=m.op, start=m.start, end=m.end, buffer_bytes=m.bytes,
                       sent_bytes=m.sent_bytes, time_s=m.seconds)
            for m in priced.moves
        ],
    )  # fmt: skip


def _names(point: CutPoint) -> str:
    """'optimum NVLink' and 'optimum nodes' of one point are one 'optimum'."""
    best = [name for name in point.names if name.startswith(BEST)]
    others = [name for name in point.names if not name.startswith(BEST)]
    return ", ".join([*([best[0].split()[0]] if best and len(best) == len(point.at) else best), *others])


def _cells(point: CutPoint, places: list[str]) -> list[Cell]:
    first = point.at[places[0]]
    times = [f"{point.at[place].seconds * 1e3:,.4g}" for place in places]
    forward, backward = _counted(first.moves, ("forward",)), _counted(first.moves, ("backward", "again", "weights"))
    return [forward, backward, first.sent_bytes / 1e6, *times, first.weight_bytes / 1e6]


def _counted(moves: Iterable[CutCollective], phases: tuple[str, ...]) -> str:
    """'AG RS', '2 AG', '3 AR(w)'."""
    words = [SHORT[m.op] + ("(w)" if m.phase == "weights" else "") for m in moves if m.phase in phases]
    return " ".join(word if times == 1 else f"{times} {word}" for word, times in Counter(words).items()) or "-"


def _cuts(found: CutStudy) -> Iterator[Part]:
    ops = [op for op in found.graph.ops if op.shown]
    for first in range(0, len(found.points), PER_TABLE):
        points = found.points[first : first + PER_TABLE]
        rows: list[list[Cell]] = [[op.name, *(_short(p.cuts[op.name]) for p in points)] for op in ops]
        rows.append(["x and y", *(_short(p.ends) for p in points)])
        numbers = [f"#{first + n}" for n in range(1, len(points) + 1)]
        yield Table("cut of every matrix", ["matrix", *numbers], rows, words=1 + len(points))


def _short(word: str) -> str:
    return CUT.get(word, word)


def _moves(found: CutStudy, point: CutPoint, places: list[str]) -> Iterator[Part]:
    rows: list[list[Cell]] = []
    for move in point.at[places[0]].moves:
        times = [found.problems[point.ends, place].seconds_of(move) * 1e6 for place in places]
        change = "weight gradient" if move.phase == "weights" else f"{move.start} to {move.end}"
        rows.append([move.phase, move.tensor, change, SHORT[move.op], move.sent_bytes / 1e6, *times])
    if rows:
        heads = ["when", "tensor", "from what to what", "", "MB sent", *(f"{place} us" for place in places)]
        yield Table(f"collectives of #1, {_names(point)}", heads, rows, words=4)


def _legend(found: CutStudy) -> list[str]:
    lines = [
        "col: every rank has a slice of the outputs (Megatron's column of X·W, the talk's row of W·x); row: of the "
        "inputs; whole: all of it; tok: all of it, on a slice of the tokens",
        "AG all-gather, RS reduce-scatter, AR all-reduce, A2A all-to-all; (w): of a weight gradient",
    ]
    kinds = {op.kind for op in found.graph.ops}
    if "dispatch" in kinds:
        lines.append("exp: whole experts of its own; routing is balanced")
    if "attention" in kinds:
        lines.append(
            "scores: heads: its own heads; gath: all scores on every rank from gathered Q and K, times a slice of V; "
            "tok: its own queries; seq: its own sequences"
        )
    return lines


def _assumed(found: CutStudy, stack: str, accumulate: int, most_bytes: float) -> list[str]:
    lines = [
        f"closed form with {stack}'s kernels, one micro-batch, nothing overlapped, activations' memory not counted"
    ]
    if any(problem.regather for problem in found.problems.values()):
        lines.append(f"{stack} keeps the slice of a gathered input and gathers it again in the backward pass")
    if any(move.phase == "weights" for point in found.points for priced in point.at.values() for move in priced.moves):
        every = "every micro-batch" if accumulate == 1 else f"{accumulate:,} micro-batches, priced per micro-batch"
        lines.append(f"weight gradients are summed once in {every}")
    if np.isfinite(most_bytes):
        lines.append(f"optimum and next best hold at most {most_bytes / 1e6:,.4g} MB of weights a rank")
    return lines
