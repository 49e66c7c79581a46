"""One pipeline of a step: how long each task takes and waits, and when gradients are reduced.

Overlap and its limits, as in the closed form: while a collective runs beside compute it advances at `hidden_share` of
its pace, at most that share of it can hide, and compute slows by `slowdown` of what hides. While the rank is idle it
advances at full pace.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.step.simulate.costs import Costs
from shardwise.step.tasks.engine import EngineRun, run
from shardwise.step.tasks.program import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Program


@dataclass(frozen=True)
class TaskTimes:
    """Seconds of every task of a program."""

    duration: Floats
    delay: Floats
    """per need: what is left of the transfer when the sender goes on"""
    release: Floats
    send: Floats
    """per task: the whole transfer of its result, 0 where nothing is sent"""
    stopped: Floats
    """per task: the part of `send` in which the sender waits"""
    gathered: Floats
    """ranks x chunks: when a chunk's parameters are all there"""
    reduced: Floats
    """per task: what reductions beside it add to its duration"""

    def run(self, program: Program) -> EngineRun:
        return run(program.tasks, self.duration, self.delay, self.release)


def timed(program: Program, costs: Costs, gpu_factor: Floats, link_factor: Floats) -> TaskTimes:
    """`gpu_factor` slows the compute of each rank, `link_factor` the transfers from each rank to the next."""
    stage, rank = program.stage, program.rank
    length = np.select(
        [program.kind == FORWARD, program.kind == INPUT_GRADIENT, program.kind == WEIGHT_GRADIENT],
        [costs.forward[stage], costs.input_gradient[stage], costs.weight_gradient[stage]],
        costs.backward[stage],
    )
    length = length * gpu_factor[rank]
    send = np.zeros(len(rank))
    crossing = program.needs[program.crosses]
    send[crossing] = costs.transfer_s * link_factor[_link(rank[crossing], rank[program.crosses], program.pp)]
    stopped = send * costs.stopped_share
    delay = np.where(program.apart, (send - stopped)[program.need_source], 0.0)
    release, gathered, slowed = _gathers(program, costs, length)
    inside = _reductions_inside(program, costs, length)
    duration = length + (slowed + inside) + stopped
    return TaskTimes(duration, delay, release, send, stopped, gathered, inside)


def _link(sender: Ints, receiver: Ints, pp: int) -> Ints:
    """The link between rank k and k + 1 has the number k; the one that closes the ring comes last."""
    near = np.abs(sender - receiver) == 1
    return np.asarray(np.where(near, np.minimum(sender, receiver), pp - 1))


def under(seconds: Floats, window: Floats, costs: Costs, overlaps: bool) -> Floats:
    """Seconds of a collective that hide under so much compute."""
    return costs.hidden_share * np.minimum(seconds, window) if overlaps else np.zeros_like(seconds)


def _gathers(program: Program, costs: Costs, length: Floats) -> tuple[Floats, Floats, Floats]:
    """Parameters are gathered chunk by chunk from the step's start on; a chunk's first forward runs under the rest of
    its own gather. -> release of each task, when each chunk is gathered, what the first forwards are slowed by."""
    release, slowed = np.zeros(len(length)), np.zeros(len(length))
    if not costs.gather_s.any():
        return release, np.zeros_like(costs.gather_s), slowed
    first = program.first_forwards
    turn = np.argsort(first, axis=1)
    in_turn = np.cumsum(np.take_along_axis(costs.gather_s, turn, axis=1), axis=1)
    gathered = np.empty_like(in_turn)
    np.put_along_axis(gathered, turn, in_turn, axis=1)
    hidden = under(costs.gather_s, length[first], costs, costs.overlap_param)
    release[first] = gathered - hidden if costs.overlap_param else in_turn[:, -1:]
    slowed[first] = costs.slowdown * hidden
    return release, gathered, slowed


