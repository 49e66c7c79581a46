"""A process that must not outlive the one that started it. No torch here: it is called right after a fork."""

import ctypes
import os
import signal
import sys


def die_with_parent(parent: int | None = None) -> None:
    """Linux: a rank that waits for others does not outlive a launcher that was killed - before this call either, where
    the launcher is named."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)
