"""How a run ended, on all ranks alike, and the signals that ask it to end."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from msgspec import Struct

from shardwise.run.runtime.train.lines import StepLine

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""what schedulers send before they kill: Slurm the second, if asked to (--signal=USR1@120)"""
CHECK_FAILED = 1
ECHO_S = 3.0
"""a scheduler signals launcher and ranks, and the launcher passes it on; who asks again later does not want to wait"""
NOTICED_S = 2.0
"""in which ranks that wait for the same message notice too that it does not come"""
BY_SIGNAL = 128
"""exit codes of a process that a signal ended begin here, as shells have it"""


class TrainingResult(Struct, frozen=True, kw_only=True):
    lines: list[StepLine]
    stopped: str = ""
    """why it ended before its last step; empty: it did not"""
    code: int = 0
    """exit code"""
    exported: str = ""
    """folder that has the weights now"""
    unwritten: tuple[str, ...] = ()
    """what lacks something though every step was made"""
    remarks: tuple[str, ...] = ()
    """what else is worth telling at the end"""
    checksum_s: float = 0.0
    """spent on checksums, over all steps"""

    def text(self) -> str:
        """In one line, where it did not end as it should."""
        if self.stopped or not self.unwritten:
            return self.stopped
        return f"every step was made, but not written: {'; '.join(self.unwritten)}"


class StopRequest:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self.signal = 0
        self._since: dict[int, float] = {}

    @property
    def asked(self) -> bool:
        return self.signal != 0

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        if monotonic() - self._since.setdefault(number, monotonic()) > ECHO_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Signals are noted, to be obeyed after the step; in another thread than the main one nobody can note them."""
    found = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {number: signal.signal(number, found._note) for number in STOP_SIGNALS}
    # a launcher holds them back until here
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def by_signal(number: int) -> tuple[str, int]:
    """In words, and as an exit code."""
    return signal.Signals(number).name, BY_SIGNAL + number
