"""The queue in front of a port, asked of the kernel over rtnetlink: one question, one answer, a fraction of a tick."""

import socket
import struct

from msgspec import Struct

from shardwise_lab.inside import inside

GET_QDISC, REQUEST = 38, 1 | 8
"""request and echo: without the second some kernels tell everyone but who asked"""
ROOT = 0xFFFFFFFF
STATS2, STATS_QUEUE, NESTED = 7, 3, 0x8000
_HEADER, _TC, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BxxxiIII"), struct.Struct("=HH")


class Queue(Struct, frozen=True):
    packets: int
    bytes: int
    drops: int


class QueueGauge:
    """Of one device in one namespace; its socket stays there."""

    def __init__(self, space: str, device: str) -> None:
        self._socket = inside(space, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
        self._socket.settimeout(1.0)
        index = inside(space, lambda: socket.if_nametoindex(device))
        body = _TC.pack(0, index, 0, ROOT, 0)
        self._asks = _HEADER.pack(_HEADER.size + len(body), GET_QDISC, REQUEST, 1, 0) + body

    def read(self) -> Queue:
        self._socket.send(self._asks)
        answer = self._socket.recv(8192)
        stats = _attributes(answer[_HEADER.size + _TC.size :]).get(STATS2, b"")
        packets, backlog, drops = struct.unpack_from("=III", _attributes(stats).get(STATS_QUEUE, bytes(12)))
        return Queue(packets, backlog, drops)

    def close(self) -> None:
        self._socket.close()


def _attributes(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size:
            break
        found[kind & ~NESTED] = data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found
