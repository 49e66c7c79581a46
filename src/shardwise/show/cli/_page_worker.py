"""The process behind the page: reads questions as JSON lines, runs each verb as the command line would, writes what it
says. Started by `shardwise serve`; ends when its input does."""

import contextlib
import io
import os
import sys
from base64 import b64decode
from typing import Any, BinaryIO

import msgspec

from shardwise.fields import offered
from shardwise.show.cli import main
from shardwise.show.cli._progress import heard_by
from shardwise.show.page.questions import PACKED, STATIC
from shardwise.show.page.workers import Answered, Asked, Progress, WorkerLine

MEMORY = 8 * 2**30
"""bytes a question may address"""


def answered(asked: Asked) -> Answered:
    """What the command line writes and ends with, for these words."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), offered(_contents(asked)):
        code = main(asked.words)
    return Answered(code, out.getvalue(), err.getvalue())


def _contents(asked: Asked) -> dict[str, bytes]:
    """Texts as they are; what is packed came as base64."""
    return {name: b64decode(text) if name.endswith(PACKED) else text.encode() for name, text in asked.files.items()}


def serve_questions(source: BinaryIO, sink: BinaryIO) -> None:
    def write(line: WorkerLine) -> None:
        sink.write(msgspec.json.encode(line) + b"\n")
        sink.flush()

    def found(data: Any) -> None:
        write(WorkerLine(found=data))

    with heard_by(lambda what, done, of: write(WorkerLine(progress=Progress(what, done, of))), found):
        for raw in source:
            write(WorkerLine(answer=answered(msgspec.json.decode(raw, type=Asked))))


def _bounded() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):  # a system without limits, or one that is lower already
        return


def run() -> None:
    """The two streams are taken for questions and answers; whatever else prints goes nowhere. Relative names lead to
    the page's own files, so that no word can be taken for a file of the user."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.chdir(STATIC)
    _bounded()
    from shardwise.show.cli import estimate, plan, simulate  # noqa: F401  what is asked most is there when asked

    with contextlib.suppress(BrokenPipeError):
        serve_questions(source, sink)


if __name__ == "__main__":
    run()
    sys.exit(0)
