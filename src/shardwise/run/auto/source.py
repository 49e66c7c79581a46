"""Where a program comes from: built with values, or without, or with smaller numbers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from shardwise.run.auto.program import UserProgram


@dataclass(frozen=True)
class ProgramSource:
    """How a program is had."""

    make: Callable[[int, str], UserProgram]
    """with batches for so many steps, in this precision"""
    outline: Callable[[], UserProgram | None]
    """without weights and with one batch; None where its code wants values to be built"""
    narrow: Callable[[int], AbstractContextManager["ProgramSource"]] | None = None
    """with numbers that are so many times smaller, as long as it is open"""
    shorter: Callable[[int, int], AbstractContextManager["ProgramSource"]] | None = None
    """with the second number wherever its code has the first: tokens that are written into it"""
    text: str = ""
    """as it is written"""
