"""`calc compress`: a vector as a compressor leaves it, number by number, over many draws."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Part, shown, table
from shardwise.plugins.compressors import compressor, repeated

MOST_NUMBERS = 1000
FEW_VALUES = 4
"""different values of one number that are listed"""


class DrawnValue(Struct, frozen=True, kw_only=True):
    value: float
    share: float
    """of the draws"""


class CompressedNumber(Struct, frozen=True, kw_only=True):
    value: Annotated[float, shown("number")]
    becomes: Annotated[str, shown("becomes")]
    values: Sequence[DrawnValue]
    """the most frequent first"""
    mean: Annotated[float, shown("mean")]


class CompressAnswer(Answer, frozen=True, kw_only=True):
    compressor: str
    draws: int
    numbers: Sequence[CompressedNumber]
    bytes_plain: int
    bytes_sent: int
    relative_error: float
    """squared error over the square of the vector, the mean over draws"""
    omega: float | None
    delta: float | None

    def parts(self) -> Iterator[Part]:
        yield table(f"{self.compressor}, {self.draws:,} draws", self.numbers)
        bound = None if self.omega is None else f"unbiased, error at most {self.omega:.4g} of the square (omega)"
        kept = None if self.delta is None else f"contractive, keeps at least {self.delta:.4g} of the square (delta)"
        yield FactList("", [
            ("bytes", f"{self.bytes_sent:,} in place of {self.bytes_plain:,}"),
            ("squared error", f"{self.relative_error:.4g} of the square"), ("kind", bound or kept),
        ])  # fmt: skip


ANSWERS = (CompressAnswer,)


def compress_answer(
    vector: Sequence[float], name: str, settings: Mapping[str, float | int], draws: int, seed: int
) -> CompressAnswer:
    if not 1 <= len(vector) <= MOST_NUMBERS:
        raise ValueError(f"vector: {len(vector)} numbers; write 1 to {MOST_NUMBERS:,}, such as 0.6,1.0")
    method, size = compressor(name, **settings), len(vector)
    outs = repeated(method, vector, draws, seed)
    square = sum(each**2 for each in vector) or 1.0
    errors = [sum((mine - own) ** 2 for mine, own in zip(out, vector, strict=True)) for out in outs]
    return CompressAnswer(
        compressor=name, draws=draws, bytes_plain=4 * size, bytes_sent=method.wire_bytes(size),
        numbers=[_number(each, [out[at] for out in outs]) for at, each in enumerate(vector)],
        relative_error=sum(errors) / len(errors) / square, omega=method.omega(size), delta=method.delta(size),
    )  # fmt: skip


def _number(value: float, outs: Sequence[float]) -> CompressedNumber:
    counted = Counter(f"{each:.6g}" for each in outs)
    often = [DrawnValue(value=float(text), share=times / len(outs)) for text, times in counted.most_common(FEW_VALUES)]
    words = ", ".join(f"{each.value:g} ({each.share:.0%})" for each in often)
    more = f", {len(counted) - FEW_VALUES} more" if len(counted) > FEW_VALUES else ""
    return CompressedNumber(value=value, becomes=words + more, values=often, mean=sum(outs) / len(outs))
