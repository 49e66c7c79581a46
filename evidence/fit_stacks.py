"""Fits the `fitted` settings of a stack on the rows of its `fitted_on` sources, and cross-validates the fit.

    python evidence/fit_stacks.py nanotron              # five folds, held-out errors, spread of each constant
    python evidence/fit_stacks.py nanotron --write      # and the fit on all rows into catalog/fitted.toml
    python evidence/fit_stacks.py --support             # what holds each number of that table, counted again

Rows of one group (source, model, GPU, number of GPUs) are never on both sides of a split; with `--by source` no rows of
one source are. Folds start from the defaults of a stack; the fit on all rows starts from there and from the shipped
constants, and the better one is taken.
"""

# ruff: noqa: E402
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before numpy starts its threads

import argparse
import json
import re
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))  # of the benchmarks: what scores a stack
from _accuracy_bounds import bound_of
from _accuracy_data import FEWEST_GROUPS, ROOT, Rows, group_of, has_truth, memory_errors, rows_of, time_errors
from _accuracy_fit import Key, current, defaults, fit, objective, weighed
from _accuracy_folds import Record, record_of
from _accuracy_support import all_support
from shardwise.spec.software import known_stack

TABLE = ROOT / "src" / "shardwise" / "catalog" / "fitted.toml"
SUPPORT = re.compile(r", rows = \d+, groups = \d+, sources = \d+")
KEYS: dict[str, Key] = {"group": group_of, "source": lambda row: (row.word("source"),)}


def best_fit(rows: Rows) -> dict[str, float]:
    found = [fit(rows, start) for start in (defaults(rows.stack), current(rows.stack))]
    return min(found, key=lambda settings: objective(time_errors(weighed(rows).predict(settings))))


def written(text: str, stack: str, settings: dict[str, float]) -> str:
    """The table's text with the numbers of these settings of a stack replaced."""
    for name, value in settings.items():
        number = f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.2e}"
        number = re.sub(r"^(-?\d+)$", r"\1.0", number)
        text = _line(stack, name).sub(lambda found, number=number: f"{found[1]}{{ fitted = {number}{found[4]}", text)
    return text


def _line(stack: str, setting: str) -> re.Pattern[str]:
    """A number's line below its stack's head: all before it, kind, number, the rest without support, support."""
    head = rf'^\["{re.escape(stack)}"\]\n(?:[^\[\n][^\n]*\n)*?{setting} = '
    return re.compile(rf"({head})\{{ (fitted|set) = ([-+.\de]+)((?:, on = \"[^\"]*\")?[^\n]*\}})", re.MULTILINE)


def _before_support(found: re.Match[str]) -> str:
    return f"{found[1]}{{ {found[2]} = {found[3]}" + SUPPORT.sub("", found[4])[:-2]


def with_support(text: str) -> str:
    """The table's text with the rows, groups and sources that each number moves."""
    for stack, every in all_support():
        for one in every:
            held = f", rows = {one.rows}, groups = {one.groups}, sources = {one.sources} }}"
            line = _line(stack.name, one.setting)
            text = line.sub(lambda found, held=held: _before_support(found) + held, text)
    return text


def show(rows: Rows, record: Record, chosen: dict[str, float]) -> None:
    stack = rows.stack
    table = "tables of measured runs beside the repository" if has_truth() else "the shipped table"
    print(f"{stack.name}: {len(rows.cases)} scored rows in {record['groups']} groups ({stack.fitted_on}), {table}")
    print(f"{'':>10} {'rows':>6} {'mean':>8} {'median':>8} {'bias':>8}")
    lines = [(f"fold {number}", fold) for number, fold in enumerate(record["folds"], 1)]
    for name, found in [*lines, ("held out", record["held_out"]), ("all rows", record["all_rows"])]:
        print(f"{name:>10} {found['rows']:>6} {found['mape']:8.1%} {found['median']:8.1%} {found['bias']:+8.1%}")
    for name, settings in (("shipped", current(stack)), ("fitted", chosen)):
        found = rows.predict(settings)
        memory = memory_errors(found)
        tail = f", memory {np.abs(memory).mean():.1%}" if len(memory) else ""
        print(f"{name:>10} objective {objective(time_errors(found)):.4f}{tail}")
    print(f"\n{'setting':<26} {'shipped':>10} {'all rows':>10} {'folds':>23}  bounds, and why")
    for name in stack.fitted:
        values = [fold["settings"][name] for fold in record["folds"]]
        bound = bound_of(name)
        print(f"{name:<26} {stack.setting(name):>10.4g} {chosen[name]:>10.4g} {min(values):>10.4g} .. "
              f"{max(values):<9.4g}  {bound.low:g} .. {bound.high:g}: {bound.reason}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stack", nargs="?")
    parser.add_argument("--write", action="store_true", help="put the fit on all rows into catalog/fitted.toml")
    parser.add_argument("--support", action="store_true", help="count what holds each number of that table")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--by", choices=list(KEYS), default="group", help="what is held out whole: a group, a source")
    parser.add_argument("--json", action="store_true", help="print the record instead of the tables")
    given = parser.parse_args()
    if given.support:
        TABLE.write_text(with_support(TABLE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if given.stack is None:
        parser.error("write a program's name, or --support")
    try:
        stack = known_stack(given.stack)
        rows = rows_of(stack)
        if given.folds < 2:
            raise ValueError(f"--folds: {given.folds} holds nothing out; write 2 or more")
        if not stack.fitted or len(rows.groups) < FEWEST_GROUPS:
            raise ValueError(f"stack {stack.name}: {len(rows.groups)} groups of rows at hand to fit "
                             f"{len(stack.fitted)} settings on; choose one with {FEWEST_GROUPS} or more")  # fmt: skip
        if len({KEYS[given.by](case.measured) for case in rows.cases}) < 2:
            raise ValueError(f"--by: all rows of {stack.name} are of one {given.by}; write --by group")
        record = record_of(rows, given.folds, KEYS[given.by])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = best_fit(rows)
    if given.json:
        print(json.dumps({"stack": stack.name, "fit": chosen} | record))
    else:
        show(rows, record, chosen)
    if given.write:
        TABLE.write_text(written(TABLE.read_text(encoding="utf-8"), stack.name, chosen), encoding="utf-8")
        print(f"wrote {TABLE.relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
