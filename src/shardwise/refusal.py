"""Distinguishes a refused input from a mistake inside shardwise: both are a ValueError."""

from opcode import opmap

_RAISE = opmap["RAISE_VARARGS"]
REFUSING = {"shardwise"}
"""top packages whose `raise` refuses an input; an installed verb adds its own"""


def is_refusal(problem: BaseException) -> bool:
    """Whether a `raise` statement of shardwise or of a plug-in made it. What numpy, Python's own library or a failing
    expression (`int("x")`, `a, b = c`) raises names neither a field nor a cure, so it is not for the user."""
    last = problem.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    package = str(last.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in REFUSING and last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE
