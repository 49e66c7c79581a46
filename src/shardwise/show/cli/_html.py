"""`--html FILE`, on every verb: what it prints is written as one page too, with its tables and figures."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from shardwise.screen import on_screen
from shardwise.show.cli._routes import FORMS
from shardwise.show.cli._verbs import BESIDE, VERBS

if TYPE_CHECKING:
    from shardwise.report.result_page import ResultPart

NO_RESULT = ("completion", "mcp", "schema", "serve")
FLAG, REPLACE = "--html", "--overwrite"
OWN_PAGE = ("watch",)
"""verbs that lay out a page themselves, all or some of their commands, and list `--html` among their options"""
Takes = Callable[[Sequence[str], str], bool]
"""whether the verb or command that these words begin with has an option of its own"""


@dataclass
class PageRecording:
    """What a verb prints, in pieces that a page can lay out."""

    parts: "list[ResultPart]" = field(default_factory=list)
    silent: int = 0
    """how deep inside what is laid out otherwise"""

    def add(self, part: "ResultPart") -> None:
        if not self.silent:
            self.parts.append(part)

    def text(self, words: str) -> None:
        from shardwise.report.result_page import TextPart

        if self.silent:
            return
        if not self.parts or not isinstance(self.parts[-1], TextPart):
            self.parts.append(TextPart())
        last = self.parts[-1]
        assert isinstance(last, TextPart)
        last.pieces.append(words)


_NOW: list[PageRecording] = []


@contextmanager
def laid_out(kind: str, *contents: Any) -> Iterator[None]:
    """What is printed meanwhile has a form of its own on a page: a KIND of `report.result_page`, looked up where a page
    is written only, as verbs must start fast."""
    if not _NOW:
        yield
        return
    from shardwise.report import result_page

    now = _NOW[-1]
    now.add(getattr(result_page, kind)(*contents))
    now.silent += 1
    try:
        yield
    finally:
        now.silent -= 1


@contextmanager
def drawn(make: Callable[[], str]) -> Iterator[None]:
    """A figure in place of what is printed meanwhile; nothing is drawn where no page is written."""
    with laid_out("DrawnPart", make()) if _NOW else nullcontext():
        yield


def draw(make: Callable[[], str]) -> None:
    """A figure beside what is printed."""
    with drawn(make):
        return


def draw_amounts(title: str, found: Mapping[str, tuple[float, str]]) -> None:
    """Bars beside what is printed, by name: an amount and its words."""

    def make() -> str:
        from shardwise.report.charts import AmountBars, AmountRow, amounts_svg

        return amounts_svg(
            AmountBars(title, [title], [AmountRow(name, [size], [words]) for name, (size, words) in found.items()])
        )

    if found:
        draw(make)


@dataclass
class _Heard:
    """The stream, and who listens to it."""

    stream: TextIO
    recording: PageRecording

    def write(self, words: str) -> int:
        self.recording.text(words)
        return self.stream.write(words)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def with_page(words: Sequence[str], answer: Callable[[list[str]], Any], takes: Takes) -> Any:
    """Answers these words, and writes the page they ask for."""
    rest, path, replace = _taken(words, takes)
    if path is None:
        return answer(rest)
    from shardwise.report.result_page import result_page
    from shardwise.show.cli._files import figure_file

    if path.suffix != ".html":
        raise ValueError(f"html: {path.name!r}; write a name that ends in .html")
    file = figure_file(path, replace, "html")
    assert file is not None
    recording, stream = PageRecording(), sys.stdout
    _NOW.append(recording)
    sys.stdout = _Heard(stream, recording)
    try:
        code = answer(rest)
    finally:
        sys.stdout = stream
        _NOW.remove(recording)
    if code in (None, 0, 1):
        file.write(on_screen(result_page(shlex.join(["shardwise", *rest]), recording.parts)).encode())
        print(f"page: {path} (open in a browser)", file=sys.stderr)
    return code


def _taken(words: Sequence[str], takes: Takes) -> tuple[list[str], Path | None, bool]:
    """The words without those of the page; where it goes; whether it may replace another file."""
    rest = list(words)
    verb = rest[0] if rest else ""
    end = rest.index("--") if "--" in rest else len(rest)
    places = [place for place in range(1, end) if rest[place].partition("=")[0] == FLAG]
    if verb not in (*VERBS, *BESIDE, *FORMS) or not places:
        return rest, None, False
    if verb in NO_RESULT:
        raise ValueError(f"html: {verb} prints no result; leave it out")
    if takes(rest, FLAG):  # it lays out its page itself
        return rest, None, False
    if len(places) > 1:
        raise ValueError(f"html: given {len(places)} times; write it once")
    place = places[0]
    _, joined, name = rest[place].partition("=")
    if not joined:
        name = rest[place + 1] if place + 1 < end else ""
        del rest[place + 1 : place + 2]
    del rest[place]
    if not name or name.startswith("-"):
        raise ValueError("html: no file is named; write --html FILE.html")
    if "--json" in rest:
        raise ValueError(f"html: {name!r} and --json: a page shows the printed tables; leave one of them out")
    replace = REPLACE in rest
    if replace and not takes(rest, REPLACE):
        rest.remove(REPLACE)
    return rest, Path(name), replace
