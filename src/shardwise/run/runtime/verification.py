"""How a run compares with its prediction, as plain data: messages of a step and memory by kind."""

from msgspec import Struct

MEMORY_TOLERANCE = 0.02


class MessageCheck(Struct, frozen=True, kw_only=True):
    """Of the recorded ranks of one pipeline stage, in one step."""

    stage: int
    axis: str
    op: str
    phase: str
    predicted_count: float
    measured_count: float
    predicted_bytes: float
    measured_bytes: float

    @property
    def equal(self) -> bool:
        return self.predicted_count == self.measured_count and self.predicted_bytes == self.measured_bytes


class MemoryCheck(Struct, frozen=True, kw_only=True):
    """Bytes of one kind on a rank of a stage: the fullest, but of activations the mean, since routing gives some ranks
    more tokens than others."""

    stage: int
    kind: str
    predicted_bytes: float
    measured_bytes: float

    @property
    def error(self) -> float:
        if not self.predicted_bytes:
            return 0.0 if not self.measured_bytes else float("inf")
        return self.measured_bytes / self.predicted_bytes - 1.0


class Verification(Struct, frozen=True, kw_only=True):
    messages: tuple[MessageCheck, ...]
    memory: tuple[MemoryCheck, ...]
    step_s: float
    loss: float
    control_count: int
    """messages that steer the loop, which nothing predicts"""
    control_bytes: int

    @property
    def messages_equal(self) -> bool:
        return all(row.equal for row in self.messages)

    @property
    def memory_error(self) -> float:
        return max((abs(row.error) for row in self.memory), default=0.0)

    @property
    def holds(self) -> bool:
        return self.messages_equal and self.memory_error <= MEMORY_TOLERANCE
