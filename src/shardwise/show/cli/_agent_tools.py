"""Verbs as tools for agents: what may be asked, where files may lie, how long an answer may take and how long it is.

Each call runs the verb in a process of its own, in the server's folder, so that a question that takes too long or too
much memory ends alone. Nothing here knows a protocol.
"""

import os
import re
import resource
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from shardwise.interpreter import python_command, python_environment
from shardwise.registry import closest
from shardwise.show.cli._options import ACTS
from shardwise.show.cli._verbs import VERBS

Value = str | int | float | bool | list[str]
SECONDS = 60.0
"""an answer may take"""
MEMORY = 8 * 2**30
"""bytes a verb may address"""
LONGEST = 16_000
"""characters of an answer"""
SHOWN = 3
"""entries of a long list"""
LONGEST_TEXT = 4_000
LONGEST_WORD = 4_096
MOST_OPTIONS = 60
MEANING = {0: "done, or it fits", 1: "it does not fit, or cannot run; the answer says why"}
_CODES = re.compile(r"^[a-z][a-z0-9-]{0,40}$")


@dataclass(frozen=True)
class AgentTool:
    verb: str
    asks: str
    """`model`: a model and a cluster; `files`: files of the user; `nothing`"""
    summary: str
    keys: tuple[str, ...] = ()
    """of the answer, the first to stay where it is too long; none: as the verb orders them"""
    writes: str = ""
    """the one option with which it writes"""
    name: str = ""
    """where it is not the verb's"""
    topic: str = ""
    """first argument of the verb, where the tool is one of several on it"""
    columns: tuple[str, ...] = ()
    """of each row of its list, which is then whole"""
    longest: int = LONGEST
    """characters of an answer"""

    @property
    def called(self) -> str:
        return self.name or self.verb


TOOLS = (
    AgentTool("plan", "model", "The best split of a training run over a cluster, its risk, why others lose.",
              ("recommended", "reason", "next", "fastest", "safest", "losers", "best"), longest=6_000),
    AgentTool("estimate", "model", "Memory, step time by part, traffic, cost of one policy (options tp, pp, ...).",
              ("step_s", "peak_bytes", "free_bytes", "time_s")),
    AgentTool("size", "model", "GPUs, time and cost to train on a number of tokens (options tokens, within, budget).",
              ("smallest_in_time", "cheapest_in_budget", "smallest_that_meets_all", "sizes")),
    AgentTool("posttrain", "model", "A step of reinforcement learning: who rolls out, who trains, phases, cost.",
              ("recommended", "phases", "memory", "staleness", "losers", "best")),
    AgentTool("check", "files", "What a launch script or configuration does, whether it fits, and what is faster."),
    AgentTool("why", "files", "Why a run is slow, from its logs or traces."),
    AgentTool("why", "files", "What ended or stalled a run, which rank, what to do: from the folder of its logs.",
              name="doctor"),
    AgentTool("learn", "files", "A profile from runs of yours, for option profile of other tools (options model, out).",
              writes="out"),
    AgentTool("catalog", "nothing", "Models known by name.", name="models", topic="models",
              columns=("name", "parameters", "active_parameters")),
    AgentTool("catalog", "nothing", "Clusters known by name.", name="clusters", topic="clusters",
              columns=("name", "gpu", "gpus")),
    AgentTool("export", "model", "A policy as arguments or configuration of a program (option to; out: a folder).",
              ("target", "policy", "step_s", "without", "environment", "files"), writes="out"),
    AgentTool("place", "model", "Which free nodes a policy takes, in which order (options topology, free).",
              ("chosen", "step_s", "listed_step_s", "nodes", "slurm", "orders"), writes="out"),
)  # fmt: skip
"""a new tool is one line here; a verb that this shardwise does not have is left out"""
CITED = ("tier", "legal", "fits", "verdict", "error_range", "error_basis", "notes", "assumptions")
"""keys that are kept in every answer: how it was computed, how far to trust it, what was assumed"""


def tools() -> list[AgentTool]:
    return [tool for tool in TOOLS if tool.verb in VERBS]


@dataclass(frozen=True)
class ToolRequest:
    tool: AgentTool
    words: tuple[str, ...]

    @property
    def command(self) -> str:
        return shlex.join(["shardwise", *self.words])


def asked_of(tool: AgentTool, first: Sequence[str], on: str, options: Mapping[str, Value], root: Path) -> ToolRequest:
    """The command line; what is no option, or leads out of the folder, is a ValueError."""
    if len(options) > MOST_OPTIONS or len(first) > MOST_OPTIONS:
        raise ValueError(f"options: {max(len(options), len(first))} of them; write at most {MOST_OPTIONS}")
    if tool.asks != "nothing" and (not first or not all(first)):
        raise ValueError(f"{tool.asks}: nothing is named; write {'a model' if tool.asks == 'model' else 'files'}")
    words = [tool.verb, *([tool.topic] if tool.topic else []), *(_argument(word, tool.asks, root) for word in first)]
    if on:
        words += ["--on", _argument(on, "on", root)]
    for name, value in options.items():
        words += _option(name, value, tool, root)
    return ToolRequest(tool, (*words, "--json"))


