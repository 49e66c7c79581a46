"""One rank, one stage, or everyone? In a synchronous job all steps are equally long: what a rank does before others can
make it wait tells them apart, and a suspect is named only if the run without it would be faster.

On a CPU that others use too, a rank's clock says little: how long it had the processor says what it had to compute.
"""

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats
from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.health.windows import LASTS, rise_of, since_of
from shardwise.measured.diagnose.records import StepGrid

SLOWER = 1.3
"""times what its peers do, before a rank is a straggler (NVRx calls it one below a score of 0.75)"""
HELD_UP = 2.0
"""times what its peers take on a CPU, where it computes no more than they do and only lacks the processor: on a machine
that others use too that happens to any rank for a while"""
STAGE = 1.5
"""times the other stages, from the beginning on; they are never quite equal"""
OFTEN = 16
"""steps of each of two stretches over which a rank is held against its peers"""
FEW = 4
"""steps in a row with which that begins"""
USUALLY = 0.75
"""of the steps of both stretches in which it is the slowest"""
EXPLAINS = 0.5
"""of what the run loses beside equal ranks"""
FELT = 0.05
"""of a step: smaller losses are not named"""


def slow_ranks(grid: StepGrid) -> list[Cause]:
    """Held against ranks that do the same, and where there are none against itself before."""
    rows = range(len(grid.ranks))
    found: list[Cause | None] = []
    if by_processor(grid):
        found = [_more_to_do(grid, row) for row in rows]
    if not any(found):
        found = [_beside_peers(grid, row) for row in rows if grid.peers(row)]
        found += [_beside_itself(grid, row) for row in rows if not grid.peers(row)]
    named = [cause for cause in found if cause is not None]
    return [max(named, key=lambda cause: cause.seconds)] if named else slow_stages(grid)


def by_processor(grid: StepGrid) -> bool:
    """All ranks compute on a CPU and say how long they had it."""
    return all(device == "cpu" for device in grid.devices) and not np.isnan(grid.cpu_s).any()


def _more_to_do(grid: StepGrid, row: int) -> Cause | None:
    processor, peers = grid.processor_s, grid.peers(row)
    used = processor[row]
    if peers:
        since = _slowest_since(used > processor[peers].max(axis=0))
        if since is None:
            return None
        others, than = float(np.median(processor[peers, since:])), "its peers'"
    else:
        rise = rise_of(used, 0.0)
        if rise is None:
            return None
        since, than = rise.place, "its own before"
        rest = [other for other in range(len(grid.ranks)) if other != row]
        grown = [np.median(processor[each, since:]) / max(np.median(processor[each, :since]), 1e-9) for each in rest]
        others = rise.before * max(float(np.median(grown)) if grown else 1.0, 1.0)
    times = float(np.median(used[since:])) / max(others, 1e-9)
    step = float(np.median(grid.step_s[:, since:]))
    saved = float(np.median(grid.own_s[row, since:])) * (1 - 1 / times) if times > 0 else 0.0
    if times < SLOWER or saved < FELT * step:
        return None
    return Cause(
        code="straggler", seconds=saved, where=_where(grid, row), rank=grid.ranks[row], since=int(grid.step[since]),
        evidence=f"it computes {times:.2f} times as long as {than} (time of the processor), {saved * 1e3:,.1f} ms of a "
        f"step of {step * 1e3:,.1f}",
    )  # fmt: skip


def _beside_peers(grid: StepGrid, row: int) -> Cause | None:
    least = HELD_UP if by_processor(grid) else SLOWER
    own, peers = grid.worked_s(row), grid.own_s[grid.peers(row)]
    others, most = np.median(peers, axis=0), np.max(peers, axis=0)
    since = _slowest_since(own > most)
    if since is None or own[since:].sum() < least * others[since:].sum():
        return _now_and_then(grid, row)
    own, others = own[since:], others[since:]
    if np.median(own) < least * np.median(others):
        return None
    return _named(grid, row, since, float(np.median(own) / np.median(others)), "its peers'")


def _slowest_since(slowest: NDArray[np.bool_]) -> int | None:
    """Where a rank begins to be the slowest, if it is at the end, in most steps of the last stretch: among equal ranks
    that happens once in some hundred runs."""
    stretch = min(2 * OFTEN, len(slowest))
    if stretch < OFTEN or np.mean(slowest[-stretch:]) < USUALLY:
        return since_of(slowest)
    begin = len(slowest) - stretch
    while begin > 0 and np.mean(slowest[begin - 1 : begin - 1 + OFTEN]) >= USUALLY:
        begin -= 1
    # the first windows reach back before it
    while begin < len(slowest) - OFTEN and not slowest[begin : begin + FEW].all():
        begin += 1
    return begin


def _now_and_then(grid: StepGrid, row: int) -> Cause | None:
    """A rank that is held up in many steps, not in most: by the sums of the last steps, twice over, while the others
    wait in messages and it does not."""
    since = grid.count - 2 * OFTEN
    if since < 0:
        return None
    peers = grid.peers(row)
    for part in (slice(since, since + OFTEN), slice(since + OFTEN, None)):
        own, others = grid.worked_s(row)[part].mean(), grid.own_s[peers, part].mean(axis=1).max()
        waits = grid.comm_s[peers, part].mean(axis=1).min() - grid.comm_s[row, part].mean()
        if own < HELD_UP * others or waits < EXPLAINS * (own - others):
            return None
    more = float(grid.worked_s(row)[since:].mean() - grid.own_s[peers, since:].mean())
    step = float(grid.step_s[:, since:].mean())
    if more < FELT * step:
        return None
    times = grid.worked_s(row)[since:].mean() / grid.own_s[peers, since:].mean()
    return Cause(
        code="straggler", seconds=more, where=_where(grid, row), rank=grid.ranks[row], since=int(grid.step[since]),
        evidence=f"time and again it takes longer, {times:.2f} times its peers' in all; they wait{_had(grid, row)}",
    )  # fmt: skip


