"""Useful time over all time of a run that saves, fails and starts again, as an exact expectation.

Failures come at random with a mean time M between them, also while a run recovers. After each the run stands still for
D (noticed, queued, machines replaced), then needs R (groups, load, first steps) before it repeats what was not saved.
With work W and a stall C for every save, a save that lands P after it was taken counts from then on:
    time for W = exp((R + P) / M) (M + D) (exp((W + C) / M) - 1)
Two levels: most failures find a copy in memory; the rest fall back to storage, on a machine whose speed is what the
first level leaves of it.
"""

from math import exp, expm1, isinf

from msgspec import Struct

from shardwise.step.operate.intervals import best_s

PARTS = ("work", "saves", "lost work", "detect", "schedule", "start", "load", "planned", "waiting")
MOST_TRIES = 7.0
"""mean times between failures that a recovery and a save may last together: beyond, less than one try in a thousand
succeeds"""


class Restart(Struct, frozen=True, kw_only=True):
    """What follows a failure."""

    detect_s: float
    schedule_s: float
    start_s: float
    """process groups and first steps"""
    load_s: float

    @property
    def down_s(self) -> float:
        """Nothing runs that could fail."""
        return self.detect_s + self.schedule_s

    @property
    def recovery_s(self) -> float:
        """Can fail itself."""
        return self.start_s + self.load_s


class Saves(Struct, frozen=True, kw_only=True):
    """What a save costs."""

    kind: str
    stall_s: float
    """the run waits"""
    lands_s: float
    """after which it counts, beyond the stall"""
    bytes: float


class Goodput(Struct, frozen=True, kw_only=True):
    interval_s: float
    share: float
    """of all time that is work kept: ETTR"""
    parts: dict[str, float]
    """shares of all time, by what it goes for; they add up to 1"""
    failures_per_s: float
    """of all time"""


def goodput_of(
    saves: Saves, restart: Restart, between_s: float, interval_s: float | None = None, planned_per_s: float = 0.0
) -> Goodput:
    """Of one level of saves; `interval_s` is the work between two, the best one if not given."""
    work = interval_of(saves, between_s) if interval_s is None else interval_s
    if isinf(between_s):
        return _never_failing(saves, work, planned_per_s, restart)
    segment = work + saves.stall_s
    if (segment + restart.recovery_s + saves.lands_s) / between_s > MOST_TRIES:
        raise ValueError(
            f"failures: one every {between_s:,.4g} s leaves no time to recover ({restart.recovery_s:,.4g} s) and save "
            f"({segment:,.4g} s with the work before it); write fewer GPUs, a shorter restart or rarer failures"
        )
    failures = exp((restart.recovery_s + saves.lands_s) / between_s) * expm1(segment / between_s)
    total = failures * (between_s + restart.down_s)
    recovering = failures * between_s * -expm1(-restart.recovery_s / between_s)
    lost = failures * between_s - segment - recovering
    load = recovering * restart.load_s / restart.recovery_s if restart.recovery_s else 0.0
    seconds = {
        "work": work, "saves": saves.stall_s, "lost work": lost, "detect": failures * restart.detect_s,
        "schedule": failures * restart.schedule_s, "start": recovering - load, "load": load,
    }  # fmt: skip
    return _with_planned(seconds, total, work, failures, planned_per_s, restart, saves)


def interval_of(saves: Saves, between_s: float) -> float:
    """The best, but no save is taken before the one before it has landed."""
    if isinf(between_s):
        return max(saves.lands_s, 1e9)
    return max(best_s(saves.stall_s, between_s), saves.lands_s)


def _never_failing(saves: Saves, work: float, planned_per_s: float, restart: Restart) -> Goodput:
    seconds = {"work": work, "saves": saves.stall_s}
    return _with_planned(seconds, work + saves.stall_s, work, 0.0, planned_per_s, restart, saves)


def _with_planned(
    seconds: dict[str, float], total: float, work: float, failures: float, planned_per_s: float, restart: Restart,
    saves: Saves,
) -> Goodput:  # fmt: skip
    """A planned restart saves first and waits for it; nobody has to notice it."""
    each = saves.stall_s + saves.lands_s + restart.schedule_s + restart.recovery_s
    stretched = total * (1.0 + planned_per_s * each)
    shares = {part: value / stretched for part, value in seconds.items()}
    shares["planned"] = 1.0 - total / stretched
    return Goodput(
        interval_s=work, share=work / stretched, parts={part: shares.get(part, 0.0) for part in PARTS},
        failures_per_s=failures / stretched,
    )  # fmt: skip


class TwoLevels(Struct, frozen=True, kw_only=True):
    """Saves into the memory of other nodes, and every so often to storage."""

    memory: Saves
    storage: Saves
    from_memory: Restart
    from_storage: Restart
    beyond_memory: float
    """share of failures that only storage survives"""


def two_levels(levels: TwoLevels, between_s: float, planned_per_s: float = 0.0) -> tuple[Goodput, int]:
    """Of the best intervals, and how many saves into memory there are for one to storage."""
    near = between_s / (1.0 - levels.beyond_memory)
    first = goodput_of(levels.memory, levels.from_memory, near)
    far = between_s / levels.beyond_memory if levels.beyond_memory else float("inf")
    second = goodput_of(levels.storage, levels.from_storage, far, planned_per_s=planned_per_s)
    times = max(round(second.interval_s * first.share / first.interval_s), 1) if not isinf(far) else 1
    share = first.share * second.share
    parts = {part: second.share * first.parts[part] for part in PARTS}
    for part in PARTS[1:]:
        parts[part] += second.parts[part]
    rate = first.failures_per_s * second.share + second.failures_per_s
    return Goodput(interval_s=first.interval_s, share=share, parts=parts, failures_per_s=rate), times
