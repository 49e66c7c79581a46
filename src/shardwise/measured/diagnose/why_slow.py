"""From what is possible to what was measured: a step's causes beside its prediction, and the fall between the two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace

from msgspec import Struct
from msgspec.structs import replace

from shardwise.measured.diagnose.causes import CAUSES, Cause, ranked
from shardwise.measured.diagnose.clocks import ClockFinding, clocks_apart, level_apart
from shardwise.measured.diagnose.measured_step import MeasuredStep
from shardwise.measured.diagnose.pace import Pace

WORK = ("compute",)
"""parts that are no loss by themselves: only what lies beyond the prediction is"""
PREDICTED = {
    "forward": "compute", "backward": "compute", "recompute": "compute", "optimizer": "compute", "tp_comm": "tp_comm",
    "cp_comm": "cp_comm", "ep_comm": "ep_comm", "fsdp_comm": "fsdp_comm", "grad_comm": "grad_comm",
    "param_comm": "param_comm", "pp_comm": "bubble", "bubble": "bubble", "host": "host", "other": "host",
    "offload": "copy",
}  # fmt: skip
"""part of an estimate -> cause under which a trace shows it"""
SHOWN = 1e-3
"""of a step: smaller steps of the fall are one together"""


@dataclass(frozen=True)
class Expected:
    """What an estimate says of the run."""

    step_s: float
    low_s: float
    high_s: float
    """most measured steps lie between the two"""
    ideal_s: float
    """the model's own FLOPs at the GPU's peak"""
    parts: dict[str, float]
    """cause -> seconds; they add up to step_s"""


class FallStep(Struct, frozen=True, kw_only=True):
    """One step down from what is possible."""

    what: str
    seconds: float
    total_s: float


@dataclass(frozen=True)
class WhySlow:
    step_s: float
    causes: tuple[Cause, ...]
    """the largest loss first"""
    fall: tuple[FallStep, ...]
    """from the peak to the step; the last total is step_s"""
    expected: Expected | None
    in_seconds: bool = True
    """else in a unit of its own: shares are right, seconds are none"""

    @property
    def slower(self) -> float | None:
        return None if self.expected is None else self.step_s / self.expected.step_s - 1

    @property
    def within_band(self) -> bool | None:
        expected = self.expected
        return None if expected is None else expected.low_s <= self.step_s <= expected.high_s

    def lost_s(self, cause: Cause) -> float:
        """What a cure could win: with a prediction what lies beyond it, else all that is no work."""
        if self.expected is not None:
            return cause.excess_s
        return 0.0 if cause.code in WORK else cause.seconds


def expected_parts(time_s: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part, seconds in time_s.items():
        code = PREDICTED[part]
        found[code] = found.get(code, 0.0) + seconds
    return found


def why_step(measured: MeasuredStep, expected: Expected | None, clocks: ClockFinding | None = None) -> WhySlow:
    """Of a trace: every part beside what was predicted of it."""
    seconds_by_part = measured.causes
    if clocks is not None:
        kernels_s = None if expected is None else expected.parts.get("compute", 0.0)
        seconds_by_part = clocks_apart(measured.causes, clocks, measured.arithmetic, kernels_s)
    if expected is None:
        return _judged(measured.step_s, seconds_by_part, None)
    seen = {cause.code for cause in seconds_by_part}
    causes = [replace(cause, predicted_s=expected.parts.get(cause.code, 0.0)) for cause in seconds_by_part]
    causes += [Cause(code=code, seconds=0.0, predicted_s=seconds, evidence="not seen in the trace")
               for code, seconds in expected.parts.items() if code not in seen and seconds > 0]  # fmt: skip
    return _judged(measured.step_s, causes, expected)


def why_log(pace: Pace, expected: Expected | None, clocks: ClockFinding | None = None) -> WhySlow:
    """Of a log: the level beside the prediction, and what the run loses over time above it."""
    told = "" if expected is None else (
        "inside the band of the prediction" if expected.low_s <= pace.level_s <= expected.high_s
        else "outside of the band of the prediction"
    )  # fmt: skip
    level = Cause(code="level", seconds=pace.level_s, predicted_s=None if expected is None else expected.step_s,
                  evidence=told)  # fmt: skip
    rest = [replace(cause, predicted_s=0.0) if expected is not None else cause for cause in pace.causes]
    again = sum(cause.seconds for cause in rest if cause.code == "restart")
    whole = [level]
    if clocks is not None and expected is not None:
        whole = level_apart(level, clocks, expected.parts.get("compute", 0.0))
    found = _judged(pace.mean_s + again, [*whole, *rest] if expected is not None else rest, expected)
    return dataclass_replace(found, in_seconds=pace.exact)


def _judged(step_s: float, causes: Sequence[Cause], expected: Expected | None) -> WhySlow:
    found = WhySlow(step_s, ranked([cause for cause in causes if cause.seconds or cause.predicted_s]), (), expected)
    order = sorted(found.causes, key=lambda cause: -found.lost_s(cause))
    return WhySlow(step_s, tuple(order), tuple(_fall(found)), expected)


def _fall(found: WhySlow) -> list[FallStep]:
    expected = found.expected
    if expected is None:
        work = [cause for cause in found.causes if cause.code in WORK]
        lost = [(cause.what, cause.seconds) for cause in found.causes if cause.code not in WORK]
        base = [(cause.what, cause.seconds) for cause in work] or [
            ("the fastest level", found.step_s - sum(seconds for _, seconds in lost))
        ]
        return _summed([*base, *lost], found.step_s)
    kernels = expected.parts.get("compute", 0.0) - expected.ideal_s
    steps = [
        ("the model's work at the GPU's peak", expected.ideal_s),
        ("kernels below the peak, predicted", kernels),
    ]
    steps += [(f"{CAUSES[code]}, predicted", seconds) for code, seconds in expected.parts.items() if code != "compute"]
    excess = [(f"{cause.what}, beyond it", cause.excess_s) for cause in found.causes]
    return _summed([*steps, *sorted(excess, key=lambda each: -each[1])], found.step_s)


def _summed(steps: Sequence[tuple[str, float]], step_s: float) -> list[FallStep]:
    """Small steps are one line, and the total after the last is the step."""
    large = [(what, seconds) for what, seconds in steps if abs(seconds) > SHOWN * step_s]
    rest = step_s - sum(seconds for _, seconds in large)
    lines = [*large, *([("everything else", rest)] if abs(rest) > SHOWN * step_s / 10 else [])]
    found, total = [], 0.0
    for what, seconds in lines:
        total += seconds
        found.append(FallStep(what=what, seconds=seconds, total_s=total))
    return found
