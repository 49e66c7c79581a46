"""What `--help` leaves out and `--help-all` shows: options and verbs that few users need."""

from typing import Any

HELP_ALL = "--help-all"


class _OnlyWithAll:
    """Its truth, which cyclopts asks for when it lists verbs and options, changes with `show_all`."""

    all = False

    def __bool__(self) -> bool:
        return self.all

    def __xor__(self, other: bool) -> bool:
        return self.all ^ other


RARE: Any = _OnlyWithAll()
"""`show` of a verb or option that `--help` leaves out"""


def show_all(shown: bool) -> None:
    _OnlyWithAll.all = shown
