"""Progress on stderr, where someone watches it."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Told (done, of all); None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what)
        yield lambda done, of: shown.update(task, completed=done, total=of)


@contextmanager
def spoken() -> Iterator[Callable[[str], None]]:
    """Told in words what is done now, where nobody can say how much is left."""
    if not sys.stderr.isatty():
        yield lambda _: None
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
                if told is not None:
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
            if told is not None:
                told(done, done + 1)
            yield item


def watched_all(items: Iterable[Item], what: str) -> Iterator[Item]:
    """The same. Ctrl-C keeps those that are there."""
    try:
        yield from counted(items, what)
    except KeyboardInterrupt:
        return
