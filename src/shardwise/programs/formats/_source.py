"""A launch file, whatever its form -> one document: nested data, or the words of the command it starts.

Files come from elsewhere: bounded in size and depth, never executed, and what they include must lie in their folder.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from shardwise.bounded import toml_of
from shardwise.fields import read_file
from shardwise.programs.formats._manifests import files_within, script_within
from shardwise.programs.formats._programs import NOTHING_STARTED, UNTRAINED, Started, started
from shardwise.programs.formats._registry import readers
from shardwise.programs.formats._settings import flattened, is_loose, options_of
from shardwise.programs.formats._shell import read_shell
from shardwise.programs.formats._shell_lines import ShellScript
from shardwise.programs.formats._shell_words import is_open, open_word, shown_word
from shardwise.spec.plain_yaml import parse_all

LARGEST_FILE = 1 << 20
MOST_INCLUDES = 16
FEW = 8
"""names that a note lists"""
DEEPEST = 40
STDIN = Path("/dev/stdin")
"""a script or one command line, piped in"""
CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
WANTED = "a launch script, a YAML, JSON or TOML configuration"
_NODES = ("nnodes", "num_nodes", "nodes", "num_machines", "slurm_nnodes", "slurm_job_num_nodes", "world_nodes", "N")
_PER_NODE = ("nproc_per_node", "gpus_per_node", "gres", "ntasks_per_node", "n_gpus_per_node", "num_gpus_per_node",
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
    started: Started = NOTHING_STARTED
    """the command of a script"""

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
        return _of_yaml(path, text, given or {})
    if kind in (".json", ".conf"):
        return _configuration(path, text, "json", _json(text, path.name))
    if kind == ".toml":
        try:
            return _configuration(path, text, "toml", toml_of(text))
        except ValueError as error:
            raise ValueError(f"file: {path.name!r} is not TOML ({error}); write {WANTED}") from None
    if kind == ".py":
        raise ValueError(f"file: {path.name!r} is Python, which is not read as data; write {WANTED}")
    return _script(path, text, texts or {}, given or {})


def _of_yaml(path: Path, text: str, given: Mapping[str, str]) -> Document:
    """Settings, or a job that holds a script."""
    documents = parse_all(text, path.name)
    if script := script_within(documents):
        laid = files_within(documents)
        document = _script(path, script, {}, given, lambda name: laid.get(Path(name).name))
        return replace(document, text=text)
    if len(documents) > 1:
        raise ValueError(f"file: {path.name!r} holds {len(documents)} YAML documents; write {WANTED} with one")
    return _configuration(path, text, "yaml", documents[0] if documents else None)


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


def _script(
    path: Path, text: str, texts: Mapping[Path, str], given: Mapping[str, str],
    laid: Callable[[str], str | None] = lambda _name: None,
) -> Document:  # fmt: skip
    """`laid`: text of a file that lies beside the script only where it runs."""
    notes, read = list[str](), dict[Path, str]()

    def file_of(name: str) -> str | None:
        if (there := laid(name)) is not None:
            return there
        included = inside(path.parent, name)
        if included is None or len(read) >= MOST_INCLUDES:
            return None
        place, content = included
        read[place] = texts.get(place) or content
        return read[place]

    script = read_shell(text, file_of, path.name, given)
    if script.sourced:
        notes.append(f"taken in, but not in the script's folder and not read: {', '.join(script.sourced[:FEW])}")
    if script.assumed:
        notes.append(f"conditions ask for variables that are not set here: {', '.join(sorted(script.assumed)[:FEW])}")
    command = _launched(script)
    if loose := [shown_word(word) for word in command.arguments if is_loose(word)]:
        notes.append(f"may add options, known only where the script runs: {', '.join(loose[:FEW])}")
    gpus = _gpus(script, command)
    return Document(
        path, text, "shell", {}, command.arguments, gpus, tuple(notes), read, given, command
    )  # fmt: skip


def inside(folder: Path, name: str) -> tuple[Path, str] | None:
    """A file of the folder and what stands in it; a link counts as what it leads to."""
    try:
        found = (folder / name).resolve()
        if not found.is_relative_to(folder.resolve()):
            return None
        return found, read_file(found, "file", LARGEST_FILE, WANTED).decode("utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
        return None


def _launched(script: ShellScript) -> Started:
    """The command that trains: one that a program here is known by, before others with more options. Where the same
    command is started several times, words that differ are open."""
    commands = [[*words, *_in_one_word(words)] for words in script.commands]
    best = max(commands, key=_weight, default=[])
    if _weight(best)[1] == 0 or Path(best[0]).name in ("sbatch", "salloc", "echo"):
        # arrays and strings of options that a program elsewhere is started with
        stated = [word for value in script.variables.values() for word in _split(value)]
        return started(stated if _options_in(stated) > _options_in(best) else best)
    alike = [command for command in commands if len(command) == len(best) and command[0] == best[0]]
    return started([
        words[0] if len(set(words)) == 1 else open_word(" or ".join(map(shown_word, dict.fromkeys(words))))
        for words in zip(*alike, strict=True)
    ])  # fmt: skip


def _weight(words: Sequence[str]) -> tuple[int, int]:
    """(whether it trains, its options and files)"""
    command = started(words)
    options = _options_in(words) + sum(word.endswith(CONFIGURATIONS) for word in command.arguments)
    if not command.program or UNTRAINED.fullmatch(command.program.rpartition("/")[2]):
        return 0, options
    known = any(each.started_by(command.program) for each in readers().values())
    return (3 if known else 1 + command.launched) if options else 0, options


def _in_one_word(words: Sequence[str]) -> list[str]:
    """A whole command in one word of another, as srun and ssh are given one."""
    command = next((word for word in words if " --" in word and not is_open(word)), "")
    return _split([command]) if command else []


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


def _gpus(script: ShellScript, command: Started) -> int | None:
    """Nodes times GPUs of a node: by the launcher, else by what Slurm is asked for, else by variables of the script."""
    sources = [_stated(command.launcher), _stated(command.arguments), _stated(script.directives)]
    sources.append({name.lower(): value[0] for name, value in script.variables.items() if len(value) == 1})
    total = sources[0].get("num_processes", "")
    if total.isdigit() and command.launched:
        return int(total)
    starts = Path(command.launcher[0]).name if command.launcher else ""
    if starts in ("mpirun", "mpiexec"):
        ranks = sources[0].get("np", sources[0].get("n", ""))
        return int(ranks) or None if ranks.isdigit() else None
    nodes, each = _first(sources, _NODES), _first(sources, _PER_NODE)
    each = each and each.rpartition(":")[2]  # Slurm's may name a type: mi250:8, gpu:a100:8
    visible = _visible(sources[0].get("include", "").partition(":")[2] or sources[-1].get("cuda_visible_devices", ""))
    alone = visible == "1" and each is None
    if (each is None and command.launched) or _SERVES.match(command.program) or alone:
        each = each or visible
    if nodes is None and (command.launched or _SERVES.match(command.program) or alone):
        nodes = "1"
    if nodes is None or each is None or not (nodes.isdigit() and each.isdigit()):
        return None
    return int(nodes) * int(each) or None


_SERVES = re.compile(r"swift |megatron |llamafactory-cli |lmf |tune ")
"""commands that start their ranks themselves, by variables"""


def _first(sources: Sequence[Mapping[str, str]], names: Sequence[str]) -> str | None:
    """The first statement of one of these names; open where that is."""
    return next((stated[name] for stated in sources for name in names if stated.get(name)), None)


def _visible(devices: str) -> str | None:
    return str(len(devices.split(","))) if re.fullmatch(r"\d+(,\d+)*", devices) else None


def _stated(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-"):
            following = words[number + 1] if number + 1 < len(words) else ""
            found[name.replace("-", "_") if len(name) > 1 else name] = value if equals else following
        elif equals and name.startswith("trainer."):
            found[name.removeprefix("trainer.")] = value
    return found


def values_of(document: Document) -> dict[str, Any]:
    """Settings by name; a mapping of flags, as Megatron's test cases are, counts as a command line."""
    flat = flattened(document.data)
    dashed = {plain_name(name): value for name, value in flat.items() if "--" in name}
    return {**{name: value for name, value in flat.items() if "--" not in name}, **dashed, **options_of(document.words)}


def plain_name(name: str) -> str:
    """A flag as the setting it states."""
    return name.rpartition("--")[2].replace("-", "_") if "--" in name else name
