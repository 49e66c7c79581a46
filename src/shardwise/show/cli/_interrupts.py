"""Ctrl-C: the verb hands over what it has; what takes longer than a moment is stopped."""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

INTERRUPTED = 130
HAND_OVER_S = 0.6
"""for a verb to show what it has"""
CLEAN_UP_S = 0.2
"""then, to remove its temporary files"""


class Interrupts:
    """While it is entered, the first Ctrl-C raises KeyboardInterrupt once and starts the clock."""

    def __init__(self, *, last: bool) -> None:
        self.came = False
        self._last = last
        """nothing follows: afterwards Ctrl-C has nothing left to stop"""
        self._over = threading.Event()
        self._before: signal.Handlers | None = None

    def __enter__(self) -> Self:
        # only the main thread may; elsewhere Ctrl-C is the caller's to answer
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._answer)  # type: ignore[assignment]
        return self

    def __exit__(self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN if self._last else self._before)
        self._over.set()

    def _answer(self, _number: int, _frame: FrameType | None) -> None:
        if not self.came:
            self.came = True
            threading.Thread(target=self._enforce, daemon=True).start()
        raise KeyboardInterrupt

    def _enforce(self) -> None:
        if self._over.wait(HAND_OVER_S):
            return
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if not self._over.wait(CLEAN_UP_S):
            stop_now()


def stop_now() -> None:
    """Without what the interpreter does at its end: something may not let go, and an interpreter in which
    KeyboardInterrupt passed through generated code ends by a signal instead of with a code."""
    from multiprocessing import active_children  # needed here only, and slow to import

    for process in active_children():
        process.terminate()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    say_interrupted()
    os._exit(INTERRUPTED)


def say_interrupted() -> None:
    with suppress(OSError, ValueError):  # nobody may be there to be told
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
