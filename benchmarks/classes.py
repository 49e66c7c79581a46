"""How right a step time is by class of run, over all tables at once, with whole sources left out where something was
fitted on them.

    python benchmarks/classes.py [--json]
    git worktree add --detach ../base COMMIT; python benchmarks/classes.py --base ../base --json
    python benchmarks/classes.py --renew "why a class may be worse now"

evidence/accuracy/classes.csv holds the figures that tests/validate/test_classes.py compares with: a class that gets
worse by more than a point fails there until it is renewed with its reason. A base must lie beside this repository, for
the tables beside it are read by their relative place.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from _class_rows import CLASSES, HERE, Run, complete, every_run

STORED = HERE / "evidence" / "accuracy" / "classes.csv"
HEAD = ("rows", "sources", "mape", "mape_sources", "bias", "coverage", "coverage_sources", "width")
POINT = 0.01
Figures = dict[str, float]


def figures(runs: Sequence[Run]) -> Figures:
    by_source: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_source[run.source].append(run)
    errors = np.array([run.error for run in runs])
    return {
        "rows": len(runs),
        "sources": len(by_source),
        "mape": float(np.abs(errors).mean()),
        "mape_sources": float(np.mean([np.mean([abs(run.error) for run in group]) for group in by_source.values()])),
        "bias": float(errors.mean()),
        "coverage": float(np.mean([run.inside for run in runs])),
        "coverage_sources": float(np.mean([np.mean([run.inside for run in group]) for group in by_source.values()])),
        "width": float(np.mean([run.width for run in runs])),
    }


def by_class(runs: Sequence[Run]) -> dict[str, Figures]:
    chosen = {name: [run for run in runs if holds(run)] for name, holds in CLASSES.items()}
    return {name: figures(group) for name, group in chosen.items() if group}


def stored() -> dict[str, dict[str, str]]:
    with STORED.open(newline="", encoding="utf-8") as file:
        return {row["class"]: row for row in csv.DictReader(file)}


def worse(found: dict[str, Figures]) -> list[str]:
    """Classes whose mean error, over runs or over sources, is more than a point above what is stored."""
    return [
        f"{name}: {what} {found[name][what]:.1%}, stored {float(row[what]):.1%}"
        for name, row in stored().items()
        for what in ("mape", "mape_sources")
        if found[name][what] > float(row[what]) + POINT
    ]


def renew(found: dict[str, Figures], reason: str) -> None:
    before = stored() if STORED.is_file() else {}
    with STORED.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("class", *HEAD, "reason"))
        for name, row in found.items():
            cells = [f"{row[what]:.4g}" if what not in ("rows", "sources") else str(int(row[what])) for what in HEAD]
            same = name in before and cells == [before[name][what] for what in HEAD]
            writer.writerow((name, *cells, before[name]["reason"] if same else reason))


def of_tree(tree: Path) -> dict[str, Figures]:
    """The same tables by another tree's code, constants and left-out fits."""
    begun = f"import runpy, sys; sys.path[:0] = {[str(tree / 'benchmarks'), str(tree / 'src')]!r}; "
    code = begun + f"sys.path.append({str(HERE / 'benchmarks')!r}); sys.argv = ['classes.py', '--json']; "
    code += f"runpy.run_path({str(Path(__file__).resolve())!r}, run_name='__main__')"
    path = os.pathsep.join((str(tree / "src"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    found: dict[str, Figures] = json.loads(done.stdout.splitlines()[-1])["classes"]
    return found


def show(found: dict[str, Figures], base: dict[str, Figures]) -> None:
    print(
        f"{'':18} {'rows':>5} {'sources':>7}  {'error':>6} {'over sources':>12} {'bias':>7} {'inside':>7} {'width':>6}"
    )
    for name, row in found.items():
        print(_line(name, row))
        if name in base:
            print(_line("  base", base[name]))


def _line(name: str, row: Figures) -> str:
    return (
        f"{name:18} {row['rows']:5.0f} {row['sources']:7.0f}  {row['mape']:6.1%} {row['mape_sources']:12.1%} "
        f"{row['bias']:+7.1%} {row['coverage']:7.1%} {row['width']:6.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="another tree, beside this one, scored on the same rows")
    parser.add_argument("--renew", metavar="REASON", help="store today's figures with a reason")
    parser.add_argument("--json", action="store_true", help="the figures as one last line too")
    given = parser.parse_args()
    if not complete():
        print("not all tables are beside the repository: these figures are of those that ship", file=sys.stderr)
    found = by_class(every_run())
    base = of_tree(given.base.resolve()) if given.base else {}
    if given.renew:
        if not complete():
            parser.error("--renew: it takes every table, and some are not beside the repository")
        renew(found, given.renew)
    show(found, base)
    if given.json:
        print(json.dumps({"classes": found} | ({"base": base} if base else {})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
