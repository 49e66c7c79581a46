"""What a verb printed as one HTML file: tables, facts, notes and figures; no script, no outside file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from shardwise.report.charts import amounts_svg
from shardwise.report.table_figure import table_bars
from shardwise.report.timeline_page import MARK, STYLE

MORE = """
h1 { margin: 0; font-size: 22px; letter-spacing: -.02em; }
p.command { margin: 4px 0 0; color: var(--muted); overflow-wrap: anywhere; }
section { margin: 20px 0 0; padding: 16px 20px 18px; overflow-x: auto; background: var(--surface);
  border: 1px solid var(--line); border-radius: 12px; box-shadow: var(--shadow); }
section:first-of-type { border-top: 4px solid var(--accent); }
section h2 { margin: 0 0 10px; font-size: 16px; } section svg { max-width: 100%; height: auto; }
section table, section ul { margin: 0; } section > * + h2, section > * + div { margin-top: 20px; }
td.words { text-align: left; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.45 ui-monospace, 'DejaVu Sans Mono', monospace; }
dl { display: grid; grid-template-columns: minmax(7em, max-content) 1fr; gap: 3px 18px; margin: 0; }
dt { color: var(--muted); } dd { margin: 0; }
summary { cursor: pointer; font-weight: 600; color: var(--muted); margin-top: 10px; }
@media (max-width: 600px) { body { padding: 8px; } section { padding: 12px; }
  section svg { min-width: 36em; } td { white-space: nowrap; } td.words { white-space: normal; } }
"""


@dataclass(frozen=True)
class TablePart:
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    bars: Sequence[str] = ()
    """heads of columns that are drawn above it"""

    @property
    def html(self) -> str:
        chart = table_bars(self.title, self.heads, self.rows, self.bars, self.words) if self.bars else None
        if chart is None:
            return _titled(self.title) + html_table(self.heads, self.rows, words=self.words)
        # the figure says the title, and draws what the terminal does with letters
        kept = [place for place in range(len(self.heads)) if not self._lettered(place)]
        heads, rows = [self.heads[place] for place in kept], [[row[place] for place in kept] for row in self.rows]
        return amounts_svg(chart) + html_table(heads, rows, words=sum(place < self.words for place in kept))

    def _lettered(self, place: int) -> bool:
        """A column of bars made of letters."""
        return not self.heads[place] and all(set(row[place]) <= set("#+-") for row in self.rows)


@dataclass(frozen=True)
class FactsPart:
    title: str
    facts: Sequence[tuple[str, str]]

    @property
    def html(self) -> str:
        pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in self.facts)
        return f"{_titled(self.title)}<dl>{pairs}</dl>"


@dataclass(frozen=True)
class NotesPart:
    title: str
    lines: Sequence[str]

    @property
    def html(self) -> str:
        return _titled(self.title) + html_list(self.lines)


@dataclass
class TextPart:
    """What was printed as it stands."""

    pieces: list[str] = field(default_factory=list)

    @property
    def html(self) -> str:
        text = "".join(self.pieces).strip("\n")
        return f"<pre>{escape(text)}</pre>" if text.strip() else ""


@dataclass(frozen=True)
class DrawnPart:
    """HTML or SVG that this package made."""

    html: str


ResultPart = TablePart | FactsPart | NotesPart | TextPart | DrawnPart


def result_page(command: str, parts: Sequence[ResultPart]) -> str:
    body = "\n".join(f"<section>{html}</section>" for part in parts if (html := part.html))
    title = escape(" ".join(command.split()[:3]))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"/>{MARK}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"/><title>{title}</title>'
        f"<style>{STYLE}{MORE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        f'<p class="command"><code>{escape(command)}</code></p>\n{body}\n</body>\n</html>\n'
    )


def _titled(title: str) -> str:
    return f"<h2>{escape(title)}</h2>" if title else ""


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """The first `words` columns are text."""
    head = "".join(f"<th{_left(i, words)}>{escape(h)}</th>" for i, h in enumerate(heads))
    body = "\n".join(
        "<tr>" + "".join(f"<td{_left(i, words)}>{escape(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def html_list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _left(column: int, words: int) -> str:
    return ' class="words" style="text-align:left"' if column < words else ""
