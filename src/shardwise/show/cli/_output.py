"""How every verb prints: tables, facts, footnotes, JSON. Nothing here knows a verb."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from shardwise.answers.answer import Bars, FactList, Figure, Notes, Part, Rendered, Sentence, Text, with_notes
from shardwise.answers.answer import Cell as Cell
from shardwise.answers.answer import Table as TablePart
from shardwise.answers.answer import text_of as text_of
from shardwise.screen import on_screen
from shardwise.show.cli._html import draw_amounts, drawn, laid_out


class _Trimmed:
    """Stdout of a pipe or file: without the blanks that fill a table's last column."""

    def write(self, text: str) -> int:
        return sys.stdout.write(re.sub(r" +(?=\n|$)", "", text))

    def __getattr__(self, name: str) -> object:
        return getattr(sys.stdout, name)


def _console() -> Console:
    # Names from files may hold brackets, so rich's markup stays off.
    out: Any = None if sys.stdout.isatty() else _Trimmed()
    return Console(file=out, markup=False, highlight=False, emoji=False)


def print_table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], *, words: int = 1, breaks: int = -1,
    bars: Sequence[str] = (), left: Sequence[str] = (),
) -> None:  # fmt: skip
    """A table; the first `words` columns are text and stand left, the others are numbers and stand right. On a page
    too narrow for all, column `breaks` breaks at its spaces; without one, any but the first does. `bars`: heads of the
    columns that `--html` draws; `left`: of further columns that are text."""
    title, heads = on_screen(title), [on_screen(head) for head in heads]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True, show_edge=False)
    for index, head in enumerate(heads):
        whole = index != breaks if breaks >= 0 else index == 0
        table.add_column(
            head, justify="left" if index < words or head in left else "right", overflow="fold", no_wrap=whole
        )
    cells = [[text_of(cell) for cell in row] for row in rows]
    for row in cells:
        table.add_row(*row)
    with laid_out("TablePart", title, heads, cells, words, bars):
        _print_under(title, table)


def print_line(text: str) -> None:
    """A sentence by itself, below a blank line."""
    _console().print(f"\n{on_screen(text)}")


def print_text(text: str) -> None:
    """As it stands, such as a file."""
    print(on_screen(text))


def print_gap() -> None:
    _console().print()


def print_facts(title: str, facts: Sequence[tuple[str, Cell]]) -> None:
    """A title and one 'name  value' line per fact."""
    if not title and not facts:
        return
    title = on_screen(title)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="left", no_wrap=True)
    table.add_column(justify="left", overflow="fold")
    told = [(on_screen(name), text_of(value)) for name, value in facts]
    for name, value in told:
        table.add_row(name, value)
    with laid_out("FactsPart", title, told):
        _print_under(title, table)


def _print_under(title: str, table: Table) -> None:
    """A title of its own line: one of the table would break at the table's width."""
    console = _console()
    if title:
        console.print(RichText(title, style="bold"))
    console.print(table)


def print_notes(notes: Iterable[str], *, title: str = "notes") -> None:
    """Footnotes: assumptions made, sources corrected."""
    lines = [on_screen(note) for note in notes]
    if not lines:
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row("-", line)
    console = _console()
    with laid_out("NotesPart", title, lines):
        console.print(f"\n{title}:")
        console.print(table)


def answered(
    answer: Rendered, json: bool, verbose: bool = False, *, parts: Iterable[Part] | None = None,
    wrote: Mapping[str, str] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Prints an answer for people or for programs; its exit code. `parts`: what people see in place of the usual;
    `wrote`: files that were written besides, kind -> name and what opens it."""
    if json:
        print_json(answer.data())
    else:
        print_parts(with_notes(answer, verbose=verbose) if parts is None else parts)
        for kind, name in wrote.items():
            print(on_screen(f"{kind}: {name}"))
    return answer.exit_code


def print_parts(parts: Iterable[Part], *, gap: bool = False) -> bool:
    """Parts of an answer, a blank line between them; `gap`: one before them too. Whether another would need one."""
    for part in parts:
        if gap and (isinstance(part, TablePart | Text) or (isinstance(part, FactList) and part.title)):
            print_gap()
        match part:
            case FactList(title, facts):
                print_facts(title, [(name, value) for name, value in facts if value is not None])
            case TablePart(title, heads, rows, words, breaks, bars, left):
                print_table(title, heads, rows, words=words, breaks=breaks, bars=bars, left=left)
            case Notes(lines, title):
                print_notes(lines, title=title)
            case Bars(title, amounts):
                draw_amounts(title, amounts)
            case Text(text):
                print(on_screen(text))
            case Sentence(text):
                print_line(text)
            case Figure(html, instead):
                with drawn(html):
                    gap = print_parts(instead, gap=gap)
        gap = gap or not isinstance(part, Bars | Figure)
    return gap


def say_error(words: str) -> None:
    """One line on stderr, if there is anything to say."""
    if words:
        print(on_screen(f"error: {words}"), file=sys.stderr)


def print_json(data: Any, *, whole: bool = False) -> None:
    """Indented JSON on stdout; a number that is not finite becomes null. `whole`: a secret in it is for the reader."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    sys.stdout.write((text if whole else on_screen(text)) + "\n")
