"""`shardwise schema`: the JSON Schema of what a verb writes with `--json`."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.answers.answer import Answer
from shardwise.cli._installed import installed_verbs, schema_of
from shardwise.cli._options import Json
from shardwise.cli._output import print_json
from shardwise.cli._verbs import VERBS
from shardwise.registry import closest

FOLDER = Path(__file__).parent / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


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
    """From the types of its answers; of verbs whose answers have no type yet, from the file that samples made."""
    if typed := answer_types(verb):
        forms, defined = msgspec.json.schema_components(typed, ref_template="#/$defs/{name}")
        body = forms[0] if len(forms) == 1 else {"anyOf": list(forms)}
        return {"$schema": DRAFT, "title": f"shardwise {verb} --json", **body, "$defs": defined}
    file = FOLDER / f"{verb}.json" if verb in VERBS else schema_of(verb)
    found: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    return found


def answer_types(verb: str) -> tuple[type[Answer], ...]:
    name = f"shardwise.answers.{verb}"
    if find_spec(name) is None:
        return ()
    types: tuple[type[Answer], ...] = import_module(name).ANSWERS
    return types
