"""Builds the app and runs it: the one place that turns trouble into one line and an exit code.

0: done, or it fits. 1: it does not fit, or a check failed. 2: the input is wrong.
"""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CoercionError, CycloptsError, Parameter
from cyclopts.exceptions import UnknownCommandError

from shardwise.cli._examples import EXAMPLES, FIRST, OWN_APP, epilogue
from shardwise.cli._verbs import VERBS, import_path
from shardwise.registry import closest

BAD_INPUT = 2
INTERRUPTED = 130
NUMBERS: dict[object, str] = {int: "a whole number", float: "a number"}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("shardwise")
    except PackageNotFoundError:
        return "unknown (run from a source tree that is not installed)"


def _build() -> App:
    built = App(
        name="shardwise",
        help="Which way to split a training run over GPUs is best, how long, how much memory, what traffic.",
        version=_version,
        help_format="plaintext",  # a quarter of the time of --help would be importing a reader of Markdown
        default_parameter=Parameter(negative=()),
        result_action="return_value",
        help_epilogue=epilogue(FIRST),
    )
    for verb, question in VERBS.items():
        told = {} if verb in OWN_APP else {"help_epilogue": epilogue(EXAMPLES[verb])}
        built.command(import_path(verb), name=verb, help=question, **told)
    return built


app = _build()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to stop
    try:
        code = app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except SystemExit as ended:
        # how rich ends when its reader left, and cyclopts when interrupted; verbs return their code
        return INTERRUPTED if ended.code == INTERRUPTED else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except UnknownCommandError:
        return _refuse(_unknown(words))
    except CycloptsError as problem:
        return _refuse(_one_line(problem))
    except (ValueError, OSError) as problem:
        return _refuse(str(problem))
    return code if isinstance(code, int) else 0


def _unknown(words: Sequence[str]) -> str:
    word = words[0]
    if word in VERBS:
        return f"{word} has no sub-command {words[-1]!r}; see 'shardwise {word} --help'"
    if word.startswith("-"):
        return f"{word!r} is no option of shardwise itself; {closest(word, ['--help', '--version'])}"
    return f"{word!r} is no verb; {closest(word, list(VERBS))}"


def _one_line(problem: CycloptsError) -> str:
    problem.verbose = False
    if isinstance(problem, CoercionError) and problem.target_type in NUMBERS:
        return f"{str(problem).rstrip('.')}; write {NUMBERS[problem.target_type]}"
    return str(problem)


def _refuse(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return BAD_INPUT


def _forget_stdout() -> None:
    """The reader left; point stdout at nothing, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
