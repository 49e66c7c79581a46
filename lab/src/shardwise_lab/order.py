"""What is asked of the processes in the namespaces, and what they answer, as JSON."""

from msgspec import Struct

from shardwise_lab.cases import LabCase
from shardwise_lab.jobs import LabJob

LAYERS = 4
"""of the network that is trained"""
TRAININGS = ("ddp", "fsdp")
"""torch's own, on a plain network; everything else is a job of the runtime"""


class LabWorld(Struct, frozen=True, kw_only=True):
    """Ranks that run cases, or the steps of a training, one after another."""

    order: tuple[int, ...]
    """the GPU of each rank"""
    cases: tuple[LabCase, ...] = ()
    training: str = ""
    """ddp or fsdp, instead of cases"""
    job: LabJob | None = None
    """a training of the runtime, instead of either"""
    steps: int = 5
    width: int = 384

    @property
    def sequences(self) -> tuple[tuple[str, tuple[LabCase, ...]], ...]:
        """(name, collectives that follow one another) of what is timed as one thing."""
        if self.job is not None:
            return ()
        if not self.training:
            return tuple((case.op, (case,)) for case in self.cases)
        return ((f"{self.training} step", step_cases(self.training, self.width)),)

    def turns(self) -> int:
        return (
            self.steps + 1
            if self.training or self.job is not None
            else max((case.times for case in self.cases), default=0) + 1
        )


def step_cases(training: str, width: int) -> tuple[LabCase, ...]:
    """The collectives of one step: all gradients at once, or layer by layer weights (twice) and gradients."""
    layer = 4 * width * width
    if training == "ddp":
        return (LabCase(op="all_reduce", bytes=LAYERS * layer),)
    gathered, summed = LabCase(op="all_gather", bytes=layer), LabCase(op="reduce_scatter", bytes=layer)
    return (*[gathered] * LAYERS, *[gathered, summed] * LAYERS)


class LabOrder(Struct, frozen=True, kw_only=True):
    spaces: tuple[str, ...]
    """namespace of each GPU"""
    addresses: tuple[str, ...]
    interface: str
    port: int
    worlds: tuple[LabWorld, ...]
    realtime: bool = False


class RunOrder(Struct, frozen=True, kw_only=True):
    """A whole training as `shardwise run` makes it, with records, checkpoints and restarts."""

    spaces: tuple[str, ...]
    """namespace of each rank"""
    address: str
    """of the first rank"""
    interface: str
    job: LabJob
    folder: str
    steps: int
    every: int
    """steps between checkpoints"""
    timeout_s: float
    max_restarts: int


class Span(Struct, frozen=True, kw_only=True, tag="span"):
    """One rank in one repetition of one case, on the clock that all share."""

    world: int
    case: int
    turn: int
    rank: int
    start_s: float
    end_s: float


class JobMessage(Struct, frozen=True, array_like=True):
    """One message or collective of one rank. All that take part write the same key, in the same order."""

    axis: str
    key: str
    start_s: float
    end_s: float


class JobStep(Struct, frozen=True, kw_only=True, tag="step"):
    """One step of one rank of a training of the runtime; the first, which makes connections, is not told."""

    world: int
    turn: int
    rank: int
    start_s: float
    end_s: float
    loss: float
    messages: tuple[JobMessage, ...]


Answer = Span | JobStep
