"""Whether this tree predicts measured runs better than another one: both on the rows that both can read.

    git worktree add --detach ../base COMMIT
    python benchmarks/rows_against.py --base ../base FILE.csv [FILE.csv ...] [--json]

Each tree's own `validate` reads the files; where an older one stops at a row it does not understand, the rows are
halved until that row is left out. Rows that only one of the two predicts count for neither. `ratio` is the mean error
of this tree over that of the base: below 1 this one is nearer. Where `flash_attention` names a kernel that the base
does not know, it is read as 1 there.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

HERE = Path(__file__).resolve().parents[1]
Row = dict[str, str]


def validated(tree: Path, rows: Sequence[Row]) -> dict[int, float] | None:
    """Size of the error by place; None where the tree cannot read the file."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "rows.csv", Path(folder) / "out.json"
        with data.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        done = subprocess.run(
            [sys.executable, "-m", "shardwise", "validate", "--data", str(data), "--json", str(out)],
            cwd=tree, env=os.environ | {"PYTHONPATH": str(tree / "src")}, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return None
        found = json.loads(out.read_text(encoding="utf-8"))["rows"]
    return {each["row"]: abs(each["error"]) for each in found if each.get("error") is not None}


def errors_of(tree: Path, rows: Sequence[Row], places: Sequence[int]) -> dict[int, float]:
    found = validated(tree, [rows[place] for place in places])
    if found is not None:
        return {places[place]: error for place, error in found.items()}
    if len(places) == 1:
        return {}
    half = len(places) // 2
    return errors_of(tree, rows, places[:half]) | errors_of(tree, rows, places[half:])


def plainer(row: Row) -> Row:
    kernel = row.get("flash_attention", "")
    return row if kernel in ("", "0", "1") else row | {"flash_attention": "1"}


def summary(errors: dict[int, float], places: Sequence[int], rows: Sequence[Row]) -> dict[str, float]:
    sources: dict[str, list[float]] = defaultdict(list)
    for place in places:
        sources[rows[place]["source"]].append(errors[place])
    size = [errors[place] for place in places]
    return {"mape": fmean(size), "median": median(size), "mape_sources": fmean(map(fmean, sources.values()))}


def compared(base: Path, path: Path) -> dict[str, object]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    places = range(len(rows))
    there, here = errors_of(base, [plainer(row) for row in rows], places), errors_of(HERE, rows, places)
    both = sorted(there.keys() & here.keys())
    if not both:
        return {"file": path.name, "rows": 0}
    scores = [summary(errors, both, rows) for errors in (there, here)]
    ratio = {name: scores[1][name] / scores[0][name] for name in scores[0]}
    return {"file": path.name, "rows": len(both), "base": scores[0], "here": scores[1], "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--base", required=True, type=Path, help="the other tree")
    parser.add_argument("--json", action="store_true", help="the figures as one last line too")
    given = parser.parse_args()
    for path in (given.base / "src" / "shardwise", *given.files):
        if not path.exists():
            parser.error(f"{path} is not there")
    found = [compared(given.base.resolve(), path) for path in given.files]
    print(f"{'':18} {'rows':>5}  mean error, base / here   over sources, base / here")
    for each in found:
        base, here = each.get("base"), each.get("here")
        if isinstance(base, dict) and isinstance(here, dict):
            pairs = [f"{base[name]:6.1%} /{here[name]:6.1%}" for name in ("mape", "mape_sources")]
            print(f"{each['file']!s:18} {each['rows']:>5}  {pairs[0]:>25}   {pairs[1]:>25}")
        else:
            print(f"{each['file']!s:18} {0:>5}  no row that both predict")
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
