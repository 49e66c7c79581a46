"""Steps over time: what a run loses to stalls, spikes, drift and shifts, told from the times of its steps alone.

Every record's time is split into the level of the fastest stretch, what the level rose by, and what the record lies
above its level; the causes therefore add up to what the mean step takes above the fastest level.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.measured.diagnose.causes import Cause, ranked
from shardwise.measured.diagnose.logged import LoggedStep, RunLog

WARM_UP = 0.2
"""at most this share of the first records is left out"""
SETTLED = 1.1
"""a record within this factor of the median has settled"""
UNDONE, BEGINNING = 0.5, 2
"""one of so many first records below this share of what follows was no whole step: the clock began late, say"""
BETWEEN = 3
"""settled records between two slow ones of a beginning, at most: graphs are captured after a few fast steps"""
OUTLIER = 1.1
"""a record so many times its level, and more than MADS deviations above it, is a slow one"""
MADS = 5.0
"""robust deviations, as Minder takes them"""
SHIFT = 0.05
"""a level that rose by more than this share has shifted (EROICA's threshold)"""
FEWEST = 8
"""records on each side of a shift"""
PERIODIC = 3
"""slow records in a row of equal distances, at least"""
ON_GRID = 0.6
"""of the places where a periodic stall is due, so many have one"""
TRIED = 20
"""distances, and records to begin with, that are tried for a periodic stall"""
CLOCK_S = 2.0
"""time between two lines beyond their steps that a clock of whole seconds can show"""
STOPPED = 100.0
"""a pause of so many steps' time is an interruption, not a stall"""


@dataclass(frozen=True)
class StepSeries:
    step: Ints
    """number of the last step of each record"""
    seconds: Floats
    """of one step"""
    every: Floats
    """steps that a record stands for"""
    line: Ints
    data_s: Floats
    """of it: waiting for the next batch; NaN where the log does not say"""
    saved: NDArray[np.bool_]
    """records that state the time of a checkpoint"""
    outside_s: float
    """seconds between the lines that no step accounts for, folded into the records they precede"""
    exact: bool
    """in seconds; else in units of the fastest level, as the log states rates only"""


@dataclass(frozen=True)
class Pace:
    records: int
    dropped: int
    """at the beginning, as warming up"""
    dropped_why: str
    mean_s: float
    level_s: float
    """of the fastest stretch, without what it waits for data"""
    spread: float
    """of steps around their level, as a share: robust standard deviation"""
    causes: tuple[Cause, ...]
    """seconds of an average step beyond the fastest level"""
    restarts: int
    exact: bool
    notes: tuple[str, ...]


def warm_up_of(paces: Sequence[float]) -> int:
    """Records at the beginning that lie above what follows: compilation, allocator and data loader settle there; or
    that are so short that they were no whole step."""
    count = len(paces)
    most = int(np.ceil(count * WARM_UP)) if count > 1 else 0
    settled = float(np.median(paces[most:]))
    end = 0
    slowed = any(pace < UNDONE * settled for pace in paces[BEGINNING : 2 * BEGINNING])  # then it is a slowdown
    for place, pace in enumerate(paces[:most]):
        unlike = pace > SETTLED * settled or (pace < UNDONE * settled and place < BEGINNING and not slowed)
        if unlike and place - end <= BETWEEN:
            end = place + 1
    return end


FEWEST_PAIRS, ALIKE = 3, 0.03
"""of lines with a time, to tell what a rate counts; how far their answers may lie apart"""


def series_of(log: RunLog, step_tokens: float | None = None, gpus: int | None = None, samples: float | None = None
              ) -> StepSeries:  # fmt: skip
    """`step_tokens`, `gpus`, `samples`: of a step, where they are known, to turn a rate into seconds."""
    records, exact = _timed(log.steps, step_tokens, gpus, samples)
    if not records:
        raise ValueError(f"run: {log.name} states no time or rate of a step; write a log that does")
    numbers = [step.step if step.step is not None else place + 1 for place, (step, _) in enumerate(records)]
    step = np.array(numbers, dtype=np.int64)
    seconds = np.array([pace for _, pace in records], dtype=np.float64)
    every = np.maximum(np.diff(step, prepend=step[0] - 1), 1).astype(np.float64)
    if len(every) > 2:
        every[0] = float(np.median(every[1:]))
    line = np.array([each.line for each, _ in records], dtype=np.int64)
    outside = np.zeros(len(step))
    if exact and all(each.seconds for each, _ in records):
        outside = _outside(records, seconds, every, step)
    data = np.array([each.data_s or np.nan for each, _ in records], dtype=np.float64)
    saved = np.array([bool(each.save_s) for each, _ in records])
    return StepSeries(step, seconds + outside / every, every, line, data, saved, float(outside.sum()), exact)


def pace_of(series: StepSeries, log: RunLog) -> Pace:
    going_back = np.flatnonzero(np.diff(series.step) < 0) + 1
    dropped = warm_up_of(series.seconds.tolist())
    keep = np.arange(len(series.step)) >= dropped
    for place in going_back.tolist():
        keep[place : place + max(warm_up_of(series.seconds[place:].tolist()), 0)] = False
    if keep.sum() == 0:
        keep[:] = True
    seconds, every, step = series.seconds[keep], series.every[keep], series.step[keep]
    line, saved = series.line[keep], series.saved[keep]
    level, kind, at = _levels(seconds)
    base = float(level.min())
    slow = _slow(seconds, level)
    weight = every / every.sum()
    causes: list[Cause] = []
    risen = float(((level - base) * weight).sum())
    if kind and risen > 0:
        causes.append(_risen(kind, risen, step, at, level))
    above = (seconds - level) * weight
    pressed = _beside(series, keep, log, "retries")
    if pressed.any():
        causes.append(Cause(
            code="retries", seconds=float(np.maximum(above[pressed], 0).sum()),
            where=f"{int(pressed.sum())} of {len(seconds)} records", evidence="the log counts retries or cache flushes",
        ))  # fmt: skip
        above, slow = np.where(pressed, 0.0, above), slow & ~pressed
    causes += _uneven(log)
    left = slow.copy()
    for period, places in _periods(slow, step, every):
        what = "checkpoint" if 2 * int(saved[places].sum()) >= len(places) else _said(line, places, log)
        more = float(((seconds - level) * every)[places].mean())
        told = f"{more:.3g} s each" if series.exact else f"{more / base:.3g} times a step each"
        causes.append(Cause(
            code=what, seconds=float(above[places].sum()), where=f"every {period:,} steps",
            evidence=f"{len(places)} slow records at that distance, {told}",
        ))  # fmt: skip
        left[places] = False
    if left.any():
        worst = int(np.argmax(np.where(left, seconds, 0)))
        causes.append(Cause(
            code="spikes", seconds=float(above[left].sum()), where=f"{int(left.sum())} of {len(seconds)} records",
            evidence=f"the slowest, step {step[worst]:,}, took {seconds[worst] / level[worst]:.3g} times its level",
        ))  # fmt: skip
    spread = _deviation((seconds - level)[~slow]) / base if (~slow).any() else 0.0
    rest = float(above[~slow].sum())
    if rest > 0:
        causes.append(Cause(code="jitter", seconds=rest, evidence=f"steps vary by {spread:.1%} around their level"))
    data = min(_waiting_for_data(series, keep), base)
    if data > 0:
        causes.append(Cause(code="data", seconds=data, evidence="as the log states"))
    mean = float((seconds * weight).sum())
    lost = _done_again(series, going_back, mean)
    causes += [lost] if lost else []
    return Pace(
        len(seconds), int((~keep).sum()), _why_dropped(series, keep, base), mean, base - data, spread, ranked(causes),
        len(going_back), series.exact, _notes(series, log),
    )  # fmt: skip


def _timed(
    steps: Sequence[LoggedStep], tokens: float | None, gpus: int | None, samples: float | None
) -> tuple[list[tuple[LoggedStep, float]], bool]:
    """Seconds of a step for each record, by the best thing the log states; whether they are seconds."""
    ways: list[tuple[str, float | None]] = [
        ("seconds", None), ("steps_per_s", 1.0), ("samples_per_s", samples),
        ("tokens_per_s_per_gpu", tokens / gpus if tokens and gpus else None), ("tokens_per_s", tokens),
    ]  # fmt: skip
    usable = {name: amount for name, amount in ways if any(getattr(step, name) for step in steps)}
    for name, amount in usable.items():
        if name == "seconds" or amount is not None:
            found = [(step, value if name == "seconds" else (amount or 1.0) / value)
                     for step in steps if (value := getattr(step, name))]  # fmt: skip
            return found, True
    if not usable:
        return _by_the_clock(steps), True
    name = next(iter(usable))
    amount = _amount_by_the_clock(steps, name)
    return [(step, (amount or 1.0) / value) for step in steps if (value := getattr(step, name))], amount is not None


def _amount_by_the_clock(steps: Sequence[LoggedStep], rate: str) -> float | None:
    """Tokens or samples of a step: rate times the time between lines, where most pairs of lines agree."""
    apart = [getattr(step, rate) * seconds for step, seconds in _by_the_clock(steps) if getattr(step, rate)]
    if len(apart) < FEWEST_PAIRS:
        return None
    middle = float(np.median(apart))
    return middle if sum(abs(each / middle - 1) < ALIKE for each in apart) * 2 > len(apart) else None


def _by_the_clock(steps: Sequence[LoggedStep]) -> list[tuple[LoggedStep, float]]:
    clocked = [step for step in steps if step.at_s is not None and step.step is not None]
    found = []
    for before, after in pairwise(clocked):
        steps_between = (after.step or 0) - (before.step or 0)
        seconds = (after.at_s or 0.0) - (before.at_s or 0.0)
        if steps_between > 0 and seconds > 0:
            found.append((after, seconds / steps_between))
    return found


def _outside(records: list[tuple[LoggedStep, float]], seconds: Floats, every: Floats, step: Ints) -> Floats:
    """Time between a line and the one before it, beyond what their steps took; interruptions are none."""
    found = np.zeros(len(seconds))
    for place in range(1, len(records)):
        before, after = records[place - 1][0].at_s, records[place][0].at_s
        if before is None or after is None or step[place] <= step[place - 1]:
            continue
        own = seconds[place] * every[place]
        more = after - before - own
        if CLOCK_S < more < STOPPED * own:
            found[place] = more
    return found


def _levels(seconds: Floats) -> tuple[Floats, str, int]:
    """The level of each record; 'shift' or 'drift' where it rises, and at which record."""
    count = len(seconds)
    middle = float(np.median(seconds))
    flat = np.full(count, middle)
    if count < 2 * FEWEST:
        return flat, "", 0
    best, at = 0.0, 0
    for place in np.unique(np.linspace(FEWEST, count - FEWEST, num=min(count, 200)).astype(int)).tolist():
        lower, upper = np.median(seconds[:place]), np.median(seconds[place:])
        # the split that explains most of the distance from one level
        saved = float(np.abs(seconds - middle).sum() - np.abs(seconds[:place] - lower).sum()
                      - np.abs(seconds[place:] - upper).sum())  # fmt: skip
        if saved > best:
            best, at = saved, place
    if not at:
        return flat, "", 0
    before, after = float(np.median(seconds[:at])), float(np.median(seconds[at:]))
    if after <= before * (1 + SHIFT):
        if before <= after * (1 + SHIFT):
            return flat, "", 0
        return np.where(np.arange(count) < at, before, after), "shift", at
    line = _straight(seconds)
    stepped = np.where(np.arange(count) < at, before, after)
    if line is not None and np.abs(seconds - line).sum() < np.abs(seconds - stepped).sum():
        return line, "drift", at
    return stepped, "shift", at


def _straight(seconds: Floats) -> Floats | None:
    """A line through the medians of the first and the last third, where the middle third lies on it."""
    count = len(seconds)
    third = count // 3
    first, last = float(np.median(seconds[:third])), float(np.median(seconds[-third:]))
    slope = (last - first) / (count - third)
    found = first + slope * (np.arange(count) - (third - 1) / 2)
    return np.maximum(found, 1e-12) if slope > 0 else None


def _risen(kind: str, seconds: float, step: Ints, at: int, level: Floats) -> Cause:
    rise = level[-1] / level[0] - 1
    if kind == "drift":
        return Cause(code="drift", seconds=seconds, evidence=f"the level moved {rise:+.1%} over the run, steadily")
    where = f"from step {step[at]:,} on" if rise > 0 else f"before step {step[at]:,}"
    return Cause(code="shift", seconds=seconds, where=where, evidence=f"the level moved {rise:+.1%} there and stayed")


def _deviation(values: Floats) -> float:
    return float(1.4826 * np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def _slow(seconds: Floats, level: Floats) -> NDArray[np.bool_]:
    above = seconds - level
    return np.asarray((above > MADS * _deviation(above)) & (seconds > OUTLIER * level))


def _waiting_for_data(series: StepSeries, keep: NDArray[np.bool_]) -> float:
    """Of a step, where the log states it for most."""
    told = series.data_s[keep]
    known = np.isfinite(told)
    return float(told[known].mean()) if series.exact and 2 * int(known.sum()) >= len(told) else 0.0


def _periods(slow: NDArray[np.bool_], step: Ints, every: Floats) -> list[tuple[int, Ints]]:
    """(steps between them, which records) of slow records that come at one distance."""
    found: list[tuple[int, Ints]] = []
    places = np.flatnonzero(slow)
    stride = float(np.median(every)) if len(every) else 1.0
    while len(places) >= PERIODIC:
        best: tuple[int, int, Ints] | None = None
        for period, _ in Counter(np.diff(step[places]).tolist()).most_common(TRIED):
            if period < max(2 * stride, 2):
                continue
            for start in places[: min(len(places) - PERIODIC + 1, TRIED)].tolist():
                off = (step[places] - step[start]) % period
                on = places[(np.minimum(off, period - off) < max(stride, 1)) & (places >= start)]
                due = (step[-1] - step[start]) // period + 1
                if len(on) >= PERIODIC and len(on) >= ON_GRID * due and (best is None or len(on) > best[0]):
                    best = (len(on), int(period), on)
        if best is None:
            break
        found.append((best[1], best[2]))
        places = np.setdiff1d(places, best[2])
    return found


def _beside(series: StepSeries, keep: NDArray[np.bool_], log: RunLog, what: str) -> NDArray[np.bool_]:
    """Records that a mark stands with: behind the record before, up to their own line."""
    at = np.array([mark.line for mark in log.marks if mark.what == what], dtype=np.int64)
    if not len(at):
        return np.zeros(int(keep.sum()), dtype=bool)
    before = np.concatenate([[-1], series.line[:-1]])
    return (np.searchsorted(at, series.line, side="right") > np.searchsorted(at, before, side="right"))[keep]


UNEVEN = 1.1
"""times the quickest rank that the slowest needs for its own work, beyond which it holds up the others"""
_OWN_WORK = re.compile(r"(?:forward|backward)-compute|optimizer-inner-step|batch-generator|data_load")
"""timers of work that waits for no other rank"""


def _uneven(log: RunLog) -> list[Cause]:
    """What the others wait for the slowest rank, by timers over all ranks."""
    found = []
    for name in dict.fromkeys(timer.name for timer in log.timers if _OWN_WORK.search(timer.name)):
        same = [timer for timer in log.timers if timer.name == name]
        low, high = (float(np.median([getattr(timer, end) for timer in same])) for end in ("low_s", "high_s"))
        if high <= UNEVEN * low:
            continue
        slowest = Counter(timer.slowest for timer in same if timer.slowest is not None).most_common(1)
        found.append(Cause(
            code="straggler", seconds=high - low, where=f"rank {slowest[0][0]}" if slowest else "",
            evidence=f"{name} takes {low:.3g} s on the quickest rank, {high:.3g} on the slowest; so do unlike stages",
        ))  # fmt: skip
    return sorted(found, key=lambda cause: -cause.excess_s)[:1]


def _said(line: Ints, places: Ints, log: RunLog) -> str:
    """What the log says was done beside most of these records: between the record before and the one behind."""
    seen: Counter[str] = Counter()
    marks = np.array([mark.line for mark in log.marks], dtype=np.int64)
    for place in places.tolist():
        begin = line[place - 1] if place else 0
        end = line[place + 1] if place + 1 < len(line) else line[place] + 50
        near = np.flatnonzero((marks >= begin) & (marks <= end))
        seen.update({log.marks[index].what for index in near.tolist()})
    what, count = seen.most_common(1)[0] if seen else ("", 0)
    return what if count * 2 >= len(places) else "stalls"


def _done_again(series: StepSeries, going_back: Ints, mean: float) -> Cause | None:
    again = sum(int(series.step[place - 1] - series.step[place]) + 1 for place in going_back.tolist())
    done = int(series.every.sum())
    if again <= 0 or done <= again:
        return None
    return Cause(code="restart", seconds=mean * again / (done - again), where=f"{len(going_back)} times",
                 evidence=f"{again:,} steps were run again after the step number went back")  # fmt: skip


def _why_dropped(series: StepSeries, keep: NDArray[np.bool_], base: float) -> str:
    gone = series.seconds[~keep]
    if not len(gone):
        return "none: the first steps are as fast as the others"
    if gone.max() < base:
        return f"they took {gone.max() / base:.3g} times the level at most: no whole steps"
    return f"they took up to {gone.max() / base:.3g} times the level: compilation, allocator, data loader"


def _notes(series: StepSeries, log: RunLog) -> tuple[str, ...]:
    notes = [note for note in (log.caution, log.damaged) if note]
    stride = float(np.median(series.every))
    if stride > 1:
        notes.append(f"a record is the mean of {stride:.0f} steps: one slow step shows by 1/{stride:.0f}")
    if series.outside_s:
        notes.append(f"{series.outside_s:,.0f} s lie between the lines, outside of the steps they state")
    if not series.exact:
        notes.append("the log states rates only; write the job (--model, --on, --seq, --global-batch) for seconds")
    return tuple(notes)
