"""A launch file, whatever its form -> one document: nested data, or the words of the command it starts.

Files come from elsewhere: bounded in size and depth, never executed, and what they include must lie in their folder.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from shardwise.bounded import toml_of
from shardwise.fields import read_file
from shardwise.programs.formats._settings import flattened, is_loose, options_of
from shardwise.programs.formats._shell import ShellScript, read_shell
from shardwise.programs.formats._shell_words import is_open, open_word, shown_word
from shardwise.spec.plain_yaml import parse_yaml

LARGEST_FILE = 1 << 20
MOST_INCLUDES = 16
FEW = 8
"""names that a note lists"""
DEEPEST = 40
STDIN = Path("/dev/stdin")
"""a script or one command line, piped in"""
WANTED = "a launch script, a YAML, JSON or TOML configuration"
_NODES = ("nnodes", "num_nodes", "nodes", "num_machines", "slurm_nnodes", "slurm_job_num_nodes", "world_nodes", "N")
_PER_NODE = ("nproc_per_node", "gpus_per_node", "ntasks_per_node", "n_gpus_per_node", "num_gpus_per_node",
             "gpus_per_instance", "num_gpus", "nproc")  # fmt: skip


@dataclass(frozen=True)
class Document:
    path: Path
    text: str
    kind: str
    """yaml, json, toml or shell"""
    data: Mapping[str, Any]
    """of a configuration; empty for a script"""
    words: tuple[str, ...]
    """of the commands of a script"""
    gpus: int | None
    """nodes times GPUs of a node, where the launcher says both"""
    notes: tuple[str, ...] = ()
    sourced: Mapping[Path, str] = field(default_factory=dict)
    """files of its folder that a script takes in"""
    given: Mapping[str, str] = field(default_factory=dict)
    """variables that it was read with"""

    @property
    def name(self) -> str:
        return self.path.name


def open_document(
    path: Path, texts: Mapping[Path, str] | None = None, given: Mapping[str, str] | None = None
) -> Document:
    """`texts`: of files, in place of what is on the disk; `given`: variables that a script is started with."""
    text = (texts or {}).get(path) or _text(path)
    kind = path.suffix.lower()
    if kind in (".yaml", ".yml"):
        return _configuration(path, text, "yaml", parse_yaml(text, path.name, last_holds=True))
    if kind == ".json":
        return _configuration(path, text, "json", _json(text, path.name))
    if kind == ".toml":
        try:
            return _configuration(path, text, "toml", toml_of(text))
        except ValueError as error:
            raise ValueError(f"file: {path.name!r} is not TOML ({error}); write {WANTED}") from None
    return _script(path, text, texts or {}, given or {})


def _text(path: Path) -> str:
    raw = read_file(path, "file", LARGEST_FILE, f"the path of {WANTED}", pipes=path == STDIN)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"file: {path.name!r} is not text (byte {error.start}); write {WANTED}") from None


def _json(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"file: {name!r} is not JSON ({error}); write {WANTED}") from None


def _configuration(path: Path, text: str, kind: str, data: Any) -> Document:
    if not isinstance(data, Mapping) or not data:
        raise ValueError(f"file: {path.name!r} has no settings; write {WANTED}")
    _check_depth(data, path.name)
    return Document(path, text, kind, data, (), None)


def _check_depth(node: Any, name: str, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise ValueError(f"file: {name!r} is nested more than {DEEPEST} deep; write {WANTED}")
    for inside in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        _check_depth(inside, name, depth + 1)


def _script(path: Path, text: str, texts: Mapping[Path, str], given: Mapping[str, str]) -> Document:
    notes, read = list[str](), dict[Path, str]()

    def file_of(name: str) -> str | None:
        included = _inside(path.parent, name)
        if included is None or len(read) >= MOST_INCLUDES:
            return None
        place, inside = included
        read[place] = texts.get(place) or inside
        return read[place]

    script = read_shell(text, file_of, path.name, given)
    if script.sourced:
        notes.append(f"taken in, but not in the script's folder and not read: {', '.join(script.sourced[:FEW])}")
    if script.assumed:
        notes.append(f"conditions ask for variables that are not set here: {', '.join(sorted(script.assumed)[:FEW])}")
    words = _launched(script)
    if loose := [shown_word(word) for word in words if is_loose(word)]:
        notes.append(f"may add options, known only where the script runs: {', '.join(loose[:FEW])}")
    gpus = _gpus(script, words)
    return Document(path, text, "shell", {}, tuple(_arguments(words)), gpus, tuple(notes), read, given)


def _inside(folder: Path, name: str) -> tuple[Path, str] | None:
    """A file of the folder and what stands in it; a link counts as what it leads to."""
    try:
        found = (folder / name).resolve()
        if not found.is_relative_to(folder.resolve()):
            return None
        return found, read_file(found, "file", LARGEST_FILE, WANTED).decode("utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
        return None


def _launched(script: ShellScript) -> list[str]:
    """The words of the longest command with options: the program's, behind its launcher's. Where the same command is
    started several times, words that differ are open."""
    best = max(script.commands, key=_options_in, default=[])
    if _options_in(best) == 0 or Path(best[0]).name in ("sbatch", "salloc", "echo"):
        # arrays and strings of options that a program elsewhere is started with
        held = [word for value in script.variables.values() for word in _split(value)]
        return held if _options_in(held) > _options_in(best) else best
    alike = [command for command in script.commands if len(command) == len(best) and command[0] == best[0]]
    best = [words[0] if len(set(words)) == 1 else open_word(" or ".join(map(shown_word, dict.fromkeys(words))))
            for words in zip(*alike, strict=True)]  # fmt: skip
    command = next((word for word in best if " --" in word and not is_open(word)), "")
    return [*best, *_split([command])] if command else best


def _arguments(words: list[str]) -> list[str]:
    """Those of the program: behind its script or module, which the launcher's own come before."""
    for number, word in enumerate(words):
        if word.endswith(".py") or words[max(number - 1, 0)] == "-m":
            return words[number + 1 :]
    return words


