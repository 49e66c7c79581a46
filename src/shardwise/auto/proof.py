"""What a proof compared, and how far apart it is. Plain data, no torch."""

from msgspec import Struct


class Proof(Struct, frozen=True, kw_only=True):
    """What was compared, and how far apart it is at most."""

    plan: str
    ranks: int
    steps: int
    dtype: str
    tolerance: float
    loss_gap: float = 0.0
    gradient_gap: float = 0.0
    worst: str = ""
    """the parameter whose gradient is furthest off"""
    trainable: int = 0
    compared: int = 0
    """parameters whose gradients were compared, over all ranks"""
    checkpoint_equal: bool = False
    messages_equal: bool | None = None
    """None where nothing is foretold"""
    messages: int = 0
    memory_gap: float = 0.0
    """of parameters and optimizer state, as foretold and as held by the rank where they differ most"""
    share: float = 1.0
    """of all parameters that one rank holds, the most"""
    why: str = ""
    """it could not be run, or does not hold"""

    @property
    def equal(self) -> bool:
        return not self.why
