"""Text with a unit <-> plain SI numbers. The only module that knows units.

Inside shardwise every number is SI: seconds, bytes, FLOP, bytes per second. Text is parsed here, at the
edge (flags and files); a bare number where a unit is needed is refused, and the message says what to write.
"""

import math
import re
from typing import NamedTuple

_DECIMAL = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_TIME = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
    "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0, "month": 30 * 86400.0,
}  # fmt: skip
_NUMBER = r"([+-]?(?=\.?\d)(?:\d[\d_,]*)?(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_TEXT = re.compile(rf"^\s*{_NUMBER}\s*([A-Za-zµ/ ]*?)\s*$")


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _TEXT.match(text)
    if not match or not match[1]:
        raise ValueError(f"{what}: cannot read {text!r}; write for example {example!r}")
    number = float(match[1].replace("_", "").replace(",", ""))
    if not math.isfinite(number):
        raise ValueError(f"{what}: {text!r} is not a finite number")
    return number, match[2]


def _check(value: float, text: str, what: str) -> float:
    if value < 0:
        raise ValueError(f"{what}: {text!r} is negative; it must be zero or more")
    if value > 1e30:
        raise ValueError(f"{what}: {text!r} is absurdly large")
    return value


def _no_unit(what: str, text: str, cure: str) -> ValueError:
    return ValueError(f"{what}: {text!r} has no unit; {cure}")


def bytes_of(text: str, what: str = "size") -> float:
    """'80 GiB', '141 GB', '512 B' -> bytes. Bits are refused: sizes are bytes."""
    number, unit = _split(text, what, "80 GiB")
    if number == 0:
        return 0.0
    if not unit:
        raise _no_unit(what, text, f"write '{text.strip()} GiB' or '{text.strip()} GB'")
    if not unit.endswith("B"):
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; sizes are in B, kB, MB, GB, GiB, TiB")
    prefix = unit[:-1].strip().lower()
    scale = _BINARY.get(prefix, _DECIMAL.get(prefix))
    if scale is None:
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; sizes are in B, kB, MB, GB, GiB, TiB")
    return _check(number * scale, text, what)


def rate_of(text: str, what: str = "bandwidth") -> float:
    """'400 Gbps', '400 Gb/s', '50 GB/s', '3.35 TB/s' -> bytes per second."""
    number, unit = _split(text, what, "400 Gbps")
    if number == 0:
        return 0.0
    if not unit:
        raise _no_unit(what, text, f"write '{text.strip()} Gbps' (bits) or '{text.strip()} GB/s' (bytes)")
    body = re.sub(r"(/s|ps)$", "", unit)
    if body == unit or not body or body[-1] not in "bB":
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; bandwidths are in Gbps, GB/s, TB/s")
    prefix = body[:-1].strip().lower()
    scale = _BINARY.get(prefix, _DECIMAL.get(prefix))
    if scale is None:
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; bandwidths are in Gbps, GB/s, TB/s")
    return _check(number * scale / (8.0 if body[-1] == "b" else 1.0), text, what)


def seconds_of(text: str, what: str = "time") -> float:
    """'5 us', '30 d', '2.5 h' -> seconds."""
    number, unit = _split(text, what, "30 d")
    if number == 0:
        return 0.0
    if not unit:
        long = what in ("within", "budget")
        raise _no_unit(what, text, f"write '{text.strip()} {'d' if long else 's'}' or '{text.strip()} "
                                   f"{'h' if long else 'us'}'")  # fmt: skip
    scale = _TIME.get(unit) or _TIME.get(unit.removesuffix("s"))
    if scale is None:
        raise ValueError(
            f"{what}: unknown unit {unit!r} in {text!r}; times are in ns, us, ms, s, min, hours, days, weeks, months"
        )
    return _check(number * scale, text, what)


def flops_of(text: str, what: str = "rate") -> float:
    """'989 TFLOP/s' -> FLOP per second (or '6.2 EFLOP' -> FLOP)."""
    number, unit = _split(text, what, "989 TFLOP/s")
    if not unit:
        raise _no_unit(what, text, f"write '{text.strip()} TFLOP/s'")
    match = re.match(r"^([kKMGTPE]?)FLOPs?(/s)?$", unit)
    if not match:
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; write '{number:g} TFLOP/s'")
    return _check(number * _DECIMAL[match[1].lower()], text, what)


