"""Marks packets where a queue grows (ECN), by a small program of ours in the kernel."""

from collections.abc import Iterator
from contextlib import contextmanager

from shardwise.lab.build import Built


def may_load() -> bool:
    return False


def require_marks() -> None:
    if not may_load():
        raise ValueError(
            "ecn: this machine can mark no packets: its kernel has neither a RED queue nor lets us load BPF"
        )


@contextmanager
def marking(built: Built) -> Iterator[None]:
    if built.fabric.knobs.ecn_bytes is not None:
        require_marks()
    yield
