"""Bytes as protocol buffers lay them on the wire: varints, and fields that say how long they are.

Only what an execution trace needs. Fields of a message may stand in any order, and parts of one message may be written
one after another.
"""

VARINT, LENGTH = 0, 2


def varint(value: int) -> bytes:
    """A whole number that is not negative, seven bits at a time."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def whole_field(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    """A text, a message, or packed numbers."""
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode())


def packed_field(number: int, values: list[int]) -> bytes:
    """Repeated whole numbers; nothing where there are none."""
    return bytes_field(number, b"".join(map(varint, values))) if values else b""


def delimited(message: bytes) -> bytes:
    """A message of a stream of them: its length first."""
    return varint(len(message)) + message
