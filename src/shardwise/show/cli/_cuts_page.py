"""How the points of `shardwise search cuts` are told: tables, and the same as JSON."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise.plan.search.cut_study import BEST, CutPoint, CutStudy
from shardwise.plan.search.problems.cuts import CutCollective, CutPrice
from shardwise.show.cli._output import Cell, print_facts, print_gap, print_notes, print_table
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Precision

SHORT = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR", "all_to_all": "A2A"}
CUT = {"column": "col", "tokens": "tok", "experts": "exp", "sequences": "seq", "gathered": "gath", "replicated": "repl",
       "features": "feat"}  # fmt: skip
PER_TABLE = 9
"""points side by side in 80 columns"""


@dataclass(frozen=True)
class CutsRequest:
    cluster: Cluster
    tp: int
    sequences: int
    seq: int
    precision: Precision
    stack: str
    accumulate: int
    most_bytes: float
    notes: list[str]


def show(ask: CutsRequest, found: CutStudy) -> None:
    places = list(dict.fromkeys(place for _, place in found.problems))
    proof = f"by {found.method.title}: {'exact' if found.proven else 'not proven'}"
    print_facts(
        f"{found.graph.name} on {ask.cluster.name}, tp {ask.tp}",
        [
            ("work", f"{ask.sequences:,} x {ask.seq:,} tokens, forward and backward, {ask.precision.name}"),
            ("optimum" if found.proven else "best", proof if found.found else f"none: {_nothing(ask, found)}"),
        ],
    )
    print_gap()
    heads = ["#", "cut", "forward", "backward", "MB sent", *(f"{place} ms" for place in places), "weights MB"]
    rows = [[str(n), _names(point), *_cells(point, places)] for n, point in enumerate(found.points, 1)]
    print_table("time and traffic of one GPU", heads, rows, words=4, bars=tuple(f"{place} ms" for place in places))
    print_gap()
    _show_cuts(found)
    if found.points:
        print_gap()
        _show_moves(found, found.points[0], places)
    print_notes([*_legend(found), *ask.notes, *_assumed(ask, found)])


def _nothing(ask: CutsRequest, found: CutStudy) -> str:
    least = sum(min(sizes) for sizes in next(iter(found.problems.values())).bytes)
    return f"no cut holds the weights in {ask.most_bytes / 1e6:,.4g} MB a rank; the least is {least / 1e6:,.4g} MB"


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


def _show_cuts(found: CutStudy) -> None:
    ops = [op for op in found.graph.ops if op.shown]
    for first in range(0, len(found.points), PER_TABLE):
        points = found.points[first : first + PER_TABLE]
        rows: list[list[Cell]] = [[op.name, *(_short(p.cuts[op.name]) for p in points)] for op in ops]
        rows.append(["x and y", *(_short(p.ends) for p in points)])
        numbers = [f"#{first + n}" for n in range(1, len(points) + 1)]
        print_table("cut of every matrix", ["matrix", *numbers], rows, words=1 + len(points))


def _short(word: str) -> str:
    return CUT.get(word, word)


def _show_moves(found: CutStudy, point: CutPoint, places: list[str]) -> None:
    rows: list[list[Cell]] = []
    for move in point.at[places[0]].moves:
        times = [found.problems[point.ends, place].seconds_of(move) * 1e6 for place in places]
        change = "weight gradient" if move.phase == "weights" else f"{move.start} to {move.end}"
        rows.append([move.phase, move.tensor, change, SHORT[move.op], move.sent_bytes / 1e6, *times])
    if rows:
        heads = ["when", "tensor", "from what to what", "", "MB sent", *(f"{place} us" for place in places)]
        print_table(f"collectives of #1, {_names(point)}", heads, rows, words=4)


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


def _assumed(ask: CutsRequest, found: CutStudy) -> list[str]:
    lines = [
        f"closed form with {ask.stack}'s kernels, one micro-batch, nothing overlapped, activations' memory not counted"
    ]
    if any(problem.regather for problem in found.problems.values()):
        lines.append(f"{ask.stack} keeps the slice of a gathered input and gathers it again in the backward pass")
    if any(move.phase == "weights" for point in found.points for priced in point.at.values() for move in priced.moves):
        every = (
            "every micro-batch" if ask.accumulate == 1 else f"{ask.accumulate:,} micro-batches, priced per micro-batch"
        )
        lines.append(f"weight gradients are summed once in {every}")
    if np.isfinite(ask.most_bytes):
        lines.append(f"optimum and next best hold at most {ask.most_bytes / 1e6:,.4g} MB of weights a rank")
    return lines


def as_json(ask: CutsRequest, found: CutStudy) -> dict[str, Any]:
    strides = {place: int(problem.machine.strides["tp"]) for (_, place), problem in found.problems.items()}
    return {
        "graph": found.graph.name, "cluster": ask.cluster.name, "gpu": ask.cluster.gpu.name, "tp": ask.tp,
        "tokens": ask.sequences * ask.seq, "seq_tokens": ask.seq, "precision": ask.precision.name, "stack": ask.stack,
        "accumulate": ask.accumulate, "most_weight_bytes": ask.most_bytes, "method": found.method.name,
        "proven": found.proven,
        "fits": found.found, "assignments": float(found.assignments),
        "places": {place: {"stride": stride} for place, stride in strides.items()},
        "points": [_point(point) for point in found.points],
        "notes": [*ask.notes, *_assumed(ask, found)],
    }  # fmt: skip


def _point(point: CutPoint) -> dict[str, Any]:
    first = next(iter(point.at.values()))
    return {
        "names": point.names, "ends": point.ends, "cuts": point.cuts, "weight_bytes": first.weight_bytes,
        "at": {place: _priced(priced) for place, priced in point.at.items()},
    }  # fmt: skip


def _priced(priced: CutPrice) -> dict[str, Any]:
    spent = {phase: sum(m.seconds for m in priced.moves if m.phase in phases)
             for phase, phases in (("forward", ("forward",)), ("backward", ("backward", "again")),
                                   ("weights", ("weights",)))}  # fmt: skip
    return {
        "time_s": priced.seconds, "compute_s": priced.compute_s,
        **{f"{phase}_communication_s": seconds for phase, seconds in spent.items()},
        "sent_bytes": priced.sent_bytes,
        "collectives": [
            {"phase": m.phase, "tensor": m.tensor, "op": m.op, "from": m.start, "to": m.end, "buffer_bytes": m.bytes,
             "sent_bytes": m.sent_bytes, "time_s": m.seconds} for m in priced.moves
        ],
    }  # fmt: skip
