"""Words between the launcher of an elastic run and its ranks, over a socket of whole messages."""

import array
import socket
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from shardwise.run.runtime.train.lines import StepLine

MOST_BYTES = 1 << 16
MOST_SOCKETS = 64
"""that one message can carry, and so the most replicas there can be"""


class Turn(Struct, frozen=True, kw_only=True):
    """From the launcher: what a rank does next."""

    step: int
    """steps that are made"""
    epoch: int
    """number of this try; votes of another one do not count"""
    members: tuple[int, ...] = ()
    """replicas that take part; with them come sockets to the others, in their order, if `meets`"""
    meets: bool = False
    """there is a new socket to every other member"""
    committed: bool = False
    """the last vote was unanimous: the step is made with the gradient that was agreed on"""
    losses: dict[int, float] = {}
    """of the replicas whose micro-batches it has"""
    source: int = -1
    """the replica that the others in `heals` get everything from"""
    heals: tuple[int, ...] = ()
    ends: bool = False
    exports: bool = False
    """at the end this replica writes the weights"""


class Vote(Struct, frozen=True, kw_only=True):
    """From a rank: whether it holds the gradient of a step. The first, of epoch 0, says that it is there."""

    epoch: int
    ok: bool = True
    computed: bool = False
    """no vote yet: its own gradient is there, and it waits for its peers"""
    blamed: int = -1
    """replica that sent a gradient which had changed"""
    loss: float = 0.0
    state: int | None = None
    """checksum of everything a step changes, where it was due"""
    line: StepLine | None = None
    """of the step before"""
    checksum_s: float = 0.0
    exported: str = ""
    why: str = ""
    """nothing was exported"""


Message = TypeVar("Message", Turn, Vote)


def tell(to: socket.socket, message: Turn | Vote, sockets: Sequence[socket.socket] = ()) -> None:
    packed = msgspec.msgpack.encode(message)
    carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno() for one in sockets]))]
    to.sendmsg([packed], carried if sockets else [])


def hear(source: socket.socket, kind: type[Message]) -> tuple[Message, list[socket.socket]]:
    """EOFError where the other end is gone."""
    handles = array.array("i")
    try:
        packed, carried, _, _ = source.recvmsg(MOST_BYTES, socket.CMSG_SPACE(MOST_SOCKETS * handles.itemsize))
    except ConnectionError:
        packed, carried = b"", []
    for level, what, content in carried:
        if level == socket.SOL_SOCKET and what == socket.SCM_RIGHTS:
            handles.frombytes(content[: len(content) - len(content) % handles.itemsize])
    if not packed:
        raise EOFError
    return msgspec.msgpack.decode(packed, type=kind), [socket.socket(fileno=handle) for handle in handles]


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """For words; each is whole or not there."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
