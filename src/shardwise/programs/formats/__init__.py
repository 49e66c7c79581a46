"""Launch files of training programs, written and read. One file per target."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from shardwise.programs.formats._contract import (
    Format,
    Found,
    HostCards,
    Known,
    Lack,
    Launch,
    Written,
    expressed,
    gaps_of,
    set_up,
    settled,
    version_of,
    word_of,
)
from shardwise.programs.formats._question import question_of_launch
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._source import Document, open_document, values_of
from shardwise.programs.formats._unmodelled import not_modelled
from shardwise.registry import closest, plugins
from shardwise.screen import from_file, without_secrets

__all__ = [
    "Format",
    "Found",
    "HostCards",
    "Known",
    "Lack",
    "Launch",
    "Written",
    "expressed",
    "format_of",
    "formats",
    "gaps_of",
    "question_of_launch",
    "read_documents",
    "read_launch",
    "set_up",
    "settled",
    "version_of",
    "word_of",
]  # fmt: skip

NOTHING_KNOWN = Known()


@cache
def formats() -> dict[str, Format]:
    found: dict[str, Format] = {}
    for file, target in plugins("shardwise.programs.formats", "FORMAT").items():
        if not isinstance(target, Format) or target.name != file:
            raise TypeError(f"formats/{file}.py: FORMAT is not a Format, or has another name than its file")
        found[target.name] = target
    return found


def format_of(name: str) -> Format:
    if name not in formats():
        raise ValueError(f"to: {name!r} is not a target; {closest(name, list(formats()))}")
    return formats()[name]


def read_launch(paths: list[Path], known: Known = NOTHING_KNOWN, target: str = "") -> tuple[Format, Found]:
    """The target that the files are of, and what they say together."""
    return read_documents([open_document(path) for path in paths], known, target)


def read_documents(documents: Sequence[Document], known: Known, target: str = "") -> tuple[Format, Found]:
    names = ", ".join(document.name for document in documents)
    values = {name: value for document in documents for name, value in values_of(document).items()}
    stated = next((document.gpus for document in documents if document.gpus), None)
    gpus = known.gpus or stated
    for each in [format_of(target)] if target else formats().values():
        settings = FileSettings(values, names)
        if target or each.claims(settings):
            found = each.read(settings, Known(gpus, known.layers))
            notes = [note for document in documents for note in document.notes]
            if stated and gpus != stated:
                notes.append(f"the file starts {stated} ranks, the cluster named has {gpus} GPUs")
            matter = not_modelled(values)
            named = {text.split(": ")[0] for text in matter}
            left = tuple(text for text in (*settings.left(), *found.unmodelled) if text not in named)
            beyond = (*found.not_modelled, *matter)
            return each, replace(
                found, notes=tuple(map(without_secrets, (*found.notes, *notes))),
                unmodelled=tuple(map(from_file, left)), not_modelled=tuple(map(from_file, beyond)),
            )  # fmt: skip
    raise ValueError(f"file: {names} is of no known target; write --target with one of {', '.join(formats())}")
