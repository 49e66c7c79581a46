"""What a proof compared, and how far apart it is; what the planner says of a split. Plain data, no torch."""

from msgspec import Struct

NARROWED_FROM = 256
"""whole numbers of a user's code from here on are widths, words and tokens, which a narrow copy has smaller; counts of
heads and layers are below"""


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
    """parameters whose gradients were compared at every step, over all ranks"""
    gradients: int = 0
    """gradients compared in all: those parameters, step by step"""
    loss_gaps: tuple[float, ...] = ()
    """of every step"""
    gradient_gaps: tuple[float, ...] = ()
    """of every step, the parameter that is furthest off"""
    buffers: int = 0
    """of a checkpoint, compared after the last step"""
    buffer_gap: float = 0.0
    worst_buffer: str = ""
    checkpoint_equal: bool = False
    messages_equal: bool | None = None
    """None where nothing is foretold"""
    messages: int = 0
    state_gap: float = 0.0
    """of parameters and optimizer state, as foretold and as held by the rank where they differ most"""
    memory_gap: float | None = None
    """of the most that a rank holds at once in a step, activations and gradients with it; None where it is not
    foretold"""
    peak_bytes: int = 0
    """of the fullest rank, as it ran"""
    share: float = 1.0
    """of all parameters that one rank holds, the most"""
    why: str = ""
    """it could not be run, or does not hold"""
    narrowed: int = 1
    """the code's whole numbers from 256 up (widths, words, tokens) were made so many times smaller"""
    not_run: str = ""
    """why there is no proof: neither that it holds nor that it does not"""

    @property
    def equal(self) -> bool:
        return not self.why and not self.not_run


class SplitPrediction(Struct, frozen=True, kw_only=True):
    """What the planner says of a split, where it knows the model."""

    step_s: float | None = None
    peak_bytes: float | None = None
    fits: bool = True
    passed_over: tuple[str, ...] = ()
    """faster ones that cannot be made, and why"""
    unknown: str = ""
    """why the planner does not know the model"""
