"""`shardwise catalog`: what can be named in a question, by kind; each kind is a second word."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.catalog import FOLDERS, catalog_answer
from shardwise.registry import closest
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._second_words import app_of

catalog = app_of("catalog")


@catalog.default
def kinds(kind: Annotated[str, Parameter(show=False)] = "", /, *, json: Json = False) -> int:
    """Models, GPUs, clusters, training programs and published layouts: how many there are of each."""
    if kind:
        raise ValueError(f"kind: {kind[:40]!r} is unknown; {closest(kind[:40], list(FOLDERS))}")
    return answered(catalog_answer(), json)
