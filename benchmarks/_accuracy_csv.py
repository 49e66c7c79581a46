"""The long tables behind docs/accuracy.md: CSV files in evidence/accuracy, and a README that says what they hold."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from _accuracy_data import ROOT

FOLDER = ROOT / "evidence" / "accuracy"
FIGURES = ROOT / "docs" / "accuracy"
"""of the page, which shows them"""
TABLES = "../evidence/accuracy"
"""as the page links to them"""
Cell = str | int | float | None
OTHERS = {
    "folds.json": "what cross-validation found for every stack; `make accuracy FOLDS=1` renews it",
    "left_out.json": "constants fitted without one source, or without the large runs, for bands; the same renews it",
    "classes.csv": "error by class of run, whole sources left out; `benchmarks/classes.py --renew REASON` stores it",
    "found_later.csv": "runs of ten sources found when all else was done, and the step predicted then",
    "found_since.csv": "runs of 24 further sources, with the step and band predicted before any error was seen",
    "found_third.csv": "runs of 22 sources more, rows written down first, then what was predicted",
    "found_fourth.csv": "runs of 29 sources more, written down before any prediction",
    "found_fifth.csv": "runs of 30 sources more, written down before any prediction",
    "found_sixth.csv": "runs of experts with dispatchers side by side, from five sources",
    "found_seventh.csv": "runs of 11 sources more, written down before any prediction",
    "found_eighth.csv": "runs of 12 sources more, written down before any prediction",
    "h200_*_predicted.csv": "steps on one H200 as they were predicted before they were measured",
    "h200_*_measured.csv": "the same steps as measured",
    "h200_programs_fifth_drawn.json": "which programs the fifth set drew, from which lists",
    "h200_programs_sixth_drawn.json": "and the sixth",
    "h200_programs_seventh_drawn.json": "and the seventh",
    "h200_programs_eighth_drawn.json": "and the eighth",
    "h200_programs_ninth_drawn.json": "and the ninth, by `draw_published.py`",
    "h200_programs_tenth_drawn.json": "and the tenth, by the same",
    "h200_programs_eleventh_drawn.json": "and the eleventh",
    "h200_programs_threads_look.csv": "programs that wait for the host, measured once more, with each thread's speed",
    "programs.md": "sets of traced programs one by one: what each was the test of, what was furthest off",
    "h200_programs_*again*.csv": "programs predicted again after the errors of their set had been seen: no proof",
    "h200_programs_second_look.csv": "programs of the first two sets as measured once more",
    "h200_programs_third_by_grid.csv": "the third set predicted with laws of the kernel grid, seen by then: no proof",
    "h200_programs_third_look.csv": "programs of the third set as measured once more",
    "h200_programs_seventh_look.csv": "programs of the seventh set as measured once more, under a profiler",
    "h200_programs_later_look.csv": "32 programs of all sets as measured once more, behind the eighth",
    "h200_programs_now.csv": "programs of the eight sets as predicted by today's code: seen data, no proof",
}
"""files that lie there and are not written from a Table"""


class Table(NamedTuple):
    name: str
    about: str
    """one line for the README: which rows, and what is special about them"""
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        """Numbers to four digits; what does not exist is empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows([_text(cell) for cell in row] for row in self.rows)
        return out.getvalue()


def _text(cell: Cell) -> str:
    return "" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def write_tables(found: Iterable[Table], folder: Path = FOLDER) -> None:
    """The files and their README; a table without rows (its source is not at hand) leaves the stored file as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    every = sorted(found, key=lambda table: table.name)
    for table in every:
        if table.rows:
            (folder / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")
    lines = [f"| [{t.name}.csv]({t.name}.csv) | {t.about} |" for t in every]
    lines += [
        f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {about} |" for names, about in OTHERS.items()
    ]
    text = (
        "Tables behind [the page of accuracy](../../docs/accuracy.md), written by `make accuracy`. Errors are "
        "shares (0.05 is 5 %): `error` is predicted over measured step time, less 1, positive where predicted too "
        "slow; `mean_error` and `median_error` are of its size, `bias` is its signed mean. `rank` is Spearman's "
        "correlation of predicted and measured tokens/s per GPU; `regret` the measured speed of the layout predicted "
        "best over the best measured, 1 is perfect. Other units are in the names of the columns; an empty cell is a "
        "number that does not exist."
    )
    page = f"# Tables of accuracy\n\n{fill(text, 120)}\n\n| file | what is in it |\n| --- | --- |\n" + "\n".join(lines)
    (folder / "README.md").write_text(page + "\n", encoding="utf-8")
