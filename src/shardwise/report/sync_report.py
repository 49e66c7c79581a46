"""What a strategy of data parallelism does to one policy, held against the mean gradient on the same policy."""

from msgspec import Struct


class Drawback(Struct, frozen=True, kw_only=True):
    """Why sending less does not pay."""

    kind: str
    why: str
    """the figures that decide it"""


class ByNode(Struct, frozen=True, kw_only=True):
    """The same strategy between nodes, with the mean gradient inside each: a worker is then a node."""

    strategy: str
    node: int
    """workers that share a node here"""
    step_s: float
    refused: str = ""
    """why it cannot run"""


class SyncReport(Struct, frozen=True, kw_only=True):
    strategy: str
    """its name and stated settings"""
    settings: str
    summary: str
    source: str
    workers: int
    sent_bytes: float
    """by a rank of the fullest stage, per step, averaged over the strategy's period"""
    dense_sent_bytes: float
    """by a ring all-reduce of the same numbers in fp32"""
    messages_s: float
    """per step, before any overlap"""
    hidden_s: float
    hides_under: str
    waits: bool
    """its workers wait for each other"""
    slowest_worker: float
    """its time for a step over that of a worker at full speed"""
    compress_s: float
    """compressing, decompressing and keeping state, per step"""
    compress_source: str
    state_bytes: float
    """held by a GPU of the fullest stage"""
    dense_step_s: float
    """the same policy with the mean gradient, on the same workers: all wait for the slowest"""
    extra_steps: float | None
    """more steps to the same loss than with the mean gradient, as a share; None: unknown"""
    extra_at_least: bool
    extra_source: str
    published: str
    """what others reported of it at scale"""
    to_loss_s: float | None
    """the step stretched by them: compare this, not the step alone"""
    loses: tuple[Drawback, ...]
    """why it does not pay here; empty: it does"""
    by_node: ByNode | None = None
    """where several workers share a node"""

    @property
    def extra_text(self) -> str:
        if self.extra_steps is None:
            return "unknown"
        return f"{'more than ' if self.extra_at_least else '+'}{self.extra_steps:.0%}"
