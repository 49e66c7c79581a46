"""Counts the functions that the script's own Python calls between two operators: host time that no operator shows.

What tracing itself calls (the pretended GPU, tensors without values) is not counted: a real step does not run it.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

OURS = str(Path(__file__).resolve().parent)
TORCH = Path(torch.__file__).resolve().parent
LISTENING = tuple(
    str(TORCH / part)
    for part in ("overrides.py", "utils/_python_dispatch.py", "_library", "_subclasses", "_dynamo", "_compile.py")
)
"""what torch runs because somebody listens to its calls, or because tensors have no values"""
HOOKS = tuple(str(TORCH / part) for part in ("utils/checkpoint.py", "autograd/graph.py"))
"""of tensors that autograd keeps: operators call them, so that in a trace the caller seems to be who listens"""
UNFOLLOWED = str(TORCH / "_dynamo")
UNFOLLOWED_CALLS = 3, 5
"""functions and built-in ones of the wrapper there, around hooks that a compiler may not follow"""
ASKED_AGAIN = "_has_torch_function"
"""how the name of a built-in function begins with which a function asks once more, behind whoever listens"""


class PythonCalls:
    """Functions and built-in ones called since `taken` was last called."""

    def __init__(self) -> None:
        self.functions = self.builtins = 0
        self._ours: dict[str, bool] = {}
        self._before: Any = None
        self._counting = False

    def begin(self) -> None:
        self.functions = self.builtins = 0
        if not self._counting:
            self._before = sys.getprofile()
            self._counting = True
        sys.setprofile(self._called)

    def end(self) -> None:
        if self._counting:
            sys.setprofile(self._before)
            self._counting = False

    def pause(self) -> Callable[[], None]:
        """Until what it gives is called, nothing is counted."""
        now = sys.getprofile()
        sys.setprofile(None)
        return lambda: sys.setprofile(now)

    def taken(self) -> tuple[int, int]:
        found = self.functions, self.builtins
        self.functions = self.builtins = 0
        return found

    def _called(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            if self._is_ours(frame):
                return
            by = frame.f_back
            if by is None or not self._is_ours(by):
                self.functions += 1
            elif frame.f_code.co_filename in HOOKS:
                wrapped = by.f_code.co_filename.startswith(UNFOLLOWED)
                self.functions += 1 + UNFOLLOWED_CALLS[0] * wrapped
                self.builtins += UNFOLLOWED_CALLS[1] * wrapped
        elif event == "c_call" and not self._is_ours(frame):
            again = called.__name__.startswith(ASKED_AGAIN) and frame.f_back is not None and self._is_ours(frame.f_back)
            self.builtins += not again

    def _is_ours(self, frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        found = self._ours.get(name)
        if found is None:
            found = self._ours[name] = name.startswith((OURS, *LISTENING))
        return found
