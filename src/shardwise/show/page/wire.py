"""What goes over the wire: the documents of the page's server, whose schemas `shardwise serve --schema` prints."""

from typing import Any

import msgspec

from shardwise.show.page.questions import SentForm
from shardwise.show.page.workers import Progress


class Listening(msgspec.Struct, frozen=True):
    """`serve --json`, once it listens."""

    address: str
    host: str
    port: int


class Reply(msgspec.Struct, frozen=True):
    """An answer, with the command line that gives the same."""

    command: str
    code: int
    """0, or 1: it does not fit, or a check failed"""
    answer: Any
    """what the verb writes with `--json`; `shardwise VERB --schema` has its schema"""


class WrongField(msgspec.Struct, frozen=True):
    """What is wrong, and where it was written."""

    field: str
    """empty: it is of no field"""
    value: str
    message: str


class WrongRequest(msgspec.Struct, frozen=True):
    errors: list[WrongField]


class StreamedProblem(msgspec.Struct, frozen=True):
    status: int
    """of HTTP, had it not been streamed"""
    errors: list[WrongField]


FORMS: dict[str, type] = {
    "a server that listens": Listening,
    "POST /api/ask: a question": SentForm,
    "POST /api/ask: its answer, and the event `answer`": Reply,
    "POST /api/ask: what is wrong": WrongRequest,
    "POST /api/ask: the event `progress`": Progress,
    "POST /api/ask: the event `trouble`": StreamedProblem,
}
"""by what they are; the event `found` has columns and the best policies that the search has met"""
