"""An answer as HTML: what `--html` writes into a page and a notebook shows, from the same parts as the terminal."""

from collections.abc import Iterable
from html import escape

from shardwise.answers.answer import (
    Bars,
    FactList,
    Figure,
    Notes,
    Part,
    Rendered,
    Sentence,
    Table,
    Text,
    text_of,
    with_notes,
)
from shardwise.report.charts import AmountBars, AmountRow, amounts_svg
from shardwise.report.result_page import FactsPart, NotesPart, TablePart, TextPart


def html_of(answer: Rendered) -> str:
    return html_of_parts(with_notes(answer, verbose=True))


def html_of_parts(parts: Iterable[Part]) -> str:
    return "".join(f"<div>{_html(part)}</div>" for part in parts)


def bars_svg(bars: Bars) -> str:
    rows = [AmountRow(name, [amount], [text]) for name, (amount, text) in bars.amounts.items()]
    return amounts_svg(AmountBars(bars.title, [bars.title], rows)) if rows else ""


def _html(part: Part) -> str:
    match part:
        case FactList(title, facts):
            return FactsPart(title, [(name, text_of(value)) for name, value in facts if value is not None]).html
        case Table(title, heads, rows, words, _, bars):
            return TablePart(title, heads, [[text_of(cell) for cell in row] for row in rows], words, bars).html
        case Notes(lines, title):
            return NotesPart(title, lines).html
        case Bars():
            return bars_svg(part)
        case Text(text) | Sentence(text):
            return TextPart([text]).html
        case Figure(html):
            return html()


def titled(title: str, html: str) -> str:
    """A figure below its title."""
    return f"<h2>{escape(title)}</h2>{html}"
