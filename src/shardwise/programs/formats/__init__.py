"""Launch files of training programs, read, and for some programs written. One file per program."""

from collections.abc import Sequence
from dataclasses import replace
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
from shardwise.programs.formats._documents import settings_of
from shardwise.programs.formats._programs import UNTRAINED
from shardwise.programs.formats._question import model_called, question_of_launch
from shardwise.programs.formats._registry import format_of, formats, readers
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._source import Document, open_document
from shardwise.programs.formats._strangers import refused, stranger
from shardwise.programs.formats._unmodelled import not_modelled, undecided
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
    "model_called",
    "question_of_launch",
    "read_documents",
    "read_launch",
    "readers",
    "set_up",
    "settled",
    "version_of",
    "word_of",
]  # fmt: skip

NOTHING_KNOWN = Known()


def read_launch(paths: list[Path], known: Known = NOTHING_KNOWN, target: str = "") -> tuple[Format, Found]:
    """The program that the files are of, and what they say together."""
    return read_documents([open_document(path) for path in paths], known, target)


def read_documents(documents: Sequence[Document], known: Known, target: str = "") -> tuple[Format, Found]:
    together = settings_of(documents)
    stated = next((document.gpus for document in together.documents if document.gpus), None)
    gpus = known.gpus or stated
    if UNTRAINED.fullmatch(together.plain.program.rpartition("/")[2]):
        raise ValueError(f"file: {together.plain.where} starts {together.plain.program}, which does not train a model")
    each = _program_of(together.plain, together.parted, target)
    settings = together.parted if each.parts else together.plain
    if together.missing and each.starts:
        raise ValueError(
            f"file: {settings.where} starts {each.title} with {together.missing[0]}, which is not here; name it too, "
            f"as in check {settings.where} {Path(together.missing[0]).name}"
        )
    found = each.read(settings, Known(gpus, known.layers))
    notes = [note for document in together.documents for note in document.notes]
    if stated and known.gpus and known.gpus != stated:
        notes.append(f"the file starts {stated} ranks, the cluster named has {known.gpus} GPUs")
    matter = not_modelled({name: value for name, value in settings.values.items() if not name.startswith("launch.")})
    matter += tuple(text for text in undecided(settings.unread()) if text.split(": ")[0] not in {
        each.split(": ")[0] for each in matter
    })  # fmt: skip
    named = {text.split(": ")[0] for text in matter}
    left = tuple(text for text in (*settings.left(), *found.unmodelled) if text not in named)
    beyond = (*found.not_modelled, *matter)
    return each, replace(
        found, notes=tuple(map(without_secrets, (*found.notes, *notes))), called=from_file(found.called),
        unmodelled=tuple(map(from_file, left)), not_modelled=tuple(map(from_file, beyond)),
    )  # fmt: skip


def _program_of(plain: FileSettings, parted: FileSettings, target: str) -> Format:
    """By what is started, else by what is set; `target` chooses where several programs have such files."""
    if target and target not in readers():
        format_of(target)
    if stranger(plain):
        raise refused(plain, [], target, list(readers()))
    by_start = [each for each in readers().values() if each.starts and each.started_by(plain.program)]
    claiming = by_start or [each for each in readers().values() if each.claims(parted if each.parts else plain)]
    chosen = [each for each in claiming if each.name == target] if target else claiming
    if chosen:
        return chosen[0]
    raise refused(plain, [each.name for each in claiming], target, list(readers()))
