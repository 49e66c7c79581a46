"""The lines of a record: who writes, one step, something that happened, how it ended. Seconds are this rank's own."""

from msgspec import Struct

FORM = "shardwise records 1"


class RecordHead(Struct, frozen=True, kw_only=True):
    """The first line of a rank, and of every new beginning after a restart."""

    form: str = FORM
    rank: int = 0
    ranks: int = 1
    host: str = ""
    pid: int = 0
    at_s: float = 0.0
    """since 1970, as every `at_s` here"""
    program: str = ""
    device: str = ""
    places: dict[str, int] = {}
    """of this rank on each axis: {"dp": 1, "tp": 0, "pp": 0}"""
    first_step: int = 1
    checkpoints: str = ""
    """folder of them; empty: the run saves none, or not here"""
    predicted_step_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    predicted_peak_bytes: float | None = None
    """all four only where the machine is the one that was planned for"""


class StepRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one rank; what was not measured is None."""

    step: int
    at_s: float
    """when it ended"""
    step_s: float
    """from the end of the step before, with everything between"""
    data_s: float | None = None
    """waiting for the next batch"""
    comm_s: float | None = None
    """standing in collectives and transfers: exposed communication, and waiting for slower ranks"""
    hidden_s: float | None = None
    """of collectives under way while this rank computed"""
    axes_s: dict[str, float] | None = None
    """`comm_s` by axis"""
    save_s: float | None = None
    """stopped for a checkpoint"""
    other_s: float | None = None
    """evaluating, logging"""
    cpu_s: float | None = None
    """of the processor, all threads of the process"""
    thread_s: float | None = None
    """of the processor, the thread that trains: those that send and receive turn while they wait"""
    pressure_s: float | None = None
    """in which some process of the machine, of this run or not, waited for a processor"""
    queued_s: float | None = None
    """in which the thread that trains could have gone on and had no processor"""
    peak_bytes: int | None = None
    """the most held so far"""
    held_bytes: int | None = None
    """now: on the device where there is one, else resident"""
    tokens: int | None = None
    experts: list[list[int]] | None = None
    """tokens that this rank sent to each expert, layer by layer; of large models all layers together"""
    loss: float | None = None

    @property
    def own_s(self) -> float:
        """What this rank did by itself: before others could make it wait."""
        return max(self.step_s - (self.data_s or 0) - (self.comm_s or 0) - (self.save_s or 0) - (self.other_s or 0), 0)


class RunEvent(Struct, frozen=True, kw_only=True):
    """Something beside the steps: a checkpoint written, resumed from or failed; a rank that ended."""

    what: str
    """begun, resumed, saved, save failed, damaged, lost, rank ended"""
    at_s: float
    step: int = 0
    rank: int | None = None
    text: str = ""
    seconds: float | None = None


class RunEnd(Struct, frozen=True, kw_only=True):
    at_s: float
    step: int
    why: str = ""
    """empty: it did all its steps"""


class RecordLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of all but steps, which stand in their line as they are, so that any reader of tables finds them."""

    head: RecordHead | None = None
    event: RunEvent | None = None
    end: RunEnd | None = None
