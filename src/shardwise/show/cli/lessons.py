"""`shardwise catalog lessons`: the course on the command line, without its pictures."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from shardwise.answers.lessons import lessons_answer
from shardwise.show.cli._groups import OUTPUT
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.page.files import lessons_json

LANGUAGES = ("en", "ko")


def lessons(
    name: Annotated[str | None, Parameter(help="A lesson; none: the list of them, in order.")] = None,
    /,
    *,
    language: Annotated[str, Parameter(group=OUTPUT, help="en or ko.")] = "en",
    json: Json = False,
) -> int:
    """The course, from one neuron to a run on ten thousand GPUs."""
    if language not in LANGUAGES:
        raise ValueError(f"language: {language!r} is unknown; write {' or '.join(LANGUAGES)}")
    return answered(lessons_answer(msgspec.json.decode(lessons_json())["lessons"], name, language), json)
