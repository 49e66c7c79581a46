"""Rows that were timed on a GPU, as a table."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


def write_rows(path: Path, rows: Sequence[NamedTuple]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(rows[0]._fields)
        table.writerows(rows)
