"""Short trials of policies on the user's machines: through `shardwise run`, or any command, each bounded in time."""

import json
import os
import re
import shlex
import signal
import statistics
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from shutil import which
from typing import Any

from shardwise.interpreter import python_command, python_environment
from shardwise.question.command import command_of
from shardwise.question.job import DEFAULT_STACK
from shardwise.show.cli._as_predicted import planned_for_here
from shardwise.show.cli._torch import needs_torch
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import Job
from shardwise.spec.policy import Policy

STEPS = 6
"""of a trial by `shardwise run`; the first ones warm up"""
MOST_OUTPUT = 4 * 2**20
"""characters of a command's output that are looked at: the last ones"""
MOST_WHY = 200
"""characters of what a failed trial said last"""
DEVICES = ("cuda", "cpu")
BAD_INPUT = 2
FIELDS = {"tp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "ep": "ep", "vpp": "vpp", "zero": "zero",
          "micro": "micro_batch", "recompute": "recompute", "schedule": "schedule"}  # fmt: skip
"""what a command may name in braces"""


@dataclass(frozen=True)
class TrialOutcome:
    step_s: float | None
    """None: it gave no result"""
    why: str = ""
    """then"""
    refused: bool = False
    """then: it never began, which says nothing of its memory"""


@dataclass(frozen=True)
class TrialPlace:
    """Where this program's own runtime tries policies."""

    device: str
    """cuda or cpu"""
    other: str = ""
    """the machine's name, where it is not the one that was planned for"""


Runner = Callable[[Policy], TrialOutcome]


def checked_command(text: str) -> list[str]:
    """The words of a command with braces, refused where they would not say which policy to run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(
            f"measure-with: {text[:60]!r} is not a command line: {error}; write a quoted command"
        ) from None
    names = {"policy", *FIELDS}
    stated = re.findall(r"\{([A-Za-z_]{1,40})\}", text)
    for name in stated:
        if name not in names:
            raise ValueError(f"measure-with: {{{name}}} is not part of a policy; write {{policy}} or one of "
                             f"{', '.join(sorted(FIELDS))}")  # fmt: skip
    if not stated:
        raise ValueError("measure-with: the command names no policy; write for example 'python train.py {policy}'")
    return words


def policy_words(policy: Policy) -> list[str]:
    """As flags of `estimate` and `run`."""
    words = shlex.split(command_of("M", "C", Job(seq=1, global_batch=1), policy, "shardwise"))
    return words[next(i for i, word in enumerate(words) if word == "--tp") :]


def by_command(words: Sequence[str], limit_s: float) -> Runner:
    """The user's own command, without a shell."""
    if "{" not in words[0] and which(words[0]) is None:
        raise _cannot_start(words[0], "no such program")

    def run(policy: Policy) -> TrialOutcome:
        values = {name: str(getattr(policy, field)) for name, field in FIELDS.items()}
        made: list[str] = []
        for word in words:
            if word == "{policy}":
                made += policy_words(policy)
                continue
            filled = word.replace("{policy}", shlex.join(policy_words(policy)))
            for name, value in values.items():
                filled = filled.replace(f"{{{name}}}", value)
            made.append(filled)
        return _timed(made, limit_s)

    return run


def place_of(device: str | None, gpu: Gpu, ranks: int) -> TrialPlace:
    """On GPUs unless processors are asked for: a model for GPUs would take hours on them, and tell nothing."""
    needs_torch("plan --measure")
    asked = device or "cuda"
    if asked not in DEVICES:
        raise ValueError(f"measure-device: {asked!r} is unknown; write {' or '.join(DEVICES)}")
    if asked == "cpu":
        return TrialPlace(asked, asked)
    from shardwise.run.runtime.launch import device_for, machine_name  # slow to import

    try:
        here = device_for(asked, ranks)
    except ValueError:
        raise ValueError(
            f"measure-device: this machine has too few GPUs for {ranks} ranks; write --measure-device cpu to try on "
            "processors, or --measure-with and the command that starts your job"
        ) from None
    return TrialPlace(here, "" if planned_for_here(gpu, here) else machine_name(here))


def run_words(model: str, on: str, job: Job, policy: Policy, device: str) -> list[str]:
    """`shardwise run ...`, which has a stack of its own, as words."""
    words = shlex.split(command_of(model, on, job, policy, DEFAULT_STACK, verb="run"))
    return [*words, *(["--device", device] if device == "cpu" else [])]


def by_run(model: str, on: str, job: Job, limit_s: float, place: TrialPlace) -> Runner:
    """This program's own runtime."""

    def run(policy: Policy) -> TrialOutcome:
        words = run_words(model, on, job, policy, place.device)
        command = python_command(*words, "--steps", str(STEPS), "--json")
        return _timed(command, limit_s, python_environment(), refusal=BAD_INPUT)

    return run


def _timed(
    words: Sequence[str], limit_s: float, environment: dict[str, str] | None = None, refusal: int | None = None
) -> TrialOutcome:
    """Runs a command in a group of its own, so that what it started ends with it. `refusal`: its exit code for what it
    will not even begin."""
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   start_new_session=True, env=environment)  # fmt: skip
    except OSError as error:
        raise _cannot_start(words[0], error.strerror or str(error)) from None
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _ended(process)
        return TrialOutcome(None, f"not done after {limit_s:.0f} s")
    except BaseException:
        _ended(process)
        raise
    if process.returncode:
        said = err.decode("utf-8", "replace").strip().splitlines()
        told = said[-1].removeprefix("error: ")[:MOST_WHY] if said else ""
        if process.returncode == refusal:
            return TrialOutcome(None, f"refused: {told}", refused=True)
        return TrialOutcome(None, f"exit code {process.returncode}{': ' + told if told else ''}")
    step = step_in(out.decode("utf-8", "replace")[-MOST_OUTPUT:])
    if step is None:
        return TrialOutcome(None, "it printed no step_s")
    return TrialOutcome(step)


def _cannot_start(program: str, why: str) -> ValueError:
    return ValueError(f"measure-with: {program[:60]!r} cannot be started: {why}; write a command that can")


def _ended(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def step_in(text: str) -> float | None:
    """Seconds of a step in a command's output: a JSON document, or the last line of JSON, with `step_s`, or with
    `steps` as `shardwise run` prints them."""
    for piece in (text, *reversed(text.strip().splitlines())):
        if not piece.lstrip().startswith("{"):
            continue
        try:
            found = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        step = _step_of(found)
        if step is not None:
            return step
    return None


def _step_of(found: dict[str, Any]) -> float | None:
    steps = found.get("steps")
    if isinstance(steps, list):
        times = [_number(each.get("step_s")) for each in steps if isinstance(each, dict)]
        known = [value for value in times if value is not None]
        # the first steps warm up
        return statistics.median(known[len(known) // 2 :]) if known else None
    return _number(found.get("step_s"))


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e7
    return float(value) if good else None
