"""Sockets between the ranks that hold the same shard in different replicas; whoever is gone closes them."""

import selectors
import socket
from collections.abc import Mapping

PART = 1 << 20
"""bytes of one read or write"""


class PeerGone(ConnectionError):
    """`replica` closed its end, or was lost."""

    def __init__(self, replica: int) -> None:
        super().__init__(f"replica {replica} is gone")
        self.replica = replica


class PeerMesh:
    def __init__(self, peers: Mapping[int, socket.socket]) -> None:
        """By replica."""
        self.peers = dict(peers)
        for one in self.peers.values():
            one.setblocking(False)

    def swap(self, out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> None:
        """Sends and receives all of them at once: none waits for another to be read."""
        left_out = {peer: view for peer, view in out.items() if len(view)}
        left_in = {peer: view for peer, view in into.items() if len(view)}
        with selectors.DefaultSelector() as selector:
            for one in {*left_out, *left_in}:
                selector.register(self.peers[one], _events(one, left_out, left_in), one)
            while left_out or left_in:
                for key, ready in selector.select():
                    peer: int = key.data
                    if ready & selectors.EVENT_READ:
                        _read(self.peers[peer], peer, left_in)
                    if ready & selectors.EVENT_WRITE:
                        _write(self.peers[peer], peer, left_out)
                    if now := _events(peer, left_out, left_in):
                        selector.modify(self.peers[peer], now, peer)
                    else:
                        selector.unregister(self.peers[peer])

    def close(self) -> None:
        for one in self.peers.values():
            one.close()
        self.peers.clear()


def _events(peer: int, out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> int:
    return (selectors.EVENT_READ if peer in into else 0) | (selectors.EVENT_WRITE if peer in out else 0)


def _read(peer_socket: socket.socket, peer: int, left: dict[int, memoryview]) -> None:
    try:
        count = peer_socket.recv_into(left[peer], min(len(left[peer]), PART))
    except BlockingIOError:
        return
    except OSError:
        count = 0
    if not count:
        raise PeerGone(peer)
    _shorten(left, peer, count)


def _write(peer_socket: socket.socket, peer: int, left: dict[int, memoryview]) -> None:
    try:
        count = peer_socket.send(left[peer][:PART])
    except BlockingIOError:
        return
    except OSError:
        raise PeerGone(peer) from None
    _shorten(left, peer, count)


def _shorten(left: dict[int, memoryview], peer: int, count: int) -> None:
    left[peer] = left[peer][count:]
    if not len(left[peer]):
        del left[peer]
