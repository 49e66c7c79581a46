"""A table of measured runs: reads the CSV, checks the columns, keeps what each row states."""

import csv
import io
import math
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from shardwise.bounded import check_cells
from shardwise.fields import read_file

MOST_BYTES = 64 * 2**20
NEEDED = ("source", "model", "gpu", "gpus", "seq")


MEASURED = frozenset({"tokens_per_s_per_gpu", "step_seconds", "tflops_per_gpu", "mfu", "peak_mem_gb"})
"""columns of what came out, not of what was run"""


class MeasuredRow(Struct, frozen=True, kw_only=True, dict=True):
    """One row; an empty cell is None."""

    row: int
    text: dict[str, str]

    def word(self, column: str) -> str:
        return self.text.get(column, "")

    def number(self, column: str) -> float | None:
        cell = self.word(column)
        if not cell:
            return None
        try:
            value = float(cell)
        except ValueError:
            raise ValueError(f"row {self.row}: {column} is {cell[:40]!r}; write a number or leave it empty") from None
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"row {self.row}: {column} is {cell[:40]!r}; write a finite number of 0 or more")
        return value

    def whole(self, column: str) -> int | None:
        value = self.number(column)
        if value is None:
            return None
        if value != int(value) or value > 1e15:
            raise ValueError(f"row {self.row}: {column} is {self.word(column)[:40]!r}; write a whole number")
        return int(value)

    @property
    def run(self) -> tuple[tuple[str, str], ...]:
        """What the row says was run: rows that say the same are predicted once."""
        return tuple(cell for cell in self.text.items() if cell[0] not in MEASURED)

    @cached_property
    def tokens_per_s_per_gpu(self) -> float | None:
        stated = self.number("tokens_per_s_per_gpu")
        if stated:
            return stated
        step, batch, seq, gpus = (self.number(c) for c in ("step_seconds", "global_batch", "seq", "gpus"))
        return batch * seq / step / gpus if step and batch and seq and gpus else None


def read_table(path: Path, needed: tuple[str, ...] = NEEDED) -> list[MeasuredRow]:
    try:
        content = read_file(path, "data", MOST_BYTES, "the path of a CSV file")
        check_cells(content, path.name, "data")
        raw = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8 text; write the path of a CSV file") from None
    try:
        reader = csv.DictReader(io.StringIO(raw), strict=True)
        columns = reader.fieldnames or []
        missing = [c for c in needed if c not in columns]
        if missing:
            raise ValueError(f"{path}: has no column {missing[0]!r}; the first line must name {', '.join(needed)}")
        return [
            MeasuredRow(
                row=i,
                text={k: (v or "").strip() for k, v in row.items() if isinstance(k, str) and not isinstance(v, list)},
            )
            for i, row in enumerate(reader)
        ]
    except csv.Error as error:
        raise ValueError(f"{path}: is not a well-formed CSV file ({error})") from None


def header(path: Path) -> tuple[str, ...]:
    """The column names of the first line, for telling formats apart; none where it is no line of a CSV file."""
    raw = read_file(path, "data", MOST_BYTES, "the path of a CSV file")
    try:
        return tuple(next(csv.reader([raw[:65536].decode("utf-8-sig", errors="replace").partition("\n")[0]]), []))
    except csv.Error:
        return ()
