"""A classifier of thirty instructions, assembled here and loaded by bpf(2): no compiler, no library.

It keeps a phantom queue for its port: bytes that came, less what the port's rate has carried since. A packet that finds
it longer than the threshold is marked "congestion experienced", where its sender said it understands that.
"""

import ctypes
import platform
import struct

SYSCALL = {"x86_64": 321, "aarch64": 280}
MAP_CREATE, PROG_LOAD = 0, 5
ARRAY, CLASSIFIER = 2, 3
STATE = struct.Struct("=QQQ")
"""bytes in the phantom queue, nanosecond of the last packet, packets marked"""
LICENSE = b"Apache-2.0\0"
LOOKUP_ELEMENT, KTIME, SET_CE = 1, 5, 97
SECOND = 1_000_000_000
_INSTRUCTION = struct.Struct("=BBhi")


def _op(code: int, to: int = 0, of: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, of << 4 | to, offset, value)


def program(map_fd: int, bytes_per_s: int, mark_bytes: int) -> bytes:
    move, add, subtract, multiply, divide = 0xB7, 0x0F, 0x1F, 0x27, 0x37
    copy, load, store, call = 0xBF, 0x79, 0x7B, 0x85
    return b"".join((
        _op(copy, 6, 1),
        _op(0x62, 10, offset=-4), _op(copy, 2, 10), _op(0x07, 2, value=-4),
        _op(0x18, 1, 1, value=map_fd), _op(0),
        _op(call, value=LOOKUP_ELEMENT),
        _op(0x15, 0, offset=23),  # no state: out
        _op(copy, 7, 0),
        _op(call, value=KTIME),
        _op(load, 1, 7, 8), _op(store, 7, 0, 8),
        _op(subtract, 0, 1),
        _op(0xB5, 0, offset=1, value=SECOND), _op(move, 0, value=SECOND),
        _op(multiply, 0, value=bytes_per_s), _op(divide, 0, value=SECOND),
        _op(load, 1, 7),
        _op(0x2D, 1, 0, 2), _op(move, 1), _op(0x05, offset=1),
        _op(subtract, 1, 0),
        _op(0x61, 2, 6),
        _op(add, 1, 2), _op(store, 7, 1),
        _op(0xB5, 1, offset=5, value=mark_bytes),  # short: out
        _op(copy, 1, 6),
        _op(call, value=SET_CE),
        _op(load, 1, 7, 16), _op(add, 1, 0), _op(store, 7, 1, 16),
        _op(move, 0), _op(0x95),
    ))  # fmt: skip


def _bpf(command: int, attributes: bytes) -> int:
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"bpf(2) is not known on {platform.machine()}")
    # the kernel wants fields it does not know to be zero
    room = ctypes.create_string_buffer(attributes.ljust(128, b"\0"))
    found = int(ctypes.CDLL(None, use_errno=True).syscall(number, command, room, len(attributes)))
    if found < 0:
        raise OSError(ctypes.get_errno(), "bpf(2) is refused")
    return found


def new_state() -> int:
    return _bpf(MAP_CREATE, struct.pack("=IIIII", ARRAY, 4, STATE.size, 1, 0))


def loaded(map_fd: int, bytes_per_s: int, mark_bytes: int) -> int:
    code = program(map_fd, bytes_per_s, mark_bytes)
    instructions, words = ctypes.create_string_buffer(code), ctypes.create_string_buffer(LICENSE)
    return _bpf(PROG_LOAD, struct.pack(
        "=IIQQIIQI", CLASSIFIER, len(code) // _INSTRUCTION.size, ctypes.addressof(instructions),
        ctypes.addressof(words), 0, 0, 0, 0,
    ))  # fmt: skip
