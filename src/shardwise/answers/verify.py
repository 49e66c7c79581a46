"""`verify`: a run held against its prediction - messages and memory of ranks, or time and memory of one GPU."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import ClassVar

from msgspec.structs import asdict

from shardwise.answers.answer import Answer, Cell, FactList, Part, Table
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.question import PolicyQuestion
from shardwise.report.terminal import policy_text
from shardwise.run.runtime.verification import MemoryCheck, MessageCheck, Verification
from shardwise.spec.policy import Policy
from shardwise.spec.software import named
from shardwise.step.estimate.band import band_for
from shardwise.step.estimate.own_work import own_work
from shardwise.units import time_text

DEVICE_MEMORY_TOLERANCE = 0.03
NOT_MEASURED = "gathered, working, buffers and overhead are not measured: they are not tensors autograd keeps"
KERNELS = "one rank of many: the sum of its own kernels; messages and waiting are left to the model"
WHOLE = "the whole step by the clock"


class CheckedMessages(MessageCheck, frozen=True, kw_only=True):
    equal: bool

    @property
    def cells(self) -> list[Cell]:
        return [
            str(self.stage), self.axis, self.op, self.phase, int(self.measured_count), self.predicted_count,
            _bytes(self.measured_bytes), _bytes(self.predicted_bytes), "=" if self.equal else "!",
        ]  # fmt: skip


class CheckedMemory(MemoryCheck, frozen=True, kw_only=True):
    error: float


class VerifyAnswer(Answer, frozen=True, kw_only=True):
    origin_first: ClassVar[bool] = True

    holds: bool
    messages_equal: bool
    memory_error: float
    """largest by kind"""
    model: str
    policy: Policy
    ranks: int
    faked_ranks: int
    """of these in one process, where nothing is really sent; 0: all ran"""
    messages: Sequence[CheckedMessages]
    memory: Sequence[CheckedMemory]
    measured_step_s: float
    predicted_step_s: float
    predicted_for: str
    control_count: int
    control_bytes: int
    loss: float | None
    """none where nothing was computed"""
    policy_origin: str

    @property
    def exit_code(self) -> int:
        return 0 if self.holds else 1

    def parts(self) -> Iterator[Part]:
        ranks = f"{self.policy.gpus} gloo ranks"
        if self.faked_ranks:
            ranks = f"{self.faked_ranks} of {self.policy.gpus:,} ranks, nothing really sent"
        counts = sum(row.measured_count for row in self.messages)
        sent = sum(row.measured_bytes for row in self.messages)
        yield FactList(f"{self.model}: prediction {'holds' if self.holds else 'does not hold'}", [
            ("policy", f"{policy_text(self.policy)}, schedule {self.policy.schedule}, {ranks}"),
            ("messages", f"{counts:,.0f} of {sent:,.0f} bytes: {'equal' if self.messages_equal else 'DIFFERENT'}"),
            ("memory", f"largest error by kind {self.memory_error:.2%} (2 % allowed)"),
            ("step", f"{time_text(self.measured_step_s)} here on the CPU; {time_text(self.predicted_step_s)} predicted "
                     f"for {self.predicted_for}"),
        ])  # fmt: skip
        yield Table(
            "messages of one step, all recorded ranks of a stage (! where they differ)",
            ["stage", "axis", "operation", "phase", "count", "predicted", "bytes", "predicted", ""],
            [row.cells for row in self.messages], words=4,
        )  # fmt: skip
        yield Table(
            "memory of one rank", ["stage", "kind", "measured bytes", "predicted", "error"],
            [(str(r.stage), r.kind, int(r.measured_bytes), int(r.predicted_bytes), f"{r.error:+.2%}")
             for r in self.memory],
            words=2, bars=("measured bytes", "predicted"),
        )  # fmt: skip

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        steer = f"{self.control_count:,} messages ({self.control_bytes:,} bytes) steer the loop and are not predicted"
        return [*notes, steer]


class DeviceAnswer(Answer, frozen=True, kw_only=True):
    origin_first: ClassVar[bool] = True

    holds: bool
    model: str
    policy: Policy
    rank: int
    ranks: int
    device: str
    measured_s: float
    predicted_s: float
    time_error: float
    band: float
    spread: float
    measured_peak_bytes: int
    predicted_peak_bytes: float
    memory_error: float
    predicted_memory_bytes: Mapping[str, float]
    predicted_kernels_s: Mapping[str, float]
    timed: str
    policy_origin: str

    @property
    def exit_code(self) -> int:
        return 0 if self.holds else 1

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.model}: prediction {'holds' if self.holds else 'does not hold'} on {self.device}", [
            ("policy", f"{policy_text(self.policy)}, rank {self.rank} of {self.ranks:,}"),
            ("step", f"{time_text(self.measured_s)} measured, {time_text(self.predicted_s)} predicted "
                     f"({self.time_error:+.1%}, band {self.band:.0%})"),
            ("memory", f"{self.measured_peak_bytes:,} bytes allocated at most, {self.predicted_peak_bytes:,.0f} "
                       f"predicted ({self.memory_error:+.1%})"),
        ])  # fmt: skip
        rows = [(name, f"{1e3 * seconds:,.2f} ms") for name, seconds in self.predicted_kernels_s.items()]
        yield Table("predicted kernels", ["part", "time"], rows, words=1, bars=("time",))
        kinds = [(kind, f"{int(size):,}") for kind, size in self.predicted_memory_bytes.items()]
        yield Table("predicted memory", ["kind", "bytes"], kinds, words=1, bars=("bytes",))

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [*notes, self.timed]


ANSWERS = (VerifyAnswer, DeviceAnswer, CannotRunAnswer)


def verify_answer(ask: PolicyQuestion, found: Verification, predicted_s: float, *, faked: int) -> VerifyAnswer:
    return VerifyAnswer(
        holds=found.holds, messages_equal=found.messages_equal, memory_error=found.memory_error, model=ask.model.name,
        policy=ask.policy, ranks=ask.policy.gpus, faked_ranks=faked,
        messages=[CheckedMessages(**asdict(row), equal=row.equal) for row in found.messages],
        memory=[CheckedMemory(**asdict(row), error=row.error) for row in found.memory], measured_step_s=found.step_s,
        predicted_step_s=predicted_s, predicted_for=ask.cluster.name, control_count=found.control_count,
        control_bytes=found.control_bytes,
        loss=found.loss if isfinite(found.loss) else None, policy_origin=ask.origin, notes=[*ask.notes, NOT_MEASURED],
    )  # fmt: skip


def device_answer(
    ask: PolicyQuestion, device: str, rank: int, *, fake: bool, step_s: float, kernels_s: float, spread: float,
    peak_bytes: int,
) -> DeviceAnswer:  # fmt: skip
    """`fake`: one rank of a world in which nothing is sent, whose kernels alone count."""
    expected = own_work(ask.case, ask.policy)
    measured = kernels_s if fake else step_s
    predicted = expected.kernels_s + (0.0 if fake else expected.host_s)
    time_error, memory_error = predicted / measured - 1.0, expected.peak_bytes / peak_bytes - 1.0
    # of language models by the same program: what is timed is the work itself
    gpus = ask.cluster.gpus
    band = band_for(named(ask.case.stack), ask.case.curve, gpus=gpus, experts=False, source=None).half_width
    return DeviceAnswer(
        holds=abs(time_error) <= band and abs(memory_error) <= DEVICE_MEMORY_TOLERANCE, model=ask.model.name,
        policy=ask.policy, rank=rank, ranks=ask.policy.gpus, device=device, measured_s=measured,
        predicted_s=predicted, time_error=time_error, band=band, spread=spread, measured_peak_bytes=peak_bytes,
        predicted_peak_bytes=expected.peak_bytes, memory_error=memory_error, predicted_memory_bytes=expected.memory,
        predicted_kernels_s=expected.parts, timed=KERNELS if fake else WHOLE, policy_origin=ask.origin,
        notes=ask.notes,
    )  # fmt: skip


def _bytes(size: float) -> int | str:
    """Every digit as long as there is room for them."""
    return int(size) if size < 1e9 else f"{size / 1e9:,.4f}e9"