def _reductions_inside(program: Program, costs: Costs, length: Floats) -> Floats:
    """What reductions add to the backwards they run under."""
    slowed = np.zeros(len(length))
    final = program.finishes_gradient
    if costs.reduces_each:
        # a sharded buffer must be free again before the next micro-batch adds to it: the rest is waited for
        seconds = costs.reduce_s[program.rank, program.chunk][final]
        hidden = under(seconds, length[final], costs, costs.overlap_grad)
        slowed[final] = seconds - hidden + costs.slowdown * hidden
        return slowed
    last = program.last_gradients
    slowed[last] = costs.slowdown * under(costs.reduce_s, length[last], costs, costs.overlap_grad)
    return slowed


def reductions(program: Program, costs: Costs, tasks: TaskTimes, timed_run: EngineRun) -> tuple[Floats, Floats]:
    """ranks x chunks: when the reduction of each chunk's gradients starts and ends on the rank's gradient stream."""
    last = program.last_gradients
    lane = program.tasks.lane_start
    if costs.reduces_each or not costs.reduce_s.any():
        return timed_run.end[last], timed_run.end[last]
    start, end = np.empty(last.shape), np.empty(last.shape)
    for rank in range(program.pp):
        stop = int(lane[rank + 1])
        turn = np.argsort(last[rank])
        seconds = costs.reduce_s[rank, turn]
        if costs.overlap_grad:
            window = slice(int(last[rank, turn[0]]), stop)
            # no reduction hides under what it makes longer itself
            own = 1.0 - tasks.reduced[window] / np.maximum(tasks.duration[window], 1e-30)
            spans = _Spans(timed_run.start[window], timed_run.end[window], costs.hidden_share * own)
            ready = timed_run.start[last[rank, turn]].tolist()
            bars = _beside(ready, seconds.tolist(), costs.hidden_share, spans)
        else:
            done = float(timed_run.end[stop - 1]) + np.cumsum([0.0, *seconds])
            bars = list(zip(done[:-1].tolist(), done[1:].tolist(), strict=True))
        start[rank, turn], end[rank, turn] = np.array(bars).T
    return start, end


def _beside(ready: list[float], seconds: list[float], share: float, spans: "_Spans") -> list[tuple[float, float]]:
    """(start, end) of collectives one after another beside compute spans. What cannot hide of any of them is done when
    the rank has nothing else to do, and drawn behind the last."""
    bars: list[tuple[float, float]] = []
    starts, ends, many = spans.starts, spans.ends, len(spans.starts)
    now, exposed, at = ready[0], 0.0, 0
    for begin, length in zip(ready, seconds, strict=True):
        if begin > now:
            exposed = max(exposed - spans.idle(now, begin), 0.0)
            now = begin
        first, left = now, share * length
        exposed += (1.0 - share) * length
        while at < many and left > 0.0:
            start, end = starts[at], ends[at]
            if start > now:
                left, now = max(left - (start - now), 0.0), min(now + left, start)
                continue
            pace = spans.paces[at]
            if pace * (end - now) > left:
                now, left = now + left / pace, 0.0
                continue
            left -= pace * max(end - now, 0.0)
            now, at = max(now, end), at + 1
        now += left
        bars.append((first, now))
    stop = ends[-1]
    finish = max(now, stop) + max(exposed - spans.idle(now, stop), 0.0)
    bars[-1] = (bars[-1][0], finish)
    return bars


class _Spans:
    """Compute of a rank, one task after another."""

    def __init__(self, start: Floats, end: Floats, pace: Floats) -> None:
        """`pace`: seconds of a collective that hide under one of a task."""
        self.paces: list[float] = pace.tolist()
        self.starts: list[float] = start.tolist()
        self.ends: list[float] = end.tolist()
        self.before: list[float] = [0.0, *np.cumsum(end - start).tolist()]

    def idle(self, low: float, high: float) -> float:
        """Seconds between two moments in which none of it runs."""
        if high <= low:
            return 0.0
        return max(high - low - (self._busy(high) - self._busy(low)), 0.0)

    def _busy(self, moment: float) -> float:
        """Seconds of the spans until then."""
        at = bisect_right(self.starts, moment)
        return self.before[at] - (max(self.ends[at - 1] - moment, 0.0) if at else 0.0)
