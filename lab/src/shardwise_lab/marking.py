"""Marks packets where a queue grows (ECN): a program of ours in front of every port of a switch."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shardwise_lab import bpf
from shardwise_lab.build import Built, run_tool
from shardwise_lab.inside import inside

NEW_FILTER = 44
REQUEST, ACKNOWLEDGE, EXCLUSIVE, CREATE = 1, 4, 0x200, 0x400
EGRESS = 0xFFFFFFF3
FIRST_OF_ALL = 1 << 16 | socket.htons(3)
"""priority 1, every protocol"""
KIND, OPTIONS, NESTED = 1, 2, 0x8000
FD, NAME, FLAGS = 6, 7, 8
DIRECT = 1
ERROR = 2


def may_load() -> bool:
    """Does the kernel take the program."""
    with suppress(OSError):
        state = bpf.new_state()
        try:
            os.close(bpf.loaded(state, 1_000_000, 10_000))
            return True
        except OSError:
            return False
        finally:
            os.close(state)
    return False


def require_marks() -> None:
    if not may_load():
        raise ValueError("ecn: this machine can mark no packets: its kernel does not let us load BPF; leave --ecn out")


@contextmanager
def marking(built: Built) -> Iterator[None]:
    """Marks from `ecn_bytes` of queue on, while the block runs; nothing where none is set."""
    threshold = built.fabric.knobs.ecn_bytes
    states: list[int] = []
    if threshold is None:
        yield
        return
    require_marks()
    try:
        for cable in built.plant.cables:
            for end, link in ((0, cable.out), (1, cable.back)):
                if not cable.ends[end].startswith("h"):
                    states.append(bpf.new_state())
                    rate = round(float(built.fabric.tree.links.capacity[link]))
                    _put(built.space(cable.ends[end]), cable.devices[end], bpf.loaded(states[-1], rate, threshold))
        yield
    finally:
        for state in states:
            os.close(state)


def _put(space: str, device: str, program: int) -> None:
    """In front of what the device sends; it stays there as long as the device does."""
    run_tool(["tc", "-n", space, "qdisc", "replace", "dev", device, "clsact"])
    try:
        inside(space, lambda: _attach(device, program))
    finally:
        os.close(program)


def _attach(device: str, program: int) -> None:
    number = struct.pack("=I", program)
    options = _attribute(FD, number) + _attribute(NAME, b"swlab\0") + _attribute(FLAGS, struct.pack("=I", DIRECT))
    body = struct.pack("=BxxxiIII", 0, socket.if_nametoindex(device), 0, EGRESS, FIRST_OF_ALL)
    body += _attribute(KIND, b"bpf\0") + _attribute(OPTIONS | NESTED, options)
    header = struct.pack("=IHHII", 16 + len(body), NEW_FILTER, REQUEST | ACKNOWLEDGE | EXCLUSIVE | CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(2.0)
        link.send(header + body)
        answer = link.recv(8192)
    kind, code = struct.unpack_from("=4xH10xi", answer)
    if kind != ERROR or code:
        raise OSError(-code, f"lab: no program can be put in front of {device}")


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
