"""Whether a reader's own number answers a card: by the command, by a textbook formula, or by the text, in any unit."""

import re
from collections.abc import Iterator, Sequence
from math import isfinite

from msgspec import Struct

from shardwise.answers.answers import CardFormula, CardVerdict
from shardwise.show.cli._cards import AnswerCard

CLOSE = 0.02
"""relative difference from a right answer that still counts as right: what rounding to two digits leaves"""
_NUMBER = r"[+-]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_TYPED = re.compile(rf"^\s*({_NUMBER})\s*(?:[/:]\s*({_NUMBER})\s*)?(.*?)\s*$", re.IGNORECASE)
_PREFIX = {
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
_WORDS = {
    "": ("", 1.0), "%": ("", 0.01), "percent": ("", 0.01), "x": ("", 1.0), "times": ("", 1.0), "ways": ("", 1.0),
    "tokens": ("", 1.0), "billion": ("", 1e9), "million": ("", 1e6), "B": ("byte", 1.0), "byte": ("byte", 1.0),
    "bytes": ("byte", 1.0), "min": ("s", 60.0), "h": ("s", 3600.0), "hours": ("s", 3600.0), "d": ("s", 86400.0),
    "days": ("s", 86400.0), "weeks": ("s", 604800.0), "s": ("s", 1.0), "seconds": ("s", 1.0),
    "FLOP/byte": ("FLOP/byte", 1.0), "k": ("", 1e3), "M": ("", 1e6), "T": ("", 1e12), "G": ("", 1e9),
}  # fmt: skip
_SCALED = re.compile(r"^(Ki|Mi|Gi|Ti|[kMGTPmuµμ]?)(B|b|bit|s|B/s|b/s|bit/s|bps|FLOP/s|FLOPs|FLOP|W|Wh|Hz|tokens)$")
_OF = {
    "B": ("byte", 1.0), "b": ("byte", 0.125), "bit": ("byte", 0.125), "s": ("s", 1.0), "B/s": ("byte/s", 1.0),
    "b/s": ("byte/s", 0.125), "bit/s": ("byte/s", 0.125),
    "bps": ("byte/s", 0.125), "FLOP/s": ("FLOP/s", 1.0), "FLOPs": ("FLOP/s", 1.0),
    "FLOP": ("FLOP", 1.0), "W": ("W", 1.0), "Wh": ("Wh", 1.0), "Hz": ("Hz", 1.0), "tokens": ("", 1.0),
}  # fmt: skip
_SLIPS = (
    (2.0, "a factor of two", "두 배"), (4.0, "a factor of four", "네 배"),
    (100.0, "percent for a share", "퍼센트와 비율"),
    (1e3, "a thousand", "천 배"), (1e6, "a million", "백만 배"),
)  # fmt: skip
_OF_BYTES = (
    (8.0, "bits for bytes", "비트와 바이트"), (2.0**30 / 1e9, "GiB for GB", "GiB와 GB"),
    (2.0**20 / 1e6, "MiB for MB", "MiB와 MB"),
)  # fmt: skip


class _Candidate(Struct, frozen=True):
    value: float
    by: str


def verdict_of(card: AnswerCard, ours: float, formulas: Sequence[CardFormula], typed: str) -> CardVerdict:
    """Right by whichever accepted answer is nearest, or how far off it is from the nearest."""
    values = list(_values(card.unit, typed))
    if not values:
        after = f" {card.unit}" if card.unit else ""
        return CardVerdict(right=False, by=None, off=None, said=f"write a number, such as 12.5{after} or 3/4",
                           said_ko=f"12.5{after}나 3/4처럼 숫자를 쓰세요")  # fmt: skip
    accepted = [_Candidate(ours, "ours"), *(_Candidate(each.value, "formula") for each in formulas)]
    if card.expected is not None:
        accepted.append(_Candidate(card.expected, "expected"))
    if card.says is not None and not card.erratum:
        accepted.append(_Candidate(card.says, "text"))
    pairs = [(abs(mine - each.value) / (abs(each.value) or 1.0), mine, each) for mine in values for each in accepted]
    off, mine, nearest = min(pairs, key=lambda pair: pair[0])
    if off <= CLOSE:
        return CardVerdict(right=True, by=nearest.by, off=off, said="right", said_ko="맞았습니다")
    if (
        card.erratum
        and card.says is not None
        and any(abs(each - card.says) <= CLOSE * abs(card.says) for each in values)
    ):
        return CardVerdict(right=False, by=None, off=off, said="that is the number of the text, which is wrong here",
                           said_ko="원문의 값이지만 여기서는 원문이 틀렸습니다")  # fmt: skip
    unit = _unit(card.unit)
    said, korean = _how_far(mine, nearest.value, of_bytes=unit is not None and unit[0].startswith("byte"))
    return CardVerdict(right=False, by=None, off=off, said=said, said_ko=korean)


def _values(unit: str, typed: str) -> Iterator[float]:
    """The number in the card's unit; of a share that is written bare, also as a percentage."""
    match = _TYPED.match(typed)
    if not match:
        return
    number = float(match[1].replace(",", "").replace("_", ""))
    if match[2]:
        below = float(match[2].replace(",", "").replace("_", ""))
        if not below:
            return
        number /= below
    if not isfinite(number):
        return
    written, wanted = _unit(match[3]), _unit(unit)
    if not match[3] or match[3].lower() == unit.lower():
        yield number
        if unit.startswith("%") and (match[2] or number < 1):
            yield 100 * number
    elif written and wanted and written[0] == wanted[0]:
        yield number * written[1] / wanted[1]


def _unit(text: str) -> tuple[str, float] | None:
    """Dimension and scale of a unit; words after it ('% of the step', 'M tokens') belong to its name."""
    first, _, rest = text.strip().partition(" ")
    if rest in ("tokens", "bytes") and first in _PREFIX:
        return ("byte" if rest == "bytes" else "", _PREFIX[first])
    if first in _WORDS:
        return _WORDS[first]
    scaled = _SCALED.match(first)
    if not scaled:
        return None
    dimension, scale = _OF[scaled[2]]
    return dimension, scale * _PREFIX[scaled[1]]


def _how_far(mine: float, right: float, *, of_bytes: bool) -> tuple[str, str]:
    if not right or not mine or (mine < 0) != (right < 0):
        return f"it should be {right:,.4g}", f"{right:,.4g}이어야 합니다"
    times = mine / right
    large = times > 1
    ratio = times if large else 1 / times
    word, korean = ("large", "큽니다") if large else ("small", "작습니다")
    for factor, slip, slip_ko in (*(_OF_BYTES if of_bytes else ()), *_SLIPS):
        if abs(ratio / factor - 1) < 0.01:
            return f"{ratio:.3g} times too {word}: {slip}?", f"{ratio:.3g}배 {korean} ({slip_ko}?)"
    if ratio < 2:
        return f"{abs(times - 1):.0%} too {word}", f"{abs(times - 1):.0%} {korean}"
    return f"{ratio:.3g} times too {word}", f"{ratio:.3g}배 {korean}"
