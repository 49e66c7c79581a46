"""Functions that read what others wrote, found by their signatures, and what they are given."""

import contextlib
import functools
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType

import shardwise
from fuzz.damage import damaged
from fuzz.samples import SPECIAL
from fuzz.values import json_value, number, text
from shardwise import catalog
from shardwise.registry import SEARCH_PATH
from shardwise.show.cli import main
from shardwise.show.cli._agent_tools import asked_of
from shardwise.show.cli._agent_tools import tools as agent_tools
from shardwise.show.page.questions import allowed, question_of, refusal_of

NAMED = re.compile(r"^(parse|read|from)(_|$)|_(of|from)$|_from_")
TOLD = ("where", "what", "field", "flag", "name")
"""further parameters that only say what a text is called"""
NO_READERS = {
    "shardwise.show.cli._agent_tools.options_of", "shardwise.show.cli._second_words.app_of", "shardwise.fields.short",
    "shardwise.registry.folders", "shardwise.registry.modules", "shardwise.registry.plugins",
}  # fmt: skip
ROOMS = ("programs.importers", "programs.formats", "spec", "cost", "work", "fabric", "step.estimate", "step.simulate",
         "step.operate", "measured.validate", "plan", "units", "plugins.engines", "plugins.collectives",
         "plugins.schedules", "plugins.compressors", "plugins.topologies", "plugins.sync", "run.preflight", "show.cli",
         "show.page")  # fmt: skip
"""packages a user's words reach; those that need torch are reached by their verbs"""


@dataclass(frozen=True)
class Reader:
    name: str
    read: Callable[..., object]
    kind: type
    """of its argument: str, bytes, Path or list"""
    told: int
    """further texts it has to be given"""


@cache
def readers() -> tuple[Reader, ...]:
    """Every public function that needs one text, one path, one list of texts or some bytes, and is named as a reader;
    in `importers` every public one."""
    found: dict[str, Reader] = {}
    for module in _modules():
        for name, function in vars(module).items():
            full = f"{module.__name__}.{name}"
            if not _is_reader(module, name, function) or full in NO_READERS:
                continue
            reader = _reader(full, function)
            if reader is not None:
                found[full] = reader
    return (
        *found.values(),
        Reader("shardwise.show.cli._agent_tools.asked_of", _asked_by_an_agent, str, 0),
        Reader("shardwise.show.page.questions.checked", _asked_by_a_browser, str, 0),
    )


def _asked_by_a_browser(words: str) -> None:
    """What a page may send to its server: a verb it knows, options of it or not, of any type JSON has."""
    random = Random(words)
    verb = random.choice((*allowed(), words[:20]))
    name = random.choice((*sorted(allowed().get(verb, ())), "on", words[:20]))
    sent = {
        "verb": verb, "first": [text(random), words][: random.randint(0, 2)],
        "options": {name: random.choice((words, json_value(random), [words])), "on": text(random)},
        "files": {random.choice(("config.json", words)): words} if random.random() < 0.2 else {},
    }  # fmt: skip
    question = question_of(json.dumps(sent).encode("utf-8", "surrogatepass"))
    refusal_of(f"error: {words}", question)


def _asked_by_an_agent(words: str) -> None:
    """What a client of `mcp` may send: every argument is one of its words, of any type JSON has."""
    random = Random(words)
    tool = random.choice(agent_tools())
    value = random.choice((words, json_value(random), [words, number(random)]))
    asked_of(tool, [words, text(random)][: random.randint(0, 2)], text(random), {words[:20]: value}, Path.cwd())  # type: ignore[dict-item]


def _modules() -> list[ModuleType]:
    found = []
    for room in ROOMS:
        package = importlib.import_module(f"shardwise.{room}")
        found.append(package)
        for info in pkgutil.walk_packages(getattr(package, "__path__", ()), package.__name__ + "."):
            if "_fused" in info.name or ".measure" in info.name:
                continue  # what runs on a GPU or trains
            with contextlib.suppress(ImportError):
                found.append(importlib.import_module(info.name))
    return found


def _is_reader(module: ModuleType, name: str, function: object) -> bool:
    inner = inspect.unwrap(function) if callable(function) else function
    if not inspect.isfunction(inner) or name.startswith("_") or inner.__module__ != module.__name__:
        return False
    return ".importers" in module.__name__ or bool(NAMED.search(name))


