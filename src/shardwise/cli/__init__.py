"""The command line: one small file per verb, registered in `_verbs`, run by `_frame`."""

from shardwise.cli._frame import app, main

__all__ = ["app", "main"]
