"""A user's file with `build`, `batch` and `step` as a program that can be split and proven."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shardwise.run.auto.loop import loop_program
from shardwise.run.auto.narrow import renumbered, smaller
from shardwise.run.auto.program import UserProgram, program_of
from shardwise.run.auto.source import ProgramSource
from shardwise.run.auto.weightless import without_weights
from shardwise.run.runtime.private import swapped
from shardwise.run.trace.devices import CudaIsCpu
from shardwise.run.trace.script import Script, ScriptError, script_of, told_in_one_line


@contextmanager
def opened(path: Path) -> Iterator[tuple[Script, dict[str, Any]]]:
    """Its names after running it, none of one that runs from top to bottom. What it prints goes to stderr, and its
    mistakes are told in one line."""
    script = script_of(path)
    with redirect_stdout(sys.stderr), told_in_one_line(script), _left_as_found(path), CudaIsCpu(), as_written():
        names = script.run() if script.functions else {}
        if script.functions and "batch" not in names:
            raise ScriptError(f"{path.name} has no function `batch`; write batch() -> the inputs of a whole step")
        yield script, names


@contextmanager
def as_written() -> Iterator[None]:
    """Code is neither compiled nor computed in fewer bits: compiled code does not see what is split, and rounding would
    hide it."""

    def compiled(model: Any = None, *_: Any, **__: Any) -> Any:
        return (lambda function: function) if model is None else model

    scales, casts = torch.amp.GradScaler.__init__, torch.autocast.__init__
    changes: tuple[tuple[Any, str, Any], ...] = (
        (torch, "compile", compiled), (nn.Module, "compile", lambda *_, **__: None),
        (torch.amp.GradScaler, "__init__", lambda self, *_, **__: scales(self, enabled=False)),
        (torch.autocast, "__init__", lambda self, *_, **__: casts(self, "cpu", enabled=False)),
    )  # fmt: skip
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(swapped(*change))
        yield


@contextmanager
def _left_as_found(path: Path) -> Iterator[None]:
    """The next script must not get this one's modules, nor the precision that it has made the usual one."""
    modules, dtype, folder = set(sys.modules), torch.get_default_dtype(), str(path.resolve().parent)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                del sys.modules[name]


def source_in(script: Script, names: dict[str, Any]) -> ProgramSource:
    text = script.path.read_text(encoding="utf-8", errors="replace")
    if not script.functions:
        return ProgramSource(
            make=lambda steps, dtype: program_in(script, names, steps, dtype), outline=lambda: None, text=text
        )

    @contextmanager
    def changed(change: Callable[[int], int]) -> Iterator[ProgramSource]:
        with renumbered(script, change) as other:
            yield source_in(other, other.run())

    return ProgramSource(
        make=lambda steps, dtype: program_in(script, names, steps, dtype),
        outline=lambda: _outline_in(script, names),
        narrow=lambda divisor: changed(lambda number: smaller(number, divisor)),
        shorter=lambda tokens, few: changed(lambda number: few if number == tokens else number),
        text=text,
    )


def _outline_in(script: Script, names: dict[str, Any]) -> UserProgram | None:
    try:
        with without_weights():
            torch.manual_seed(0)
            built = script.call(names["build"], 1)
        program = UserProgram(built if isinstance(built, tuple) else (built,), _step_in(script, names),
                              [script.call(names["batch"], 1)])  # fmt: skip
        return program if all(p.is_meta for p in program.model.parameters()) else None
    except Exception:  # told again, in words, where it is built with values
        return None


def _step_in(script: Script, names: dict[str, Any]) -> Callable[..., object]:
    return lambda *args: script.call(names["step"], *args)


def program_in(script: Script, names: dict[str, Any], steps: int, dtype: str) -> UserProgram:
    try:
        if not script.functions:
            return loop_program(script, steps, dtype)
        program = program_of(
            lambda: script.call(names["build"], 1), lambda: script.call(names["batch"], 1), _step_in(script, names),
            steps, dtype,
        )  # fmt: skip
    except (ValueError, RuntimeError) as error:
        if not any(words in str(error) for words in ("process group", "rendezvous")):
            raise
        raise ScriptError(
            f"{script.path.name}: it asks for the ranks of a process group, so it is split already; write a program "
            "for one process, or look at this one with `shardwise trace`"
        ) from error
    if not any(isinstance(part, nn.Module) for part in program.parts):
        raise ScriptError(
            f"{script.path.name}: build() returns no torch.nn.Module; write build() -> (model, optimizer)"
        )
    if not program.optimizers:
        raise ScriptError(f"{script.path.name}: build() returns no optimizer; write build() -> (model, optimizer)")
    if any(p.is_meta for p in program.model.parameters()):
        raise ScriptError(f"{script.path.name}: build() leaves weights on the meta device; a proof needs values")
    return program
