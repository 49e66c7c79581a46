"""`python -m evidence.papers [NAME|all] [--figure FILE.svg] [--quick] [--json]`: published results redone.

Without a name: what there is. Exit code 1 when a check fails, 2 when the input is wrong.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evidence.papers import Result, reproduction, reproductions
from evidence.papers._figure import papers_chart
from shardwise.plugins.sync._torch import torch_on_one_thread
from shardwise.report.charts import chart_svg
from shardwise.show.cli._files import figure_file
from shardwise.show.cli._output import print_gap, print_notes, print_table
from shardwise.show.cli._progress import bar

OWN_THREADS = ("talk_times", "language_model")
"""the first needs no torch, the second trains in processes of its own"""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.papers", description="Published results redone.")
    parser.add_argument("name", nargs="?", help="a result, or all")
    parser.add_argument("--figure", type=Path, help="draw it, FILE.svg")
    parser.add_argument("--quick", action="store_true", help="a smaller problem that shows the same")
    parser.add_argument("--overwrite", action="store_true", help="replace a figure that was written before")
    parser.add_argument("--json", action="store_true", help="one JSON object for each result")
    asked = parser.parse_args(words)
    try:
        return _answered(asked.name, asked.figure, quick=asked.quick, overwrite=asked.overwrite, as_json=asked.json)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


def _answered(name: str | None, figure: Path | None, *, quick: bool, overwrite: bool, as_json: bool) -> int:
    if name is None:
        print_table("published results", ["name", "question"], [(r.name, r.question) for r in reproductions().values()],
                    words=2)  # fmt: skip
        return 0
    names = list(reproductions()) if name == "all" else [reproduction(name).name]
    if figure is not None and (figure.suffix != ".svg" or len(names) > 1):
        raise ValueError(f"figure: {figure.name!r} with {name}; write one result and a name that ends in .svg")
    picture = figure_file(figure, overwrite)
    if not set(names) <= set(OWN_THREADS):
        torch_on_one_thread()
    found: dict[str, Result] = {}
    for each in names:
        with bar(each) as told:
            found[each] = reproduction(each).run(quick, told)
        if as_json:
            print(json.dumps(_data(each, found[each])))
        else:
            _show(each, found[each])
    if picture is not None:
        picture.write(chart_svg(papers_chart(found[names[0]])).encode())
    return 0 if all(result.holds for result in found.values()) else 1


def _show(name: str, result: Result) -> None:
    print_table(result.title, result.heads, result.rows)
    print_notes([("holds: " if c.holds else "FAILS: ") + c.claim for c in result.checks], title="checks")
    print_notes([*result.notes, f"source: {reproduction(name).source}"])
    print_gap()


def _data(name: str, result: Result) -> dict[str, Any]:
    return {
        "name": name, "question": reproduction(name).question, "source": reproduction(name).source,
        "holds": result.holds, "title": result.title, "heads": result.heads, "rows": result.rows,
        "checks": [asdict(check) for check in result.checks], "notes": result.notes,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
