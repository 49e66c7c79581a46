"""Work inside a network namespace: a thread of this process goes there and ends there."""

import ctypes
import os
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from shardwise_lab.names import SPACES

CLONE_NEWNET = 0x40000000
Found = TypeVar("Found")


def enter(space: str) -> None:
    """This thread (in a fork: this process) goes into the namespace."""
    with (SPACES / space).open("rb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {space}")


def inside(space: str, work: Callable[[], Found]) -> Found:
    """What `work` finds there. Sockets and files of /proc/thread-self/net it opens stay with the namespace."""
    found: list[Found] = []
    trouble: list[BaseException] = []

    def go() -> None:
        try:
            enter(space)
            found.append(work())
        except BaseException as error:  # handed to the caller
            trouble.append(error)

    thread = Thread(target=go)
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    return found[0]


def set_sysctls(space: str, values: dict[str, str]) -> None:
    def write() -> None:
        for name, value in values.items():
            with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as file:
                file.write(value)

    inside(space, write)


def net_file(space: str, name: str) -> int:
    """A file of /proc/net as that namespace has it, open: it can be read again and again from any thread."""
    return inside(space, lambda: os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY | os.O_CLOEXEC))
