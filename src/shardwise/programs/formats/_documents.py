"""Launch files that belong together: a script, its configuration, and accelerate's and DeepSpeed's files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwise.programs.formats._settings import FileSettings, flattened, options_of
from shardwise.programs.formats._shell_words import is_open, shown_word
from shardwise.programs.formats._source import CONFIGURATIONS, STDIN, Document, inside, open_document, values_of

MAIN = ("", "config", "config_file", "job.config_file", "cfg", "c", "d", "conf_dir", "config_path", "p")
"""options that name a program's configuration; empty: a word of its own"""
PARTS = {"deepspeed": "deepspeed", "deepspeed_config": "deepspeed", "deepspeed_config_file": "deepspeed",
         "fsdp_config": "fsdp_config", "launch.config_file": "accelerate"}  # fmt: skip
"""options that name a part of one -> the prefix its settings get"""
MOST_FILES, MOST_ABOVE = 8, 8
ROOTS = (".git", "pyproject.toml", "setup.py")
"""what lies in the root of a project"""


@dataclass(frozen=True)
class LaunchFiles:
    documents: Sequence[Document]
    plain: FileSettings
    """all settings under their own names"""
    parted: FileSettings
    """those of accelerate's and DeepSpeed's files under `accelerate.` and `deepspeed.`"""
    missing: Sequence[str]
    """configurations that the script names and that are not to be had"""


def settings_of(documents: Sequence[Document]) -> LaunchFiles:
    given = [(document, _role(document)) for document in documents]
    if all(role for _, role in given):
        given = [(document, "") for document, _ in given]
    missing = list[str]()
    at = 0
    while at < len(given):  # which grows: a file may lie over another one's settings
        document, at = given[at][0], at + 1
        for option, name in _named(document):
            role = PARTS.get(option, "")
            if any(Path(name).name == each.name for each, _ in given):
                given = [(each, role or has if each.name == Path(name).name else has) for each, has in given]
            elif (other := _beside(document, name)) is not None and len(given) < MOST_FILES:
                given.append((other, role or _role(other)))
            elif not role and option != "defaults":
                missing.append(shown_word(name))
    # what a command line states holds over the file it names, and a file over its defaults, which were found after it
    given = [*reversed(given)] if any(_defaults(each) for each, _ in given) else given
    given.sort(key=lambda pair: pair[0].kind == "shell")
    program = next((each.started.program for each, _ in given if each.started.program), "")
    names = ", ".join(each.name for each, _ in given)
    plain, parted = dict[str, Any](), dict[str, Any]()
    for document, role in given:
        values = values_of(document)
        plain |= values
        parted |= {f"{role}.{name}": value for name, value in values.items()} if role else values
        parted |= {f"launch.{name}": value for name, value in options_of(document.started.launcher).items()}
    for option, role in PARTS.items():
        if any(name.startswith(f"{role}.") for name in parted):
            parted.pop(option, None)
    return LaunchFiles(
        [each for each, _ in given], FileSettings(plain, names, program), FileSettings(parted, names, program), missing
    )


def _role(document: Document) -> str:
    """The part of a launch that a file is by its settings alone; empty: the whole of one."""
    names = set(flattened(document.data))
    if document.kind in ("yaml", "json") and names & {"distributed_type", "compute_environment"}:
        return "accelerate"
    own = {"zero_optimization.stage", "train_micro_batch_size_per_gpu", "train_batch_size", "bf16.enabled"}
    if document.kind == "json" and names & own and "model_name_or_path" not in names:
        return "deepspeed"
    return ""


def _named(document: Document) -> Iterator[tuple[str, str]]:
    """Configurations that a command or another one names, with the option that does."""
    if below := _defaults(document):
        yield "defaults", below
    for prefix, words in (("launch.", document.started.launcher), ("", document.started.arguments)):
        options = options_of(words)
        for name, value in options.items():
            if not isinstance(value, str) or value.startswith("{"):
                continue
            main = not prefix and name in MAIN and value.endswith(CONFIGURATIONS)
            if main or (prefix + name in PARTS and value.endswith((*CONFIGURATIONS, ".conf"))):
                yield prefix + name, value
        if not prefix:
            yield from (("", word) for word in _loose(words) if word.endswith(CONFIGURATIONS) or _is_file(word))


def _defaults(document: Document) -> str:
    """The configuration that one is laid over (NeMo-RL)."""
    found = document.data.get("defaults") if document.kind == "yaml" else None
    return found if isinstance(found, str) and found.endswith(CONFIGURATIONS) else ""


def _loose(words: Sequence[str]) -> Iterator[str]:
    """Words before the first option, and behind '@'."""
    for number, word in enumerate(words):
        if word.startswith("-") or (number and words[number - 1] != "@" and words[number - 1].startswith("-")):
            return
        if "=" not in word:
            yield word


def _is_file(word: str) -> bool:
    return is_open(word) and any(part in word.lower() for part in ("config", "yaml", "recipe"))


def _beside(document: Document, name: str) -> Document | None:
    """A configuration in the script's folder, in the current one, or in a folder above that is of the same project."""
    if document.path == STDIN or is_open(name):
        return None
    folder = document.path.parent
    for root in _project(folder) if _defaults(document) else ():
        if (found := _within(root, folder / name)) is not None:
            return open_document(found[0], {found[0]: found[1]})
    for place in (folder, Path.cwd(), *_project(folder)):
        if (found := inside(place, name)) is not None:
            path, text = found
            return open_document(path, {path: text})
    beside = inside(folder, Path(name).name)
    return open_document(beside[0], {beside[0]: beside[1]}) if beside is not None else None


def _within(root: Path, path: Path) -> tuple[Path, str] | None:
    """A file of the project by a path that may lead through folders above its own."""
    whole, top = path.resolve(), root.resolve()
    return inside(top, str(whole.relative_to(top))) if whole.is_relative_to(top) else None


def _project(folder: Path) -> list[Path]:
    """Folders above a script up to the root of its project, where paths in it may begin."""
    above = list(folder.resolve().parents)[:MOST_ABOVE]
    root = next((at for at, each in enumerate(above) if any((each / mark).exists() for mark in ROOTS)), -1)
    return above[: root + 1]


def merged(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Settings under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
