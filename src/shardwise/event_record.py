"""Records of TensorBoard's event files: length (8 bytes), its masked CRC-32C, data, its checksum, all little endian
(tensorflow.org/tutorials/load_data/tfrecord)."""

import struct

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, bits reversed"""


def _table() -> list[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return found


_TABLE = _table()


def crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register = _TABLE[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """A checksum of data that may hold checksums: turned and shifted, as TFRecord asks for."""
    found = crc32c(data)
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))