def count_of(text: str, what: str = "count") -> int:
    """'4M tokens', '1T', '8k', '4096' -> a whole number (k, M, B = billion, T are decimal)."""
    number, unit = _split(text, what, "4M tokens")
    word = re.sub(r"\s*(tokens?|sequences?|params?|parameters?)$", "", unit, flags=re.IGNORECASE).strip()
    scale = {**_DECIMAL, "b": 1e9}.get(word.lower())
    if scale is None:
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; write a whole number, '8k', '4M' or '1T'")
    value = _check(number * scale, text, what)
    if abs(value - round(value)) > 1e-6:
        raise ValueError(f"{what}: {text!r} is not a whole number")
    return round(value)


_OF_A_SEQUENCE = re.compile(r"^\s*([\d.,_]+)\s*([kKmM])(?:i|I)?\s*(?:tokens?)?\s*$")


def sequence_tokens(text: str, what: str = "seq") -> int:
    """'32k', '128K', '1M' -> tokens of a sequence, where k is 1,024; '4096' and '8,192 tokens' stay as they are."""
    match = _OF_A_SEQUENCE.match(text)
    if not match:
        return count_of(text, what)
    number, _ = _split(match[1], what, "32k")
    value = number * _BINARY[f"{match[2].lower()}i"]
    if value != round(value):
        raise ValueError(f"{what}: {text!r} is not a whole number")
    return round(_check(value, text, what))


def in_full(text: str, tokens: int, what: str = "seq", unit: str = " tokens") -> list[str]:
    """A note where a sequence or a width was written with k or M."""
    return [f"--{what} {text.strip()}: {tokens:,}{unit} (1,024 to a k)"] if _OF_A_SEQUENCE.match(text) else []


def watts_of(text: str, what: str = "power") -> float:
    """'700 W', '10.2 kW' -> watts."""
    number, unit = _split(text, what, "700 W")
    if not unit:
        raise _no_unit(what, text, f"write '{text.strip()} W'")
    scale = _DECIMAL.get(unit[:-1].strip().lower()) if unit.endswith("W") else None
    if scale is None:
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; powers are in W, kW, MW")
    return _check(number * scale, text, what)


def hertz_of(text: str, what: str = "clock") -> float:
    """'1.98 GHz', '1410 MHz' -> hertz."""
    number, unit = _split(text, what, "1.98 GHz")
    if not unit:
        raise _no_unit(what, text, f"write '{text.strip()} GHz'")
    scale = _DECIMAL.get(unit[:-2].strip().lower()) if unit.endswith("Hz") else None
    if scale is None:
        raise ValueError(f"{what}: unknown unit {unit!r} in {text!r}; clocks are in MHz, GHz")
    return _check(number * scale, text, what)


def gib(value: float) -> str:
    return f"{value / 2**30:.1f}"


class SizeUnit(NamedTuple):
    """A unit for a column of sizes."""

    name: str
    bytes: float

    def text(self, value: float) -> str:
        return f"{value / self.bytes:.1f}"


def size_unit(largest: float) -> SizeUnit:
    """GiB; where that shows even the largest of some sizes as less than 1, MiB or KiB."""
    units = (SizeUnit("GiB", 2.0**30), SizeUnit("MiB", 2.0**20), SizeUnit("KiB", 2.0**10))
    return next((unit for unit in units if largest >= unit.bytes), units[-1])


def memory_text(value: float) -> str:
    unit = size_unit(value)
    return f"{unit.text(value)} {unit.name}"


def decimal_text(size: float) -> str:
    """Bytes in powers of a thousand, as links are counted: '33.5 MB'."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.3g} B"


def share_text(share: float) -> str:
    """'47.3%'; what would be shown as 0 with more digits."""
    return f"{share:.1%}" if share >= 5e-4 or not share else f"{100 * share:.1g}%"


def time_text(seconds: float) -> str:
    """A time for people: '12.3 us', '850 ms', '3.21 s', '4.1 h', '23 d'."""
    for unit, scale, limit in (
        ("us", 1e-6, 1e-3),
        ("ms", 1e-3, 1.0),
        ("s", 1.0, 600.0),
        ("min", 60.0, 7200.0),
        ("h", 3600.0, 172800.0),
    ):
        if seconds < limit:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 86400:.1f} d"
