"""`shardwise catalog terms`: the glossary on the command line."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.terms import terms_answer
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered


def terms(
    word: Annotated[str | None, Parameter(help="A word or code of the glossary; none: all of them.")] = None,
    /,
    *,
    json: Json = False,
) -> int:
    """Words and codes on the screen and in the lessons, each with its meaning."""
    return answered(terms_answer(word), json)
