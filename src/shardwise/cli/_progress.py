"""Progress on stderr, where someone watches it."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


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


def watched(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items one by one, with a bar that moves as they are asked for."""
    with bar(what) as told:
        for done, item in enumerate(items):
            if told is not None:
                told(done, len(items))
            yield item


def watched_all(items: Iterable[Item], what: str) -> Iterator[Item]:
    """The same for items nobody has counted yet. Ctrl-C keeps those that are there."""
    with bar(what) as told:
        try:
            for done, item in enumerate(items, 1):
                if told is not None:
                    told(done, done + 1)
                yield item
        except KeyboardInterrupt:
            return
