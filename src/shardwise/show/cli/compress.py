"""`shardwise calc compress`: a vector before and after a compressor."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.compress import compress_answer
from shardwise.show.cli._array import numbers_of
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered


def compress(
    vector: Annotated[str, Parameter(help="Numbers: 0.6,1.0.")],
    /,
    *,
    with_: Annotated[str, Parameter(name="--with", help="A compressor: random_quantization, qsgd, top_k, sign, ...")],
    set_: Annotated[tuple[str, ...], Parameter(name="--set", help="Its settings: levels=5, ratio=0.1.")] = (),
    draws: Annotated[int, Parameter(help="Times it is done, for randomized ones."), within(1, 100_000)] = 10_000,
    seed: Annotated[int, Parameter(help="Of the draws.")] = 0,
    json: Json = False,
) -> int:
    """What a compressor makes of each number, how often, and what is sent."""
    return answered(compress_answer(numbers_of(vector, "vector"), with_, _settings(set_), draws, seed), json)


def _settings(words: tuple[str, ...]) -> dict[str, float | int]:
    settings: dict[str, float | int] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            settings[name] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            raise ValueError(f"set: {word[:40]!r} is not NAME=NUMBER; write levels=5") from None
    return settings
