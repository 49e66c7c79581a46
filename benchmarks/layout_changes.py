"""What one change of a layout does to a step: measured and predicted ratio of pairs of runs of one source that differ
in just that.

    python benchmarks/layout_changes.py [--json] [--pairs KIND]

A pair agrees in everything a row states but the columns of its kind, and in the settings of its program but those of
its kind. `error` is the mean size of the logarithm of the predicted over the measured ratio; ratios are geometric means
of the later over the earlier value, less tokens counted out: a longer step is a ratio above 1.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import exp, log
from statistics import fmean
from typing import NamedTuple

from _class_rows import Run, complete, every_run
from shardwise.measured.validate.table import MEASURED
from shardwise.spec.software import stack_of
from shardwise.spec.software.graphs import OF_STEPS

KINDS: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "sp": ("sp",),
    "ep": ("ep",),
    "dispatcher": ("dispatcher",),
    "recompute": ("recompute", "recompute_layers", "recompute_modules"),
    "fp8": ("dtype",),
    "micro-batch": ("micro_batch",),
    "zero": ("zero_stage_or_fsdp",),
    "attention kernel": ("flash_attention",),
    "graphs": ("graphs",),
    "expert overlap": (),
}
SETTINGS = {
    "dispatcher": (
        "dispatch",
        "exchange_setup_s",
        "ops_per_expert_layer_in_node",
        "ops_per_expert_layer_in_rack",
    ),
    "attention kernel": ("attention_kernel", "unfused_attention"),
    "graphs": OF_STEPS,
    "expert overlap": ("overlap_ep", "overlap_ep_between_nodes", "exchange_sms"),
}
"""of the program, which follow from words of a run's text"""
DERIVED = frozenset({"dp", "grad_accum", "notes", "software", "source_ref", "params_b", "tflops_definition"})
TEXT = ("notes", "software")
GRAPHS = ("cuda graph", "cudagraph", "cuda_graph")


class Pair(NamedTuple):
    source: str
    first: str
    second: str
    measured: float
    predicted: float


def pairs_of(runs: Sequence[Run], kind: str) -> Iterator[Pair]:
    alike: dict[object, dict[object, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        alike[_rest(run, kind)][_value(run, kind)].append(run)
    for values in alike.values():
        for first, second in pairwise(sorted(values, key=_order)):
            before, after = values[first], values[second]
            yield Pair(before[0].source, str(first), str(second), _ratio(before, after, 0), _ratio(before, after, 1))


def _order(value: tuple[object, ...]) -> list[tuple[bool, float, str]]:
    return [(isinstance(cell, str), 0.0 if isinstance(cell, str) else float(str(cell)), str(cell)) for cell in value]


def _value(run: Run, kind: str) -> tuple[object, ...]:
    row, stack = run.case.measured, run.case.stack
    cells: tuple[object, ...] = tuple(_number(row.word(column)) for column in KINDS[kind])
    if kind == "graphs":
        told = any(word in " ".join(map(row.word, TEXT)).lower() for word in GRAPHS)
        return (row.word("graphs") or ("some" if told else "none"),)
    own = "/".join(str(stack.setting(name)) for name in SETTINGS.get(kind, ()))
    return (*cells, own) if own else cells


def _rest(run: Run, kind: str) -> object:
    row, stack = run.case.measured, run.case.stack
    left_out = {*KINDS[kind], *DERIVED, *MEASURED, "step_s"}
    cells = tuple(
        (name, _number(cell))
        for name, cell in sorted(row.text.items())
        if cell and name not in left_out and "predicted" not in name
    )
    settings = dict.fromkeys(SETTINGS.get(kind, ()), 0)
    return cells, stack.name, tuple(_settings(run, settings)), row.word("software") if kind != "graphs" else ""


def _settings(run: Run, left_out: dict[str, int]) -> Iterator[tuple[str, str]]:
    """What words of its text changed in the program."""
    usual = stack_of(run.case.stack.name)
    for name in run.case.stack.stated:
        if name not in left_out and run.case.stack.setting(name) != usual.setting(name):
            yield name, str(run.case.stack.setting(name))


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _ratio(before: Sequence[Run], after: Sequence[Run], predicted: int) -> float:
    """Of seconds per token, so that batches may differ where a micro-batch does."""
    return exp(fmean(_logs(after, predicted)) - fmean(_logs(before, predicted)))


def _logs(runs: Sequence[Run], predicted: int) -> list[float]:
    return [-log(run.case.measured.tokens_per_s_per_gpu or 1.0) + predicted * log(1 + run.error) for run in runs]


def figures(pairs: Sequence[Pair]) -> dict[str, float]:
    by_source: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        by_source[pair.source].append(abs(log(pair.predicted / pair.measured)))
    return {
        "pairs": len(pairs),
        "sources": len({pair.source for pair in pairs}),
        "measured": exp(fmean(log(pair.measured) for pair in pairs)),
        "predicted": exp(fmean(log(pair.predicted) for pair in pairs)),
        "error": fmean(abs(log(pair.predicted / pair.measured)) for pair in pairs),
        "error_sources": fmean(map(fmean, by_source.values())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the figures as one last line too")
    parser.add_argument("--pairs", metavar="KIND", choices=list(KINDS), help="every pair of one kind")
    given = parser.parse_args()
    if not complete():
        print("not all tables are beside the repository: these pairs are of those that ship", file=sys.stderr)
    runs = every_run()
    if given.pairs:
        for pair in sorted(pairs_of(runs, given.pairs)):
            ratios = f"measured {pair.measured:.3f}, predicted {pair.predicted:.3f}"
            print(f"{pair.source:28} {pair.first} -> {pair.second}  {ratios}")
    found = {kind: figures(pairs) for kind in KINDS if (pairs := list(pairs_of(runs, kind)))}
    print(f"{'':18} {'pairs':>5} {'sources':>7} {'measured':>9} {'predicted':>9} {'log error':>9} {'over sources':>12}")
    for kind, row in found.items():
        print(
            f"{kind:18} {row['pairs']:5} {row['sources']:7} {row['measured']:9.3f} {row['predicted']:9.3f} "
            f"{row['error']:9.3f} {row['error_sources']:12.3f}"
        )
    if given.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
