"""Progress on stderr: a bar where someone watches it, a line now and then where it goes to a file."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

from shardwise.screen import on_screen

Item = TypeVar("Item")
Found = TypeVar("Found")


QUIET_S = 10.0
"""between two lines in a log"""


Heard = Callable[[str, int, int], None]
Shown = Callable[[Any], None]
_LISTENERS: list[Heard] = []
_LOOKERS: list[Shown] = []
OFTEN_S = 0.2
"""between two looks at what is found so far"""


@contextmanager
def heard_by(listener: Heard, looker: Shown | None = None) -> Iterator[None]:
    """Whoever shows progress elsewhere, such as a page, is told in place of stderr; a looker sees what a search has
    found so far, as plain data."""
    _LISTENERS.append(listener)
    if looker is not None:
        _LOOKERS.append(looker)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)
        if looker is not None:
            _LOOKERS.remove(looker)


def shown_so_far(data: Callable[[Found], Any]) -> Callable[[Found], None] | None:
    """What a search tells of what it has; None where nobody looks, so that it need not."""
    if not _LOOKERS:
        return None
    looker, last = _LOOKERS[-1], monotonic()

    def told(found: Found) -> None:
        nonlocal last
        if monotonic() - last >= OFTEN_S:
            last = monotonic()
            looker(data(found))

    return told


class LogLines:
    """For a stderr that is a file or a pipe: a line now and then, so that whoever reads it sees that work goes on."""

    def __init__(self) -> None:
        self._begun = self._last = monotonic()

    def say(self, words: str) -> None:
        now = monotonic()
        if now - self._last < QUIET_S:
            return
        self._last = now
        _line(f"{words}, after {now - self._begun:.0f} s")

    def count(self, what: str, done: int, of: int) -> None:
        self.say(f"{what}: {done:,} of {of:,}" if of else f"{what}: {done:,} so far")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Told (done, of all; 0 where nobody knows how many): a bar on a terminal, lines elsewhere."""
    if _LISTENERS:
        listener = _LISTENERS[-1]
        yield lambda done, of: listener(what, done, of)
        return
    if not sys.stderr.isatty():
        lines = LogLines()
        yield lambda done, of: lines.count(what, done, of)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, of: shown.update(task, completed=done, total=of or None)


@contextmanager
def mib_bar(what: str) -> Iterator[Callable[[int], None]]:
    """Told bytes as they are read or written; shows MiB."""
    with bar(what) as progress:
        total = [0]

        def told(size: int) -> None:
            total[0] += size
            progress(total[0] >> 20, 0)

        yield told


@contextmanager
def one_by_one(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Told (the piece that begins, pieces done, of all), where each may take minutes: a bar that names it on a
    terminal, a line for each elsewhere."""
    if _LISTENERS:
        listener = _LISTENERS[-1]
        yield lambda _, done, of: listener(what, done, of)
        return
    if not sys.stderr.isatty():
        yield lambda piece, done, of: _line(f"{what} {done + 1} of {of}: {piece}")
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True, markup=False), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda piece, done, of: shown.update(
            task, description=on_screen(f"{what} {done + 1} of {of}: {piece}"), completed=done, total=of
        )


def _line(words: str) -> None:
    with suppress(OSError):  # a log that is full is no reason to stop
        print(on_screen(words), file=sys.stderr, flush=True)


@contextmanager
def spoken() -> Iterator[Callable[[str], None]]:
    """Told in words what is done now, where nobody can say how much is left."""
    if not sys.stderr.isatty():
        yield LogLines().say
        return
    from rich.console import Console

    with Console(stderr=True, markup=False, highlight=False, emoji=False).status("") as shown:
        yield shown.update


def answers(items: Sequence[Item], what: str, ask: Callable[[Item], Found]) -> list[Found]:
    """What is found for each item, with a bar. Ctrl-C leaves those that are done, if any; the caller says so."""
    found: list[Found] = []
    with bar(what) as told:
        try:
            for item in items:
                told(len(found), len(items))
                found.append(ask(item))
        except KeyboardInterrupt:
            if not found:
                raise
    return found


def left_out(found: Sequence[object], items: Sequence[object], what: str) -> list[str]:
    """The note on what an interruption left out, if anything."""
    missing = len(items) - len(found)
    return [f"interrupted: {missing} of {len(items)} {what} were not looked at"] if missing else []


def counted(items: Iterable[Item], what: str) -> Iterator[Item]:
    """With a bar, for items nobody has counted yet."""
    with bar(what) as told:
        for done, item in enumerate(items, 1):
            told(done, 0)
            yield item


def watched_all(items: Iterable[Item], what: str) -> Iterator[Item]:
    """The same. Ctrl-C keeps those that are there."""
    try:
        yield from counted(items, what)
    except KeyboardInterrupt:
        return
