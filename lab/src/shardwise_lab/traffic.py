"""Plain TCP transfers between GPUs of a lab, without torch: many connections, one loop, each done when all arrived."""

import os
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from shardwise_lab.build import Built
from shardwise_lab.cables import host_address
from shardwise_lab.inside import inside

PORT = 28_000
CHUNK = bytes(64 << 10)
REALTIME = 5


@dataclass(frozen=True)
class Transfer:
    source: int
    target: int
    bytes: int
    connections: int = 1


@dataclass
class _Stream:
    transfer: int
    ends: tuple[socket.socket, socket.socket]
    to_send: int
    to_come: int


def transferred(built: Built, transfers: Sequence[Transfer], limit_s: float, *, realtime: bool = False) -> list[float]:
    """Seconds until each was received whole; all start together. `realtime`: before other work of this machine."""
    streams = [
        _Stream(number, _joined(built, each), part, part)
        for number, each in enumerate(transfers)
        for part in _parts(each.bytes, each.connections)
    ]
    try:
        with _first(realtime):
            return _pumped(streams, len(transfers), limit_s)
    finally:
        for stream in streams:
            for end in stream.ends:
                end.close()


@contextmanager
def _first(realtime: bool) -> Iterator[None]:
    """At real-time priority, where root may say so."""
    if realtime:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REALTIME))
    try:
        yield
    finally:
        if realtime:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _parts(size: int, count: int) -> list[int]:
    return [size // count + (number < size % count) for number in range(count)]


def _joined(built: Built, transfer: Transfer) -> tuple[socket.socket, socket.socket]:
    """A connection from the source to the target, made inside their namespaces."""
    address = host_address(transfer.target)

    def listening() -> socket.socket:
        found = socket.socket()
        found.bind((address, 0))
        found.listen(1)
        return found

    waits = inside(built.hosts[transfer.target], listening)
    with waits:
        port = waits.getsockname()[1]
        sender = inside(built.hosts[transfer.source], lambda: socket.create_connection((address, port), 5.0))
        receiver, _ = waits.accept()
    for end in (sender, receiver):
        end.setblocking(False)
    return sender, receiver


def _pumped(streams: list[_Stream], transfers: int, limit_s: float) -> list[float]:
    room = bytearray(256 << 10)
    ends = [0.0] * transfers
    with selectors.DefaultSelector() as ready:
        for stream in streams:
            ready.register(stream.ends[0], selectors.EVENT_WRITE, stream)
            ready.register(stream.ends[1], selectors.EVENT_READ, stream)
        start = time.monotonic()
        while any(stream.to_come for stream in streams):
            if time.monotonic() - start > limit_s:
                raise ValueError(f"limit: transfers were not done after {limit_s:g} s; write a longer --limit")
            for key, events in ready.select(0.1):
                stream = key.data
                if events & selectors.EVENT_WRITE:
                    stream.to_send -= stream.ends[0].send(CHUNK[: stream.to_send])
                    if not stream.to_send:
                        ready.unregister(stream.ends[0])
                else:
                    stream.to_come -= stream.ends[1].recv_into(room)
                    if not stream.to_come:
                        ready.unregister(stream.ends[1])
                        ends[stream.transfer] = max(ends[stream.transfer], time.monotonic() - start)
    return ends