def _had(grid: StepGrid, row: int) -> str:
    """On the CPU: whether it had the processor."""
    if not by_processor(grid):
        return ""
    share = np.minimum(grid.cpu_s[:, -2 * OFTEN :].sum(axis=1) / grid.own_s[:, -2 * OFTEN :].sum(axis=1), 1.0)
    others = float(np.median(share[grid.peers(row)]))
    if share[row] > 0.7 * others:
        return ""
    return f"; it had a processor for {share[row]:.0%} of that time, they for {others:.0%}"


def _beside_itself(grid: StepGrid, row: int) -> Cause | None:
    least = HELD_UP if by_processor(grid) else SLOWER
    rise = rise_of(grid.worked_s(row), FELT * float(np.median(grid.step_s)))
    if rise is None or rise.factor < least:
        return None
    rest = [other for other in range(len(grid.ranks)) if other != row]
    others = np.median(grid.own_s[rest], axis=0) if rest else np.zeros(grid.count)
    grown = np.median(others[rise.place :]) / max(np.median(others[: rise.place]), 1e-9)
    if rest and rise.factor < least * grown:
        return None
    return _named(grid, row, rise.place, rise.factor, "its own before")


def _named(grid: StepGrid, row: int, since: int, times: float, than: str) -> Cause | None:
    saved, lost = without(grid, row, since)
    step = float(np.median(grid.step_s[:, since:]))
    if saved < FELT * step or (lost > 0 and saved < EXPLAINS * lost):
        return None
    return Cause(
        code="straggler", seconds=saved, where=_where(grid, row), rank=grid.ranks[row], since=int(grid.step[since]),
        evidence=f"before it waits for others it takes {times:.2f} times {than}; without that the step is "
        f"{saved * 1e3:,.1f} ms of {step * 1e3:,.1f} shorter",
    )  # fmt: skip


def without(grid: StepGrid, row: int, since: int) -> tuple[float, float]:
    """(what a step wins if this rank takes as long as the middle one of the others, what it would win if all did).
    Ranks meet at the end of a step at the latest, so it takes as long as the slowest one's own work."""
    own = grid.own_s[:, since:].copy()
    own[row] = grid.worked_s(row)[since:]
    rest = [other for other in range(len(grid.ranks)) if other != row]
    before = _before(grid, row, since) if not grid.peers(row) else np.median(own[grid.peers(row)], axis=0)
    cured = own.copy()
    cured[row] = np.minimum(own[row], before)
    slowest = own.max(axis=0)
    even = np.median(own, axis=0) if len(rest) > 1 else own.min(axis=0)
    return float(np.median(slowest - cured.max(axis=0))), float(np.median(slowest - even))


def _before(grid: StepGrid, row: int, since: int) -> Floats:
    return np.full(grid.count - since, np.median(grid.worked_s(row)[: max(since, 1)]))


def slow_stages(grid: StepGrid) -> list[Cause]:
    """All ranks of one place in the pipeline."""
    stages = sorted({place.get("pp", 0) for place in grid.places})
    if len(stages) < 2 or grid.count < LASTS:
        return []
    work = grid.processor_s if by_processor(grid) else grid.own_s
    of_stage = {stage: [row for row in range(len(grid.ranks)) if grid.places[row].get("pp", 0) == stage]
                for stage in stages}  # fmt: skip
    own = {stage: np.median(work[rows], axis=0) for stage, rows in of_stage.items()}
    worst = max(stages, key=lambda stage: float(np.median(own[stage])))
    others = np.max([own[stage] for stage in stages if stage != worst], axis=0)
    since = since_of(own[worst] > STAGE * others)
    if since is None:
        return []
    times = float(np.median(own[worst][since:]) / np.median(others[since:]))
    rows = of_stage[worst]
    if len(rows) == 1 and since >= OFTEN:
        # it was not so from the beginning, so that it is no matter of layers
        return [cause] if (cause := _named(grid, rows[0], since, times, "the next slowest stage's")) else []
    lost = float(np.median(grid.own_s[rows][:, since:])) * (1 - 1 / times)
    last = ", the last," if worst == stages[-1] else ""
    return [Cause(
        code="slow_stage", seconds=lost, where=f"stage {worst}", since=int(grid.step[since]),
        evidence=f"stage {worst}{last} computes {times:.2f} times as long as the next slowest",
    )]  # fmt: skip


def _where(grid: StepGrid, row: int) -> str:
    places = {axis: place for axis, place in grid.places[row].items() if _several(grid, axis)}
    told = " ".join(f"{axis}{place}" for axis, place in places.items())
    return f"rank {grid.ranks[row]}" + (f" ({told})" if told else "")


def _several(grid: StepGrid, axis: str) -> bool:
    return len({place.get(axis, 0) for place in grid.places}) > 1
