"""An answer is a struct: its fields are the JSON of a verb, and `parts` says how people read it.

A field of a row says its label and unit once, with `shown`; `table` makes columns of those fields, so that a new column
is one line. Renderers (`show/cli/_output.py`, `report/result_page.py`, a notebook) know parts, never a verb.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from shardwise.report.terminal import dollars_range, policy_code, usd_text
from shardwise.screen import on_screen
from shardwise.units import decimal_text, memory_text, share_text, size_unit, time_text
from shardwise.whole_file import moved_to

Cell = str | int | float | None
STATED = "stated"
"""origin of a policy that the user wrote"""


class Rendered(Struct, frozen=True, kw_only=True):
    """What all answers can do; an answer that extends another struct takes it as a second base."""

    notes_among_parts: ClassVar[bool] = False
    origin_first: ClassVar[bool] = False
    """of one policy: where none was stated, the note that says which is taken comes before all others"""

    only_shown: ClassVar[tuple[str, ...]] = ()
    """fields that `parts` reads and the JSON leaves out; each has UNSET as its default"""

    def parts(self) -> "Iterator[Part]":
        """What people see, top to bottom; `notes` follow."""
        raise NotImplementedError

    def more(self) -> "Iterator[Part]":
        """What `--verbose` adds, below the notes."""
        return iter(())

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        """Notes as people see them: with legends, which the JSON needs not."""
        return notes

    @property
    def exit_code(self) -> int:
        """1: the answer is no to a question of yes and no, such as whether it fits."""
        return 0

    def data(self) -> dict[str, Any]:
        """The JSON: fields as they are declared, notes last."""
        encoded = replace(self, **dict.fromkeys(self.only_shown, UNSET)) if self.only_shown else self
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(encoded))
        fields.pop("notes", None)
        return fields | {"notes": list(notes_of(self))}

    def plot(self) -> "Picture":
        """What the page draws of it, for a notebook or a file; a ValueError where nothing is drawn."""
        drawn = [part.html() for part in self.parts() if isinstance(part, Figure)]
        if not drawn:
            raise ValueError(f"plot: nothing of a {type(self).__name__} is drawn; print it, or take data()")
        return Picture(html="\n".join(drawn))

    def _repr_html_(self) -> str:
        from shardwise.answers.html import html_of  # an answer that nobody looks at needs no page

        return html_of(self)


class Picture(Struct, frozen=True):
    """Figures of an answer, as HTML with SVG in it."""

    html: str

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: str | Path) -> None:
        with moved_to(Path(path)) as file:
            file.write(self.html.encode())


class Answer(Rendered, frozen=True, kw_only=True, omit_defaults=True):
    """What a verb answers. Values are SI; the key of a field says its unit."""

    notes: Sequence[str] = ()


def notes_of(answer: Rendered) -> Sequence[str]:
    notes: Sequence[str] = getattr(answer, "notes", ())
    return notes


@dataclass(frozen=True)
class FactList:
    """Lines of 'name  value'; a value of None is left out. Without a title they belong to the part above."""

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
    left: Sequence[str] = ()
    """heads of further columns that are text"""


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
class Text:
    """Lines as they stand: a file, a diff, a command."""

    text: str


@dataclass(frozen=True)
class Sentence:
    """A sentence by itself."""

    text: str


@dataclass(frozen=True)
class Figure:
    """What a page draws. A terminal shows `instead`, which the page leaves out."""

    html: Callable[[], str]
    instead: "Sequence[Part]" = ()


Part = FactList | Table | Notes | Bars | Text | Sentence | Figure


def with_notes(answer: Rendered, *, verbose: bool = False) -> "Iterator[Part]":
    notes = notes_of(answer)
    if answer.origin_first and notes and getattr(answer, "policy_origin", STATED) != STATED:
        yield Sentence(notes[0])
        notes = notes[1:]
    yield from answer.parts()
    if not answer.notes_among_parts:
        yield Notes(answer.footnotes(notes))
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


SIZES = "bytes of all"
"""unit of a column of bytes that are all written in the unit of the largest, which is its head"""
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
    "s": lambda value: f"{value:.4g}",
    "ms": lambda value: value * 1e3,
    "percent": lambda value: f"{value:.1%}",
    "change": lambda value: f"{value:+.1%}",
    "bytes": decimal_text,
    "billions": lambda value: f"{value / 1e9:,.2f}" if value >= 1e7 else f"{value / 1e9:.2g}",
    "share": lambda value: f"{value:.3f}",
    "yes": lambda value: "yes" if value else "no",
    "not zero": lambda value: value or None,
    "percent range": lambda value: f"{value[0]:+.0%} .. {value[1]:+.0%}",
    "USD range": lambda value: f"{value[0]:.2f}-{value[1]:.2f}",
    "unasked": lambda value: "unasked" if value else "if named",
    "policy": policy_code,
    "%": lambda value: share_text(value).rstrip("%"),
    "per second": lambda value: f"{value:,.0f}",
    "USD span": dollars_range,
    "rent": usd_text,
    "mark": lambda value: ">" if value else "",
    SIZES: memory_text,
}
"""unit of a column -> its text, from the SI value of the field"""


def shown(label: str, unit: str | Callable[[Any], Cell] = "") -> Meta:
    """Metadata of a field that people see: the head of its column, and how its value is written."""
    if isinstance(unit, str) and unit not in TEXT:
        raise ValueError(f"unit: {unit!r} is unknown; write one of {', '.join(map(repr, TEXT))}")
    return Meta(
        title=label, extra={"text": TEXT[unit], "unit": unit} if isinstance(unit, str) else {"text": unit, "unit": ""}
    )


def facts(row: Struct) -> list[tuple[str, Cell]]:
    """The shown fields of one struct as lines, those without a value left out."""
    return [
        (label, text(value))
        for name, (label, text) in columns(type(row)).items()
        if (value := getattr(row, name)) is not None
    ]


def columns(row: type[Struct]) -> dict[str, tuple[str, Callable[[Any], Cell]]]:
    """Fields of a row that people see, in their order: name -> label, text of a value."""
    return {name: (label, text) for name, (label, text, _) in _shown(row).items()}


def units(row: type[Struct]) -> dict[str, str]:
    """Of the same fields, as `shown` names them."""
    return {name: unit for name, (_, _, unit) in _shown(row).items()}


@cache
def _shown(row: type[Struct]) -> dict[str, tuple[str, Callable[[Any], Cell], str]]:
    return {
        name: (name if meta.title is None else meta.title, meta.extra["text"], meta.extra["unit"])
        for name, hint in get_type_hints(row, include_extras=True).items()
        for meta in getattr(hint, "__metadata__", ())
        if isinstance(meta, Meta) and meta.extra and "text" in meta.extra
    }


def table(
    title: str, rows: Sequence[Any] | Mapping[str, Any], *, words: int = 1, breaks: int = -1, bars: Sequence[str] = (),
    row: type[Struct] | None = None, sparse: bool = False, without: Sequence[str] = (), named: str = "",
) -> Table:  # fmt: skip
    """A table of rows of one type. `row`: the type, where there may be no rows or they are of another that has some of
    its fields; `sparse`: columns without any value are left out; `without`: fields left out; `named`: head of the first
    column, where rows have names."""
    names = list(rows) if isinstance(rows, Mapping) else None
    rows = list(rows.values()) if isinstance(rows, Mapping) else rows
    heads = {name: head for name, head in columns(row or type(rows[0])).items() if name not in without}
    if sparse:
        heads = {name: head for name, head in heads.items() if any(_value(line, name) is not None for line in rows)}
    made = [(named, list[Cell](names))] if names is not None else []
    made += [_column([_value(line, name) for line in rows], *head) for name, head in heads.items()]
    cells = [list(line) for line in zip(*(cells for _, cells in made), strict=True)]
    return Table(title, [label for label, _ in made], cells, words, breaks, bars)


def _value(row: Any, name: str) -> Any:
    value = getattr(row, name, None)
    return None if value is UNSET else value


def _column(values: Sequence[Any], label: str, text: Callable[[Any], Cell]) -> tuple[str, list[Cell]]:
    """Its head and its cells."""
    if text is TEXT[SIZES]:
        size = size_unit(max((value for value in values if value is not None), default=2.0**30))
        label, text = f"{label} {size.name}".strip(), size.text
    return label, [None if value is None else text(value) for value in values]