def _reader(full: str, function: Callable[..., object]) -> Reader | None:
    try:
        hints = typing.get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        return None
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if not needed or any(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in needed):
        return None
    first, *others = needed
    hint = hints.get(first.name)
    kind = hint if hint in (str, bytes, Path) else list if hint in (list[str], list[Path]) else None
    if kind is None or any(p.name not in TOLD or hints.get(p.name) is not str for p in others):
        return None
    return Reader(full, function, kind, len(others))


def argument(reader: Reader, random: Random, samples: dict[str, bytes], folder: Path) -> object:
    """What the reader is given; files are written into the folder."""
    if reader.kind is bytes:
        return damaged(samples[_fitting(reader, random, samples)], random)
    if reader.kind is Path:
        return _path(reader, random, samples, folder)
    if reader.kind is list:
        element = typing.get_args(typing.get_type_hints(inspect.unwrap(reader.read)).get(
            next(iter(inspect.signature(reader.read).parameters))))[0]  # fmt: skip
        count = random.choice((0, 1, 1, 2, 3))
        return [_path(reader, random, samples, folder) if element is Path else text(random) for _ in range(count)]
    if random.random() < 0.3:
        return damaged(samples[_fitting(reader, random, samples)], random).decode("utf-8", errors="replace")
    return random.choice((text(random), number(random), str(json_value(random))))


_ACCEPTED: dict[str, list[str]] = {}


def _fitting(reader: Reader, random: Random, samples: dict[str, bytes]) -> str:
    """The name of a sample: mostly of one that the reader takes as it is."""
    if reader.name not in _ACCEPTED:
        _ACCEPTED[reader.name] = [name for name, sample in samples.items() if _takes(reader, name, sample)]
    fitting = _ACCEPTED[reader.name]
    return random.choice(fitting if fitting and random.random() < 0.8 else list(samples))


def _takes(reader: Reader, name: str, sample: bytes) -> bool:
    path = Path(name)
    element: object = path if reader.kind is Path else [path] if reader.kind is list else sample
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            read(reader, sample.decode("utf-8", errors="replace") if reader.kind is str else element)
        except Exception:
            return False
    return True


def _path(reader: Reader, random: Random, samples: dict[str, bytes], folder: Path) -> Path:
    if random.random() < 0.1:
        return folder / random.choice(list(SPECIAL.values()))
    name = _fitting(reader, random, samples)
    path = folder / f"odd-{name}"
    path.write_bytes(damaged(samples[name], random))
    return path


def read(reader: Reader, given: object) -> None:
    reader.read(given, *["here"] * reader.told)


def catalog_line(kind: str, random: Random, samples: dict[str, bytes], folder: Path) -> list[str]:
    """The words that read an entry of the user's own, which is written into the folder. A kind nobody wrote a line for
    is read by `models`, which finds what cannot be parsed."""
    name = next(name for name in samples if name.split(".")[0] == kind)
    path = folder / "mine" / "catalog" / kind / f"fuzzed{Path(name).suffix}"
    path.parent.mkdir(parents=True)
    path.write_bytes(damaged(samples[name], random))
    lines = {
        "gpus": ["catalog", "gpus", "fuzzed"], "fabrics": ["catalog", "clusters", "fuzzed:8"],
        "prices": ["catalog", "gpus", "h100"],
        "models": ["catalog", "models", "fuzzed"], "layouts": ["catalog", "layouts", "fuzzed/none"],
        "programs": ["estimate", "gpt2-xl", "--on", "8xh100", "--stack", "fuzzed"],
    }  # fmt: skip
    return lines.get(kind, ["catalog", "models", "fuzzed"])


def with_plugins(folder: Path, words: list[str]) -> int:
    """The exit code of a line when the user's own catalog is in the folder."""
    os.environ[SEARCH_PATH] = str(folder)
    _forget()
    try:
        return main(words)
    finally:
        del os.environ[SEARCH_PATH]
        _forget()


def _forget() -> None:
    """What modules of shardwise have cached; it may come from the user's catalog."""
    for name, module in list(sys.modules.items()):
        if name.startswith(shardwise.__name__):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def kinds() -> tuple[str, ...]:
    return catalog.KINDS


def shown(value: object) -> str:
    """For a report: short, on one line."""
    line = json.dumps(value, default=repr) if not isinstance(value, bytes) else repr(value)
    return line if len(line) <= 400 else line[:400] + "..."
