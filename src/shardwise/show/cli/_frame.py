"""Builds the app and runs it: the one place that turns trouble into one line and an exit code.

0: done, or it fits. 1: it does not fit, or a check failed. 2: the input is wrong. 70: shardwise itself is. 130: Ctrl-C.
"""

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cyclopts import App, CoercionError, CycloptsError, Group, Parameter, ValidationError
from cyclopts.exceptions import UnknownCommandError, UnknownOptionError

from shardwise.refusal import is_refusal
from shardwise.registry import closest
from shardwise.screen import ScreenStream, on_screen
from shardwise.show.cli._examples import EXAMPLES, FIRST, ITSELF, OWN_APP, epilogue
from shardwise.show.cli._html import NO_RESULT, OWN_PAGE, with_page
from shardwise.show.cli._installed import add_verb
from shardwise.show.cli._interrupts import INTERRUPTED, Interrupts, say_interrupted, stop_now
from shardwise.show.cli._other_words import called_here, taken_elsewhere
from shardwise.show.cli._routes import FORMS, MOVED, renamed, route
from shardwise.show.cli._shown import HELP_ALL, RARE, show_all
from shardwise.show.cli._verbs import BESIDE, FIRST_SCREEN, GROUPS, OTHERS, VERBS, group_of, import_path
from shardwise.usual_places import look_in_usual_places

BAD_INPUT = 2
UNFORESEEN = 70
"""EX_SOFTWARE of sysexits.h"""
SHOW_TRACEBACK = "SHARDWISE_TRACEBACK"
LONGEST_PROBLEM = 300
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
"""what a stream says that takes no more; files that are written say their own names"""
NUMBERS: dict[object, str] = {int: "a whole number", float: "a number"}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("shardwise")
    except PackageNotFoundError:
        return "unknown (run from a source tree that is not installed)"


def _shown_default(value: object) -> str | None:
    """A switch is off unless it is written, and nothing is nothing: neither needs saying."""
    return None if value is None or value is False or value in ((), [], "") else str(value)


def _paged(verb: str) -> bool:
    return verb not in (*NO_RESULT, *OWN_PAGE)


def _build() -> App:
    built = App(
        name="shardwise",
        help="How to split a training run over GPUs: the best way, how long it takes, what fills the memory, what it "
        "costs. `shardwise VERB --help` shows a verb's usual options and two examples; `--help-all`, with a verb or "
        "without, shows all.",
        version=_version,
        help_format="plaintext",  # a quarter of the time of --help would be importing a reader of Markdown
        default_parameter=Parameter(negative=(), show_default=_shown_default),
        result_action="return_value",
        help_epilogue=epilogue(FIRST) + ITSELF,
        group_commands=Group("shardwise itself", sort_key=len(GROUPS) + 1),
    )
    groups = {name: Group(name, sort_key=place) for place, name in enumerate([*GROUPS, OTHERS])}
    ordered = [*(verb for verbs in GROUPS.values() for verb in verbs), *VERBS]
    for place, verb in enumerate(dict.fromkeys(ordered)):
        told = {} if verb in OWN_APP else {"help_epilogue": epilogue(EXAMPLES[verb], verb, paged=_paged(verb))}
        group = groups[group_of(verb)]
        show = True if verb in FIRST_SCREEN else RARE
        built.command(import_path(verb), name=verb, help=VERBS[verb], group=group, sort_key=place, show=show, **told)
    for name, now in FORMS.items():
        usage = f"Usage: shardwise {now} [ARGS] [OPTIONS]"
        built.command(import_path(name), name=name, show=False, usage=usage, help_epilogue="")
    return built


app = _build()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    alone = arguments is None
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--"]:  # as some versions of Python hand on `torchrun -m shardwise -- run ...`
        del words[0]
    if alone and words[:1] not in (["serve"], ["mcp"]):
        look_in_usual_places()
    _check_streams()
    interrupts = Interrupts(last=alone)
    try:
        with interrupts, _on_screen():
            code = _answered(words)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if not interrupts.came and code != INTERRUPTED:
        return code
    if alone:
        stop_now()
    say_interrupted()
    return INTERRUPTED


