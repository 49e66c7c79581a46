"""`sync list`: strategies of data parallelism, the graphs they average over and the compressors they send with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any

from msgspec import Struct

from shardwise.answers.answer import Answer, Part, shown, table
from shardwise.plugins.compressors import Compressor, compressor, compressors
from shardwise.plugins.sync import Strategy, strategies
from shardwise.plugins.topologies import topologies, topology

LISTED = 64
"""workers for which graphs are listed"""
NUMBERS = 2**20
"""of a vector for which compressors are listed"""


INDEX_SLIPS = (
    "lecture notes on DSGD and local SGD write x_i^(r,k+1) on both sides, slips of an index; here the update reads "
    "x^(k), as the papers named beside each strategy write it"
)


class KnownStrategy(Struct, frozen=True, kw_only=True):
    name: Annotated[str, shown("name")]
    summary: Annotated[str, shown("what it does")]
    source: str
    optimizer: str
    gradient_only: bool
    settings: Mapping[str, str]


class GraphRow(Struct, frozen=True, kw_only=True):
    name: Annotated[str, shown("name")]
    symmetric: Annotated[bool, shown("symmetric", "yes")]
    static: bool
    degree_64: Annotated[float, shown("messages")]
    period_64: Annotated[int, shown("period")]
    gap_64: Annotated[float, shown("gap")]


class CompressorRow(Struct, frozen=True, kw_only=True):
    name: Annotated[str, shown("name")]
    bytes_per_number: Annotated[float, shown("bytes each")]
    delta_1M: Annotated[float | None, shown("delta")]
    omega_1M: Annotated[float | None, shown("omega")]
    settings: Mapping[str, str]


class StrategiesAnswer(Answer, frozen=True, kw_only=True):
    strategies: Sequence[KnownStrategy]
    topologies: Sequence[GraphRow]
    compressors: Sequence[CompressorRow]

    def parts(self) -> Iterator[Part]:
        yield table("strategies", self.strategies, words=2)
        yield table(f"graphs, at {LISTED} workers", self.topologies, words=2, bars=("gap",))
        yield table("compressors, 2^20 numbers", self.compressors, bars=("bytes each",))

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [
            *notes,
            "settings of a strategy: `shardwise sync list --json`",
            "delta: kept share of the energy at least; omega: error of an unbiased one over the energy at most",
        ]


def strategies_answer() -> StrategiesAnswer:
    graphs = [topology(name) for name in topologies()]
    codecs = [compressor(name) for name in compressors()]
    return StrategiesAnswer(
        notes=[INDEX_SLIPS],
        strategies=[
            KnownStrategy(name=k.name, summary=k.summary, source=k.source, optimizer=k.optimizer,
                        gradient_only=k.gradient_only, settings=settings_of(k()))
            for k in strategies().values()
        ],
        topologies=[
            GraphRow(name=g.name, symmetric=g.symmetric, static=g.static, degree_64=g.degree(LISTED),
                     gap_64=g.gap(LISTED), period_64=g.period(LISTED))
            for g in graphs
        ],
        compressors=[
            CompressorRow(name=c.name, settings=settings_of(c), delta_1M=c.delta(NUMBERS), omega_1M=c.omega(NUMBERS),
                          bytes_per_number=c.wire_bytes(NUMBERS) / NUMBERS)
            for c in codecs
        ],
    )  # fmt: skip


def settings_of(made: Strategy | Compressor) -> dict[str, str]:
    return {field.name: _word(getattr(made, field.name)) for field in fields(made)}


def _word(value: Any) -> str:
    return value.name if hasattr(value, "name") else str(value)


def settings_text(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "none"