def _split(values: Sequence[str]) -> list[str]:
    found: list[str] = []
    for value in values:
        try:
            found += shlex.split(value) if " " in value and not is_open(value) else [value]
        except ValueError:
            found += value.split()
    return found


def _options_in(words: Sequence[str]) -> int:
    return sum(word.startswith("--") or bool(re.match(r"\+{0,2}[A-Za-z][\w.]*=", word)) for word in _split(words))


def _gpus(script: ShellScript, words: Sequence[str]) -> int | None:
    stated: dict[str, str] = {name.lower(): value[0] for name, value in script.variables.items() if len(value) == 1}
    for source in (script.directives, words):
        for number, word in enumerate(source):
            name, equals, value = word.lstrip("-").partition("=")
            if word.startswith("-"):
                following = source[number + 1] if number + 1 < len(source) else ""
                stated[name.replace("-", "_") if len(name) > 1 else name] = value if equals else following
            elif equals and name.startswith("trainer."):
                stated[name.removeprefix("trainer.")] = value
    nodes = next((int(stated[n]) for n in _NODES if stated.get(n, "").isdigit()), None)
    each = next((int(stated[n]) for n in _PER_NODE if stated.get(n, "").isdigit()), None)
    return nodes * each if nodes and each else None


def values_of(document: Document) -> dict[str, Any]:
    """Settings by name; a mapping of flags, as Megatron's test cases are, counts as a command line."""
    flat = flattened(document.data)
    dashed = {plain_name(name): value for name, value in flat.items() if "--" in name}
    return {**{name: value for name, value in flat.items() if "--" not in name}, **dashed, **options_of(document.words)}


def plain_name(name: str) -> str:
    """A flag as the setting it states."""
    return name.rpartition("--")[2].replace("-", "_") if "--" in name else name
