"""`shardwise VERB --schema`: the JSON Schema of what a verb writes with `--json`."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.registry import closest
from shardwise.show.cli._installed import installed_verbs, schema_of
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import print_json
from shardwise.show.cli._routes import FORMS, MOVED, OF_VERB
from shardwise.show.cli._verbs import ONLY_WORDS, VERBS, WORDS
from shardwise.show.page.wire import FORMS as FORMS_OF_PAGE

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    verb: Annotated[str | None, Parameter(help="A verb; not given: all of them, by name.")] = None,
    word: Annotated[str | None, Parameter(help="Its second word, where it has one.")] = None,
    /,
    *,
    json: Json = False,  # noqa: ARG001  the answer is JSON either way
) -> int:
    """The JSON Schema of a verb's --json answer: keys that are always there, and their types."""
    verbs = [*VERBS, *installed_verbs()]
    if verb is not None and verb not in (*verbs, *MOVED, *FORMS):
        raise ValueError(f"verb: {verb[:40]!r} is unknown; {closest(verb[:40], verbs)}")
    name = word or verb
    print_json(published_schema(name) if name is not None else {name: published_schema(name) for name in verbs})
    return 0


def modules_of(verb: str) -> list[str]:
    """Modules whose answers a verb gives: of itself, of its second words, of its other question."""
    own = [] if verb in ONLY_WORDS else [verb]
    return [*own, *WORDS.get(verb, {}), *([OF_VERB[verb]] if verb in OF_VERB else [])]


def published_schema(verb: str) -> dict[str, Any]:
    """From the types of its answers."""
    if verb not in (*VERBS, *MOVED, *FORMS):
        return _of_file(schema_of(verb))
    ways: list[dict[str, Any]] = []
    defined: dict[str, Any] = {}
    for module in modules_of(verb):
        found: dict[str, Any] = {}
        if typed := answer_types(module):
            forms, found = msgspec.json.schema_components(typed, ref_template="#/$defs/{name}")
            for each in typed:
                for name in getattr(each, "only_shown", ()):
                    del found[each.__name__]["properties"][name]
            ways += forms
        defined |= found
    body = ways[0] if len(ways) == 1 else {"anyOf": ways} if ways else {}
    head = {"$schema": DRAFT, "title": f"shardwise {verb} --json"}
    return head | body | ({"$defs": dict(sorted(defined.items()))} if defined else {})


def _of_file(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    return found


def answer_types(module: str) -> tuple[type, ...]:
    """Of `serve` also what its page is sent."""
    name = f"shardwise.answers.{module}"
    if find_spec(name) is None:
        return ()
    types: tuple[type, ...] = import_module(name).ANSWERS
    return types if module != "serve" else (*types, *FORMS_OF_PAGE.values())