def _option(name: str, value: Value, tool: AgentTool, root: Path) -> list[str]:
    flag = name.replace("_", "-").lstrip("-")
    if not _CODES.match(flag):
        raise ValueError(
            f"options: {name[:40]!r} is not the name of an option; write those of `shardwise {tool.verb} --help`"
        )
    acts = options_of(tool.verb)
    if flag not in acts:
        raise ValueError(f"options: {flag!r} is not an option of {tool.verb}; {closest(flag, list(acts))}")
    if flag == "json" or (acts[flag] and flag != tool.writes):
        raise ValueError(f"options: {flag!r} is not for agents; leave it out")
    if isinstance(value, bool):
        return [f"--{flag}"] if value else [f"--no-{flag}"]
    each = value if isinstance(value, list) else [value]
    return [word for one in each for word in (f"--{flag}", _argument(str(one), flag, root))]


@cache
def options_of(verb: str) -> dict[str, bool]:
    """Name -> whether it writes or runs something."""
    from shardwise.show.cli._frame import app  # which names the module of this verb

    found: dict[str, bool] = {}
    for argument in app[verb].assemble_argument_collection():
        acts = ACTS in getattr(argument.field_info.annotation, "__metadata__", ())
        found |= {name.removeprefix("--"): acts for name in argument.names if name.startswith("--")}
    return found


def _argument(word: str, name: str, root: Path) -> str:
    if len(word) > LONGEST_WORD or not word.isprintable():
        raise ValueError(f"{name}: {word[:40]!r} is too long or no plain text; write at most {LONGEST_WORD} characters")
    if word.startswith("-"):
        raise ValueError(f"{name}: {word[:40]!r} begins like an option; write options by their names")
    for part in {word, *re.split(r"[,=;\s]+", word)}:
        _check_inside(part, name, root)
    return word


def _check_inside(word: str, name: str, root: Path) -> None:
    """Whatever could be a path must lie in the folder, symbolic links followed."""
    try:
        inside = (root / word).resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # too long, or links that lead to each other
        inside = False
    if not inside or word.startswith("~"):
        raise ValueError(f"{name}: {word[:60]!r} is outside of {root.name!r}; write a file inside it")


def answered(asked: ToolRequest, root: Path, seconds: float = SECONDS) -> dict[str, Any]:
    """The verb's answer, cut to size; its refusal is a ValueError."""
    with subprocess.Popen(
        python_command("shardwise", *asked.words), env=python_environment(), cwd=root, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, errors="replace",
    ) as process:  # fmt: skip
        if hasattr(resource, "prlimit"):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise ValueError(
                f"{asked.tool.verb}: no answer in {seconds:g} s; ask for fewer GPUs or a smaller search"
            ) from None
    if process.returncode not in MEANING:
        told = err.strip().splitlines()
        raise ValueError(told[-1][:500] if told else f"{asked.tool.verb}: it ended with {process.returncode}")
    return shortened(asked, msgspec.json.decode(out), process.returncode)


def shortened(asked: ToolRequest, answer: Any, code: int) -> dict[str, Any]:
    """Long lists and texts cut, then the keys that matter least left out until it is short; what is missing is said."""
    told = {"command": asked.command, "exit_code": code, "meaning": MEANING[code]}
    if not isinstance(answer, dict):
        return {**told, "answer": _cut(answer)}
    order = dict.fromkeys(key for key in (*CITED, *asked.tool.keys, *answer) if key in answer)
    kept: dict[str, Any] = {}
    left: list[str] = []
    # names of keys left out need room too
    room = asked.tool.longest - _shown_length({**told, "answer": {}, "left_out": list(order)})
    for key in order:
        value = _rows(answer[key], asked.tool.columns) if asked.tool.columns else _cut(answer[key])
        size = _shown_length({"answer": {key: value}}) - _shown_length({"answer": {}})
        if size > room:
            left.append(key)
            continue
        kept[key] = value
        room -= size
    return {**told, "answer": {key: kept[key] for key in answer if key in kept}, "left_out": left}


def _shown_length(value: Any) -> int:
    """As clients show it: a value a line."""
    return len(msgspec.json.format(msgspec.json.encode(value), indent=2))


def _rows(value: Any, columns: Sequence[str]) -> Any:
    """A list with these columns alone, a row a line."""
    if not isinstance(value, list):
        return _cut(value)
    return [" ".join(str(row[name]) for name in columns if row.get(name) is not None) for row in value]


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(each) for key, each in value.items()}
    if isinstance(value, list):
        plain = all(not isinstance(each, dict | list) for each in value)
        most = len(value) if plain and len(value) <= 64 else SHOWN
        cut = [_cut(each) for each in value[:most]]
        return cut if len(value) <= most else [*cut, f"... {len(value) - most} more"]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}... {len(value) - LONGEST_TEXT} characters more"
    return value