@contextmanager
def _on_screen() -> Iterator[None]:
    """Meanwhile nothing that is printed holds what a terminal would obey."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(ScreenStream, streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def _answered(words: list[str]) -> int:
    if HELP_ALL in words and "--" not in words:
        words = ["--help" if word == HELP_ALL else word for word in words]
        show_all(True)
    try:
        words = renamed(words)
        add_verb(app, words[0] if words else "")
        code = with_page(words, lambda rest: app(route(rest), exit_on_error=False, print_error=False), _takes)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except SystemExit as ended:
        # how rich ends when its reader left, and cyclopts when interrupted; verbs return their code
        return INTERRUPTED if ended.code == INTERRUPTED else 0
    except UnknownCommandError:
        return _refuse(_unknown(words))
    except CycloptsError as problem:
        return _refuse(_one_line(problem))
    except ValueError as problem:
        return _refuse(str(problem)) if is_refusal(problem) else _unforeseen(problem)
    except OSError as problem:
        if problem.filename is None and problem.errno in NO_ROOM:
            return _refuse(f"stdout: it cannot be written ({problem.strerror}); send it elsewhere")
        return _refuse(str(problem))
    except MemoryError as problem:
        return _refuse(f"memory: there is not enough for this ({problem}); ask for fewer GPUs, layers or ranks")
    except Exception as problem:
        return _unforeseen(problem)
    finally:
        show_all(False)
    return code if isinstance(code, int) else 0


def _takes(words: Sequence[str], option: str) -> bool:
    """Whether the verb has this option itself, or its command where the second word names one."""
    words = route(words)
    asked = app[words[0]]
    if len(words) > 1 and words[1] in [name for name in asked if not name.startswith("-")]:
        asked = asked[words[1]]
    if asked.default_command is None:
        return False
    return any(option in argument.names for argument in asked.assemble_argument_collection())


def _check_streams() -> None:
    """A terminal that cannot show a character is no reason to stop, and neither is a stream that was closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  for the life of the process
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _unknown(words: Sequence[str]) -> str:
    word = words[0]
    if word in list(app):
        return f"{word} has no sub-command {words[-1]!r}; see 'shardwise {word} --help'"
    if word.startswith("-"):
        return f"{word!r} is not an option of shardwise itself; {closest(word, ['--help', '--version'])}"
    return f"{word!r} is not a verb; {closest(word, [*VERBS, *BESIDE, *MOVED, *FORMS])}"


def _one_line(problem: CycloptsError) -> str:
    problem.verbose = False
    if isinstance(problem, CoercionError) and problem.target_type in NUMBERS:
        return f"{str(problem).rstrip('.')}; write {NUMBERS[problem.target_type]}"
    if isinstance(problem, ValidationError) and problem.argument is not None and problem.exception_message:
        return f"{problem.argument.name.lstrip('-')}{problem.exception_message}"
    if isinstance(problem, UnknownOptionError) and (name := called_here(problem)):
        return f"{problem.token.keyword or problem.token.value} is not an option here; write {name}"
    if isinstance(problem, UnknownOptionError) and (verbs := taken_elsewhere(problem)):
        return f"{problem.token.keyword or problem.token.value} is not an option here; {verbs} take it"
    return str(problem)


def _refuse(message: str) -> int:
    _empty_stdout()
    print(on_screen("error: " + " ".join(message.split())), file=sys.stderr)
    return BAD_INPUT


def _unforeseen(problem: Exception) -> int:
    """A mistake of shardwise: one line that can be reported."""
    if os.environ.get(SHOW_TRACEBACK):
        traceback.print_exception(problem)
    _empty_stdout()
    where = traceback.extract_tb(problem.__traceback__)[-1]
    what = on_screen(" ".join(f"{type(problem).__name__}: {problem}".split()))[:LONGEST_PROBLEM]
    print(
        f"error: a mistake in shardwise {_version()}, not in your input: {what} ({Path(where.filename).name}:"
        f"{where.lineno}); {SHOW_TRACEBACK}=1 shows where: please report that with your command line",
        file=sys.stderr,
    )
    return UNFORESEEN


def _empty_stdout() -> None:
    """Where stdout is what failed (a full disk), it must not fail once more when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget_stdout()


def _forget_stdout() -> None:
    """The reader left; point stdout at nothing, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
