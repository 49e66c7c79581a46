"""A measured run with the run as it was meant: the question of `why`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardwise.answers.posttrain import PosttrainRow
from shardwise.cost.calibrate.profile import Profile
from shardwise.measured.diagnose.clocks import ClockFinding
from shardwise.measured.diagnose.logged import RunLog
from shardwise.measured.diagnose.measured_step import MeasuredStep
from shardwise.measured.diagnose.pace import Pace
from shardwise.measured.diagnose.products import ProductBesideCurve
from shardwise.measured.diagnose.recorder import Stuck
from shardwise.measured.diagnose.why_slow import Expected, WhySlow
from shardwise.programs.formats import Format, Launch
from shardwise.programs.formats._rollout_question import StatedUpdate

WholeStep = Callable[[str], PosttrainRow | None]
"""the step with answers of these lengths; None: it has something that is not priced"""


UpdateOf = Callable[[str, Profile | None], StatedUpdate]
"""the update of it alone, with answers of these lengths"""


@dataclass(frozen=True)
class RunAsMeant:
    """The run as it was meant."""

    launch: Launch
    form: Format | None
    """whose configuration was given"""
    expected: Expected
    notes: Sequence[str]
    """grow where the whole step is asked for"""
    whole: WholeStep | None = None
    """of reinforcement learning, where files of it were given"""
    update: UpdateOf | None = None


@dataclass(frozen=True)
class TraceMeasured:
    measured: MeasuredStep
    found: WhySlow
    products: Sequence[ProductBesideCurve] = ()
    """of one rank, where shapes were recorded and the GPU is known"""
    simulated: bool = False
    """a step of shardwise's own: its GPUs have no clocks to measure"""


@dataclass(frozen=True)
class LogMeasured:
    log: RunLog
    pace: Pace
    found: WhySlow
    whole: PosttrainRow | None = None
    """of reinforcement learning, as predicted"""


@dataclass(frozen=True)
class WhyQuestion:
    ran: RunAsMeant | None
    rent_usd: tuple[float, float] | None
    """of a day"""
    trace: TraceMeasured | None
    logs: Sequence[LogMeasured]
    stuck: Sequence[Stuck]
    dumps: int
    """flight recorders that were read"""
    left_out: Sequence[str]
    clocks: ClockFinding | None = None
