"""What a run wrote of its steps, whichever program it was."""

from dataclasses import dataclass, replace

from msgspec import Struct

MOST_STEPS = 1_000_000


class LoggedPhases(Struct, frozen=True, kw_only=True):
    """Of a step of reinforcement learning; what the log does not say is None."""

    rollout_s: float | None = None
    log_probs_s: float | None = None
    """of the policy and of frozen models"""
    update_s: float | None = None
    sync_s: float | None = None
    answer_tokens: float | None = None
    """mean"""
    longest_tokens: float | None = None
    """of the answers"""


class LoggedStep(Struct, frozen=True, kw_only=True):
    """One record of a log; what it does not say is None."""

    step: int | None = None
    line: int = 0
    """where it stands in the file"""
    at_s: float | None = None
    """on the clock of the machine, where the line bears a time"""
    seconds: float | None = None
    """of one step"""
    tokens_per_s_per_gpu: float | None = None
    tokens_per_s: float | None = None
    """of the whole job"""
    samples_per_s: float | None = None
    steps_per_s: float | None = None
    flops_per_s: float | None = None
    """of one GPU, as the program counts them"""
    peak_bytes: float | None = None
    memory_is: str = ""
    """which peak: allocated or reserved"""
    loss: float | None = None
    global_batch: int | None = None
    data_s: float | None = None
    """of it: waiting for the next batch"""
    save_s: float | None = None
    """of it: writing a checkpoint"""
    phases: LoggedPhases | None = None
    """None: no reinforcement learning, or not told"""


class LogMark(Struct, frozen=True, kw_only=True):
    """A line that says what the program did between two steps."""

    line: int
    what: str
    """checkpoint, evaluation, or retries of the allocator"""


class LoggedTimer(Struct, frozen=True, kw_only=True):
    """Time of one part of a step, as a program's own timers have it."""

    name: str
    line: int
    low_s: float
    """of the rank that is quickest through it"""
    high_s: float
    slowest: int | None = None
    """that rank, where the log has all of them"""


@dataclass(frozen=True)
class RunLog:
    name: str
    """of the file"""
    program: str
    """whose form it is"""
    steps: tuple[LoggedStep, ...]
    marks: tuple[LogMark, ...] = ()
    timers: tuple[LoggedTimer, ...] = ()
    mean: LoggedStep | None = None
    """of the whole run, where the program prints one when it ends"""
    caution: str = ""
    """what its figures are not"""
    damaged: str = ""
    """parts of the file that were left out, with their places"""

    def named(self, name: str) -> "RunLog":
        return replace(self, name=name)
