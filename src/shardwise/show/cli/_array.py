"""An array as a user writes it: 'bf16[1024,16384]', or its bytes: '33.5 MB'."""

import re
from math import prod

from shardwise.registry import closest
from shardwise.units import bytes_of, count_of

BYTES = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "int32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5,
}  # fmt: skip
_ARRAY = re.compile(r"^\s*([A-Za-z]\w*)\s*\[([^\]]*)\]\s*$")


def array_bytes(text: str) -> float:
    match = _ARRAY.match(text)
    if match is None:
        size = bytes_of(text, "array")
        if not size > 0:
            raise ValueError(f"array: {text!r} is out of range; write more than 0 bytes, or bf16[1024,16384]")
        return size
    dtype = match[1].lower()
    if dtype not in BYTES:
        raise ValueError(f"array: {match[1]!r} is not a dtype; {closest(dtype, list(BYTES))}")
    sides = [count_of(side, "array") for side in match[2].split(",")]
    if min(sides) < 1:
        raise ValueError(f"array: {text!r} has a side below 1; write for example bf16[1024,16384]")
    return BYTES[dtype] * prod(sides)


def numbers_of(text: str, what: str) -> list[float]:
    """'0.6, 1.0' -> numbers."""
    try:
        return [float(each) for each in text.replace(",", " ").split()]
    except ValueError:
        raise ValueError(f"{what}: {text[:60]!r} is not a list of numbers; write for example 0.6,1.0") from None
