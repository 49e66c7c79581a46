"""`trace`: messages, memory by kind and FLOPs of a user's own training step, and with a cluster its seconds."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct
from msgspec.structs import asdict

from shardwise.answers.answer import Cell, FactList, Part, Rendered, Table, shown, table
from shardwise.report.tier import TRACED
from shardwise.run.trace.result import StepTime, TraceResult
from shardwise.units import time_text

GIB = 2.0**30
OPERATORS_SHOWN = 8


class ShownOperator(Struct, frozen=True, kw_only=True):
    name: Annotated[str, shown("operator")]
    count: Annotated[int, shown("count")]
    flops: Annotated[float, shown("GFLOP", "GFLOP")]
    bytes: Annotated[int, shown("MiB", lambda size: size / 2**20)]
    seconds: Annotated[float | None, shown("ms", "ms")]


class TraceAnswer(TraceResult, Rendered, frozen=True, kw_only=True):
    script: str
    cluster: str | None
    tier: str
    notes: Sequence[str]

    @property
    def exit_code(self) -> int:
        return 1 if self.fit is not None and not self.fit.fits else 0

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.script} on {self.cluster or 'no cluster: nothing is priced'}", self._facts())
        yield Table(
            "messages of one step", ["group", "ranks", "operation", "phase", "dtype", "count", "MiB", "ms"],
            [(r.group, f"{r.ranks} / {r.stride}", r.op, r.phase, r.dtype, r.count, r.bytes / 2**20,
              None if r.seconds is None else r.seconds * 1e3) for r in self.messages],
            words=5, bars=("MiB",),
        )  # fmt: skip
        yield Table(
            "memory, GiB", ["kind", "at the peak", "own peak"],
            [(kind, f"{size / GIB:,.3f}", f"{self.kind_peaks[kind] / GIB:,.3f}")
             for kind, size in self.memory_bytes.items() if self.kind_peaks[kind]],
            bars=("at the peak", "own peak"),
        )  # fmt: skip
        if self.time is not None:
            step_s = self.time.step_s
            rows = [(part, s * 1e3, f"{s / step_s:.1%}") for part, s in self.time.parts.items() if s]
            yield Table("step, ms", ["part", "ms", "share"], rows, bars=("ms",))
        title, bars = ("operators that take longest", ("ms",)) if self.time else ("operators", ("GFLOP",))
        yield table(title, self.operators[:OPERATORS_SHOWN], row=ShownOperator, bars=bars)

    def _facts(self) -> list[tuple[str, Cell]]:
        flops = ", ".join(f"{phase} {flops / 1e12:,.4g}T" for phase, flops in self.flops.items() if flops)
        of = "" if self.cluster else " of tensors"
        facts: list[tuple[str, Cell]] = [
            ("traced", f"rank {self.rank} of {self.world:,}, second step"), ("FLOPs", flops or "0"),
            ("peak", f"{self.peak_bytes / GIB:,.3f} GiB{of}, in the {self.peak_phase}"),
        ]  # fmt: skip
        time, fit = self.time, self.fit
        if time is None or fit is None:
            return facts
        return [
            *facts,
            ("step", f"{time_text(time.step_s)} ({time_text(time.low_s)} .. {time_text(time.high_s)}){_rate(time)}"),
            ("MFU", f"{time.mfu_causal_half:.1%} of the {time.peak_dtype} peak (with the masked half of attention "
                    f"{time.mfu_full_square:.1%})"),
            ("exposed", f"{time_text(time.parts['messages'])} of {time_text(time.message_s)} of messages"),
            ("fits", f"{'yes' if fit.fits else 'NO'}: {fit.needed_bytes / GIB:,.1f} of {fit.limit_bytes / GIB:,.1f} "
                     "GiB"),
        ]  # fmt: skip


ANSWERS = (TraceAnswer,)


def trace_answer(script: str, cluster: str | None, found: TraceResult, notes: Sequence[str]) -> TraceAnswer:
    return TraceAnswer(**asdict(found), script=script, cluster=cluster, tier=TRACED, notes=notes)


def _rate(time: StepTime) -> str:
    """Of the rank's own batch: nobody says which ranks share one."""
    if time.batch_tokens_per_s:
        return f"; {time.batch_tokens_per_s:,.0f} tokens/s of its batch"
    return f"; {time.batch_samples_per_s:,.1f} samples/s of its batch" if time.batch_samples_per_s else ""
