"""Where the ranks of a local run sit: all on this machine's loopback interface, or each in a network of its own."""

import socket
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from shardwise.run.runtime.loopback import ADDRESS, listener, use_loopback


class RankSeats(Protocol):
    address: str
    """of the first rank, where the others meet it"""

    def prepared(self) -> None:
        """In the launcher, before any rank is started."""

    def listener(self) -> socket.socket:
        """For the store that ranks find each other by, at that address."""

    def enter(self, rank: int) -> None:
        """In a rank, before it joins the others."""

    def together(self) -> AbstractContextManager[None]:
        """In the launcher, for as long as ranks of one attempt run."""


class LoopbackSeats:
    address = ADDRESS

    def prepared(self) -> None:
        use_loopback()

    def listener(self) -> socket.socket:
        return listener()

    def enter(self, rank: int) -> None:
        """All stay where the launcher is."""

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()
