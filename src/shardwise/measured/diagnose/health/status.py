"""How a run stands at this moment: the figures that `watch` shows, exports and draws."""

from time import time
from typing import Any

import numpy as np
from msgspec import Struct

from shardwise.measured.diagnose.health.found import Health
from shardwise.measured.diagnose.health.parts import expert_loads
from shardwise.measured.diagnose.health.windows import LASTS
from shardwise.measured.diagnose.pace import warm_up_of
from shardwise.measured.diagnose.records import RunRecords, StepGrid

RECENT = 4 * LASTS


class RankStatus(Struct, frozen=True, kw_only=True):
    """Means over the last steps, in seconds of a step; what was not measured is None."""

    rank: int
    last_step: int
    step_s: float | None = None
    own_s: float | None = None
    """before others could make it wait"""
    data_s: float | None = None
    comm_s: float | None = None
    save_s: float | None = None
    peak_bytes: int | None = None
    held_bytes: int | None = None


class RunStatus(Struct, frozen=True, kw_only=True):
    steps: int
    last_step: int
    state: str
    """goes on, silent, finished, ended; a log: one that does not say how it ended"""
    silent_s: float
    """since the last sign of any rank"""
    step_s: float | None
    predicted_step_s: float | None
    predicted_low_s: float | None
    predicted_high_s: float | None
    within_band: bool | None
    spread: float | None
    """of the last steps, robust standard deviation over their median"""
    p99_over_p50: float | None
    slowest_rank: int | None
    """the one that does most before it meets the others"""
    slowest_over_middle: float | None
    exposed_share: float | None
    """of a step that the middle rank stands in messages"""
    overlap_share: float | None
    """of the time of its messages that was hidden under computing"""
    all_to_all_s: float | None
    """of a step, exchanging tokens between experts"""
    expert_load: float | None
    """of the fullest expert, over an even share"""
    expert_rank_load: float | None
    data_share: float | None
    save_share: float | None
    peak_bytes: int | None
    predicted_peak_bytes: float | None
    goodput_share: float | None
    """steps that count, at the pace of the fast half, over all the time since the start"""
    ranks: tuple[RankStatus, ...]


def status_of(run: RunRecords, health: Health, now_s: float | None = None) -> RunStatus:
    grid, head = health.grid, run.head
    now = time() if now_s is None else now_s
    silent = max(now - run.last_at_s, 0.0) if not run.ended else 0.0
    step_s = health.step_s
    recent = None if grid is None else grid.after(max(grid.count - RECENT, 0))
    loads = None if recent is None else expert_loads(recent)
    peak = max((step.peak_bytes or 0 for rank in run.ranks.values() for step in rank.steps[-1:]), default=0)
    return RunStatus(
        steps=len({step.step for rank in run.ranks.values() for step in rank.steps}),
        last_step=max(rank.last_step for rank in run.ranks.values()), state=_state(run, silent, step_s),
        silent_s=silent, step_s=step_s, predicted_step_s=head.predicted_step_s, predicted_low_s=head.predicted_low_s,
        predicted_high_s=head.predicted_high_s,
        within_band=None if step_s is None or head.predicted_low_s is None or head.predicted_high_s is None
        else head.predicted_low_s <= step_s <= head.predicted_high_s,
        **_of_grid(recent),
        expert_load=None if loads is None else float(np.median(loads[0])),
        expert_rank_load=None if loads is None else float(np.median(loads[1])),
        peak_bytes=peak or None, predicted_peak_bytes=head.predicted_peak_bytes,
        goodput_share=_goodput(run, health, now),
        ranks=tuple(_rank(run, grid, recent, number) for number in sorted(run.ranks)),
    )  # fmt: skip


def silent_after(step_s: float | None) -> float:
    """Seconds without a sign after which a run stands still: five steps (EROICA), and no less than ten seconds."""
    return max(5 * (step_s or 0.0), 10.0)


def _state(run: RunRecords, silent_s: float, step_s: float | None) -> str:
    if run.ended:
        return "finished" if run.done else "ended"
    return "silent" if silent_s > silent_after(step_s) else "goes on"


def _of_grid(grid: StepGrid | None) -> dict[str, Any]:
    names = ("spread", "p99_over_p50", "slowest_rank", "slowest_over_middle", "exposed_share", "overlap_share",
             "all_to_all_s", "data_share", "save_share")  # fmt: skip
    if grid is None or not grid.count:
        return dict.fromkeys(names)
    steps = grid.step_s.max(axis=0)
    middle = float(np.median(steps))
    own = np.median(grid.own_s, axis=1)
    worst = int(np.argmax(own))
    measured = not np.isnan(grid.comm_s).any()
    comm = float(np.median(grid.comm_s))
    hidden = float(np.nan_to_num(np.median(grid.hidden_s)))
    exchanged = grid.axes_s.get("ep")
    return {
        "spread": float(1.4826 * np.median(np.abs(steps - middle)) / middle) if middle else None,
        "p99_over_p50": float(np.quantile(steps, 0.99) / middle) if middle else None,
        "slowest_rank": grid.ranks[worst] if measured and len(own) > 1 else None,
        "slowest_over_middle": float(own[worst] / np.median(own)) if measured and np.median(own) > 0 else None,
        "exposed_share": comm / middle if measured and middle else None,
        "overlap_share": hidden / (hidden + comm) if measured and hidden + comm > 0 else None,
        "all_to_all_s": None if exchanged is None else float(np.median(exchanged)),
        "data_share": float(np.nan_to_num(grid.data_s).mean(axis=1).max() / steps.mean())
        if middle and not np.isnan(grid.data_s).all() else None,
        "save_share": float(np.nan_to_num(grid.save_s).max(axis=0).sum() / steps.sum())
        if middle and not (np.isnan(grid.save_s).all() and np.isnan(grid.data_s).all()) else None,
    }  # fmt: skip


def _goodput(run: RunRecords, health: Health, now: float) -> float | None:
    if health.grid is None:
        return None
    begun = min(head.at_s for rank in run.ranks.values() for head in rank.heads)
    until = run.last_at_s if run.ended else now
    steps = health.grid.step_s.max(axis=0)
    steps = steps[warm_up_of(steps.tolist()) :]
    pace = float(np.median(np.sort(steps)[: max(len(steps) // 2, 1)]))
    made = len(set.union(*({step.step for step in rank.steps} for rank in run.ranks.values())))
    return min(made * pace / (until - begun), 1.0) if until > begun else None


def _rank(run: RunRecords, grid: StepGrid | None, recent: StepGrid | None, number: int) -> RankStatus:
    rank = run.ranks[number]
    last = rank.steps[-1] if rank.steps else None
    facts = {"peak_bytes": last.peak_bytes, "held_bytes": last.held_bytes} if last else {}
    if grid is None or recent is None or number not in grid.ranks:
        return RankStatus(rank=number, last_step=rank.last_step, **facts)
    row = grid.ranks.index(number)

    def mean(values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float | None:
        found = values[row]
        return None if np.isnan(found).all() else float(np.nan_to_num(found).mean())

    return RankStatus(
        rank=number, last_step=rank.last_step, step_s=mean(recent.step_s), own_s=mean(recent.own_s),
        data_s=mean(recent.data_s), comm_s=mean(recent.comm_s), save_s=mean(recent.save_s), **facts,
    )  # fmt: skip
