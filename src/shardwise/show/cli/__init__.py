"""The command line: one small file per verb, registered in `_verbs`, run by `_frame`."""

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    try:
        from shardwise.show.cli import _frame
    except KeyboardInterrupt:  # as early as that nobody else can answer it
        sys.stderr.write("interrupted\n")
        os._exit(130)
    return _frame.main(arguments)
