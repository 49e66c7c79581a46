"""Verbs that other distributions bring: entry points of the group `shardwise.verbs`, NAME = "package.module:app".

They are looked for only when a line begins with none of shardwise's own verbs, so that those start without a search.
"""

from functools import cache
from importlib import import_module
from pathlib import Path

from cyclopts import App

from shardwise.refusal import REFUSING
from shardwise.registry import named
from shardwise.show.cli._routes import FORMS, MOVED
from shardwise.show.cli._verbs import BESIDE, VERBS

ENTRY_POINTS = "shardwise.verbs"
OURS = {*VERBS, *MOVED, *FORMS}


@cache
def installed_verbs() -> dict[str, str]:
    """Where each verb is imported from, by name; a verb of shardwise itself cannot be replaced."""
    from importlib.metadata import entry_points  # a tenth of the time of --help

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS) if point.name not in OURS}


def add_verb(app: App, word: str) -> None:
    """Registers the verb of another distribution; one that is known but not installed is refused with its cure."""
    if word in OURS or not word.isidentifier() or word in list(app):
        return
    if word in installed_verbs():
        path = installed_verbs()[word]
        REFUSING.add(path.partition(":")[0].partition(".")[0])
        app.command(path, name=word)
    elif word in BESIDE:
        raise ValueError(f"{word}: it is not installed; write pip install {BESIDE[word]} in a checkout of shardwise")


def schema_of(verb: str) -> Path:
    """The schema that the verb's distribution brings: schemas/VERB.json beside its package's first module."""
    package = import_module(named("verb", verb, installed_verbs()).partition(":")[0].partition(".")[0])
    assert package.__file__ is not None
    return Path(package.__file__).parent / "schemas" / f"{verb}.json"
