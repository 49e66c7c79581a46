"""A user's file: which functions it has, and what to say when its code fails."""

import ast
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwise.fields import read_file, short
from shardwise.run.runtime.private import VALUE_ERRORS
from shardwise.run.trace.pretend import Untraceable
from shardwise.screen import from_file

NEEDED = ("build", "step")
MOST_BYTES = 2**24
NO_VALUES = (
    "the value of a tensor decides the next operation, and a traced step has no values; decide by shapes instead "
    "(a fixed capacity, a mask, balanced routing)"
)


NO_NETWORK = (
    "nothing can be fetched here; a trace needs no weights and no data: make the model of its configuration "
    "(AutoModelForCausalLM.from_config, weights=None) and the batch of torch.randint or torch.randn"
)
FETCHES = (
    "couldn't connect to", "name or service not known", "name resolution", "offline mode", "max retries exceeded",
    "cannot find the requested files in the local cache", "urlopen error",
)  # fmt: skip
"""what libraries say that look for a file elsewhere"""
ENDED_BY_ARGUMENTS = 2
"""argparse's exit code"""


class ScriptError(ValueError):
    """One line about the user's own code."""


@dataclass(frozen=True)
class Script:
    path: Path
    functions: bool
    """it has `build` and `step`; otherwise it is run from top to bottom"""
    arguments: tuple[str, ...] = ()
    """what it finds in sys.argv"""

    def run(self) -> dict[str, Any]:
        """Its names after running it."""
        return runpy.run_path(str(self.path), run_name="traced" if self.functions else "__main__")

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """With as many of the arguments as it takes."""
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return function(*args)
        takes = sum(1 for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        needs = sum(
            1 for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        )
        if needs > len(args):
            raise ScriptError(
                f"{self.path.name}: {function.__name__} needs {needs} arguments, there are {len(args)}: "
                "`build()` returns what `step` takes, and `batch()` its last argument"
            )
        return function(*args[:takes])


def script_of(path: Path, arguments: Sequence[str] = ()) -> Script:
    raw = read_file(path, "script", MOST_BYTES, "the path of a Python file")
    try:
        tree = ast.parse(raw, filename=str(path))
    # the parser gives up on deep nesting in several ways
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ScriptError(f"{path.name} is not Python: {error}") from None
    names = set(_names(tree))
    found = [name for name in NEEDED if name in names]
    if len(found) == 1:
        lacks = next(name for name in NEEDED if name not in names)
        raise ScriptError(
            f"{path.name} has a function `{found[0]}` but no function `{lacks}`; write build() -> (model, optimizer), "
            "batch() -> inputs and step(model, optimizer, batch)"
        )
    return Script(path, functions=bool(found), arguments=tuple(arguments))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


@contextmanager
def told_in_one_line(script: Script) -> Iterator[None]:
    """Trouble in the script becomes a ScriptError that says where; its folder can be imported from."""
    folder, before = str(script.path.resolve().parent), sys.argv
    sys.path.insert(0, folder)
    sys.argv = [str(script.path), *script.arguments]
    try:
        yield
    except (ScriptError, KeyboardInterrupt):
        raise
    except SystemExit as ended:
        cure = "; write its arguments behind `--`" if ended.code == ENDED_BY_ARGUMENTS else ""
        raise ScriptError(
            f"{script.path.name} ended by itself ({short(ended.code)}) before a second step{cure}"
        ) from None
    except Exception as error:
        raise ScriptError(f"{_place(script, error)}: {_reason(error)}") from error
    finally:
        sys.argv = before
        sys.path.remove(folder)


def _place(script: Script, error: Exception) -> str:
    path = script.path.resolve()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == path]
    return f"{script.path.name} line {frames[-1].lineno}, in {frames[-1].name}" if frames else script.path.name


def _reason(error: Exception) -> str:
    if isinstance(error, Untraceable):
        return str(error)
    if isinstance(error, VALUE_ERRORS):
        return f"{NO_VALUES} ({error.func})"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"it needs {error.name}, which is not installed; install it first"
    if any(words in str(error).lower() for words in FETCHES):
        return f"{NO_NETWORK} ({type(error).__name__})"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {from_file(lines[0])}" if lines else type(error).__name__
