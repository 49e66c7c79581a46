"""Processes that wait for each other for ever: noticed by the processor time that none uses, and where they are."""

import faulthandler
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

IDLE_S = 60.0
BUSY_SHARE = 0.01
"""processor time a process uses at least unless it only waits: gloo's own thread looks for messages all the time"""
LOOK_S = 0.5
"""between two looks"""
WRITES_S = 0.5
"""a stack is written at once"""
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<number>\d+) in (?P<function>\S+)')
LIBRARIES = ("/torch/", "/shardwise/", "/threading.py", "<frozen")


class IdleWatch:
    """Of the child processes with these numbers, by rank."""

    def __init__(self, children: Sequence[int]) -> None:
        self.children = children
        self.since = self.looked = monotonic()
        self.used = _processor_s(children)

    def idle(self) -> bool:
        """Whether all of them together have done nothing for so long."""
        now = monotonic()
        if now - self.looked < LOOK_S:
            return False
        self.looked, used = now, _processor_s(self.children)
        if used is None or self.used is None or used - self.used > BUSY_SHARE * IDLE_S * len(self.children):
            self.since, self.used = now, used
        return now - self.since > IDLE_S


def _processor_s(children: Sequence[int]) -> float | None:
    """None where the system does not say."""
    total = 0
    for child in children:
        try:
            total += sum(map(int, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except (OSError, ValueError):
            return None
    return total / os.sysconf("SC_CLK_TCK")


def write_stack_when_asked(path: Path) -> None:
    """In a child: where it is, on SIGUSR1."""
    faulthandler.register(signal.SIGUSR1, path.open("w"), all_threads=True)


def places(children: Sequence[int], stacks: Sequence[Path]) -> str:
    """The line of the user's own code that each is in."""
    for child in children:
        os.kill(child, signal.SIGUSR1)
    sleep(WRITES_S)
    return ", ".join(f"rank {rank} {_place(path)}" for rank, path in enumerate(stacks))


def _place(path: Path) -> str:
    frames = list(FRAME.finditer(path.read_text())) if path.exists() else []
    own = [frame for frame in frames if not any(word in frame["file"] for word in LIBRARIES)]
    for frame in [*own, *frames][:1]:
        return f"in {frame['function']} ({Path(frame['file']).name}:{frame['number']})"
    return "nowhere in Python"
