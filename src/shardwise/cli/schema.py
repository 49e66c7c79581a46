"""`shardwise schema`: the JSON Schema of what a verb writes with `--json`."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.cli._installed import installed_verbs, schema_of
from shardwise.cli._options import Json
from shardwise.cli._output import print_json
from shardwise.cli._verbs import VERBS
from shardwise.registry import closest

FOLDER = Path(__file__).parent / "schemas"


def schema(
    verb: Annotated[str | None, Parameter(help="A verb; not given: all of them, by name.")] = None,
    /,
    *,
    json: Json = False,  # noqa: ARG001  the answer is JSON either way
) -> int:
    """The JSON Schema of a verb's --json answer: keys that are always there, and their types."""
    verbs = [*VERBS, *installed_verbs()]
    if verb is not None and verb not in verbs:
        raise ValueError(f"verb: {verb[:40]!r} is unknown; {closest(verb[:40], verbs)}")
    print_json(published_schema(verb) if verb is not None else {name: published_schema(name) for name in verbs})
    return 0


def published_schema(verb: str) -> dict[str, Any]:
    file = FOLDER / f"{verb}.json" if verb in VERBS else schema_of(verb)
    found: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    return found
