"""An answer is a struct: its fields are the JSON of a verb, and `parts` says how people read it.

A field of a row says its label and unit once, with `shown`; `table` makes columns of those fields, so that a new column
is one line. Renderers (`cli/_output.py`, `report/result_page.py`, a notebook) know parts, never a verb.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct

from shardwise.report.terminal import policy_code, span_text, usd_text
from shardwise.screen import on_screen
from shardwise.units import decimal_text, share_text, size_unit, time_text

Cell = str | int | float | None


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a verb answers. Values are SI; the key of a field says its unit."""

    notes: Sequence[str] = ()

    def parts(self) -> "Iterator[Part]":
        """What people see, top to bottom; `notes` follow."""
        raise NotImplementedError

    def more(self) -> "Iterator[Part]":
        """What `--verbose` adds, below the notes."""
        return iter(())

    @property
    def exit_code(self) -> int:
        """1: the answer is no to a question of yes and no, such as whether it fits."""
        return 0

    def data(self) -> dict[str, Any]:
        """The JSON: fields as they are declared, notes last."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        fields.pop("notes", None)
        return fields | {"notes": list(self.notes)}

    def _repr_html_(self) -> str:
        from shardwise.answers.html import html_of  # an answer that nobody looks at needs no page

        return html_of(self)


@dataclass(frozen=True)
class FactList:
    """Lines of 'name  value'; a value of None is left out."""

    title: str
    facts: Sequence[tuple[str, Cell]]


@dataclass(frozen=True)
class Table:
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int = 1
    """columns that are text, from the left"""
    breaks: int = -1
    """the column whose words may be broken over lines"""
    bars: Sequence[str] = ()
    """heads of columns that a page draws as bars"""


@dataclass(frozen=True)
class Notes:
    lines: Sequence[str]
    title: str = "notes"


@dataclass(frozen=True)
class Bars:
    """Amounts that a page draws and a terminal does not: name -> amount and its text."""

    title: str
    amounts: Mapping[str, tuple[float, str]]


@dataclass(frozen=True)
class DrawnFigure:
    """A figure, as SVG or HTML, of a page. A terminal shows `instead`, which the page leaves out."""

    make: Callable[[], str]
    instead: "Sequence[Part]" = ()


Part = FactList | Table | Notes | Bars | DrawnFigure


def with_notes(answer: Answer, *, verbose: bool = False) -> "Iterator[Part]":
    yield from answer.parts()
    if answer.notes:
        yield Notes(answer.notes)
    if verbose:
        yield from answer.more()


def text_of(value: Cell) -> str:
    """One cell: thousands grouped, three or four significant digits, '-' for what does not exist."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return on_screen(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


TEXT: dict[str, Callable[[Any], Cell]] = {
    "": lambda value: value,
    "GB/s": lambda value: value / 1e9,
    "TB/s": lambda value: value / 1e12,
    "GFLOP": lambda value: value / 1e9,
    "TFLOP/s": lambda value: value / 1e12,
    "whole TFLOP/s": lambda value: f"{value / 1e12:,.0f}",
    "GiB": lambda value: f"{value / 2**30:.1f}",
    "us": lambda value: value * 1e6,
    "whole": round,
    "thousands": lambda value: f"{value:,}",
    "time": time_text,
    "bytes": decimal_text,
    "billions": lambda value: f"{value / 1e9:,.2f}" if value >= 1e7 else f"{value / 1e9:.2g}",
    "share": lambda value: f"{value:.3f}",
    "yes": lambda value: "yes" if value else "no",
    "not zero": lambda value: value or None,
    "percent range": lambda value: f"{value[0]:+.0%} .. {value[1]:+.0%}",
    "USD range": lambda value: f"{value[0]:.2f}-{value[1]:.2f}",
    "unasked": lambda value: "unasked" if value else "if named",
    "policy": policy_code,
    "s": lambda value: f"{value:.4g}",
    "percent": lambda value: share_text(value).rstrip("%"),
    "per second": lambda value: f"{value:,.0f}",
    "USD span": span_text,
    "rent": usd_text,
    "mark": lambda value: ">" if value else "",
}
"""unit of a column -> its text, from the SI value of the field"""
SIZES = "bytes of all"
"""unit of a column of bytes that are all written in the unit of the largest, which is its head"""


def shown(label: str, unit: str = "") -> Meta:
    """Metadata of a field that people see: the head of its column, and how its value is written."""
    if unit not in TEXT and unit != SIZES:
        raise ValueError(f"unit: {unit!r} is unknown; write one of {', '.join(map(repr, TEXT))}")
    return Meta(title=label, extra={"unit": unit})


@cache
def columns(row: type[Struct]) -> dict[str, tuple[str, str]]:
    """Fields of a row that people see, in their order: name -> label, unit."""
    return {
        name: (name if meta.title is None else meta.title, meta.extra["unit"])
        for name, hint in get_type_hints(row, include_extras=True).items()
        for meta in getattr(hint, "__metadata__", ())
        if isinstance(meta, Meta) and meta.extra and "unit" in meta.extra
    }


def table(
    title: str, rows: Sequence[Any], *, words: int = 1, breaks: int = -1, bars: Sequence[str] = (),
    row: type[Struct] | None = None, without: Sequence[str] = (),
) -> Table:  # fmt: skip
    """A table of rows of one type. `row`: the type, where there may be no rows or they are of another that has some of
    its fields; `without`: fields left out, as is a column that no row has a value of."""
    heads = {
        name: shape for name, shape in columns(row or type(rows[0])).items()  # type: ignore[arg-type]
        if name not in without and (not rows or any(_value(line, name) is not None for line in rows))
    }  # fmt: skip
    made = [_column([_value(line, name) for line in rows], *shape) for name, shape in heads.items()]
    cells = [list(line) for line in zip(*(cells for _, cells in made), strict=True)]
    return Table(title, [label for label, _ in made], cells, words, breaks, bars)


def _value(row: Any, name: str) -> Any:
    value = getattr(row, name, None)
    return None if value is UNSET else value


def _column(values: Sequence[Any], label: str, unit: str) -> tuple[str, list[Cell]]:
    """Its head and its cells."""
    if unit == SIZES:
        size = size_unit(max((value for value in values if value is not None), default=2.0**30))
        label = label or size.name
        return label, [None if value is None else size.text(value) for value in values]
    return label, [None if value is None else TEXT[unit](value) for value in values]
