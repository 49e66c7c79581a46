"""Parts of a step that take too much of it: data, network, checkpoints, experts; and memory that grows."""

from collections import defaultdict

import numpy as np

from shardwise.arrays import Floats
from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.health.windows import LASTS, crowded, rise_of, since_of
from shardwise.measured.diagnose.records import StepGrid

SHARE = 0.1
"""of a step's time that waiting for data or stopping to save may take"""
ALONE = 3.0
"""times the others' wait for data: it is one rank's"""
LINK = 2.0
"""times what messages took before, once all ranks had come; and more than their own work grew"""
OF_STEP = 0.15
"""of a step that they must have grown by"""
RANK_LOAD = 1.3
"""tokens of an expert-parallel rank over an even share; 1.2 is usual"""
EXPERT_LOAD = 3.0
"""of one expert, over an even share"""
GROWN = 0.03
"""of what a rank holds, over the time it was watched"""
GROWN_BYTES = 8 * 2**20
BLOCKS = 6
"""of its time, each of which must hold more than the one before"""


def waiting_for_data(grid: StepGrid) -> list[Cause]:
    waits = np.nan_to_num(grid.data_s)
    mean, step = waits.mean(axis=1), float(grid.step_s.mean())
    recent, now = waits[:, -2 * LASTS :].mean(axis=1), float(grid.step_s[:, -2 * LASTS :].mean())
    row = int(np.argmax(np.maximum(mean / step, recent / now)))
    share = max(mean[row] / step, recent[row] / now)
    if grid.count < LASTS or share < SHARE:
        return []
    others = np.delete(mean, row)
    alone = len(others) > 0 and mean[row] > ALONE * float(np.median(others))
    rise = rise_of(waits[row], 0.0)
    return [Cause(
        code="data", seconds=float(recent[row] if recent[row] / now > mean[row] / step else mean[row]),
        where=f"rank {grid.ranks[row]}" if alone else "all ranks", rank=grid.ranks[row] if alone else None,
        since=int(grid.step[rise.place]) if rise else None,
        evidence=f"{share:.0%} of a step passes before the batch is there"
        + (f", on the others {float(np.median(others)) / step:.1%}" if alone else ""),
    )]  # fmt: skip


def stopped_to_save(grid: StepGrid) -> list[Cause]:
    saves = np.nan_to_num(grid.save_s)
    share = float(saves.max(axis=0).sum() / grid.step_s.max(axis=0).sum()) if grid.count else 0.0
    if grid.count < LASTS or share < SHARE:
        return []
    times = np.flatnonzero(saves.max(axis=0) > 0)
    apart = int(np.median(np.diff(grid.step[times]))) if len(times) > 1 else 0
    return [Cause(
        code="checkpoint", seconds=share * float(grid.step_s.mean()), where=f"every {apart} steps" if apart else "",
        evidence=f"{share:.0%} of the time the ranks stand still for checkpoints",
    )]  # fmt: skip


def slow_network(grid: StepGrid) -> list[Cause]:
    """Who waits least in messages waits for nobody: what is left is the network."""
    found = []
    step = float(np.median(grid.step_s))
    for axis, stood in grid.axes_s.items():
        least = stood.min(axis=0)
        rise = rise_of(least, OF_STEP * step)
        if rise is None or rise.factor < LINK:
            continue
        own = np.median(grid.own_s, axis=0)
        grown = np.median(own[rise.place :]) / max(np.median(own[: rise.place]), 1e-9)
        # a processor that others use makes messages slow too, and work as well
        if rise.factor < LINK * max(grown, 1.0) or crowded(grid, rise.place, rise.after - rise.before):
            continue
        found.append(Cause(
            code="slow_link", seconds=rise.after - rise.before, where=f"messages over {axis}",
            since=int(grid.step[rise.place]),
            evidence=f"messages over {axis} take {rise.after * 1e3:,.1f} ms of a step once all ranks have come, "
            f"{rise.before * 1e3:,.1f} before; their own work has not changed",
        ))  # fmt: skip
    return sorted(found, key=lambda cause: -cause.seconds)[:1]


def hot_experts(grid: StepGrid) -> list[Cause]:
    loads = expert_loads(grid)
    if loads is None:
        return []
    experts, ranks, names = loads
    hot = since_of(experts > EXPERT_LOAD)
    far = since_of(ranks > RANK_LOAD)
    since = min((place for place in (hot, far) if place is not None), default=None)
    if since is None:
        return []
    expert, layer = names[-1]
    excess = float(np.median(ranks[since:])) - 1.0
    return [Cause(
        code="hot_expert", seconds=max(excess, 0.0) * float(np.median(np.median(grid.own_s, axis=0)[since:])),
        where=f"expert {expert}" + (f" of layer {layer}" if layer is not None else ""), since=int(grid.step[since]),
        evidence=f"it gets {float(np.median(experts[since:])):.1f} times an even share of the tokens; the fullest "
        f"expert-parallel rank {float(np.median(ranks[since:])):.2f} times",
    )]  # fmt: skip


def expert_loads(grid: StepGrid) -> tuple[Floats, Floats, list[tuple[int, int | None]]] | None:
    """Step by step: load of the fullest expert and of the fullest expert-parallel rank, over even shares."""
    owners = len({place.get("ep", 0) for place in grid.places})
    hottest, fullest, names = [], [], []
    for column in range(grid.count):
        layers: dict[tuple[int, int], Floats] = {}
        sums: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
        for row, counts in enumerate(grid.experts):
            for layer, each in enumerate(counts[column] or []):
                sums[grid.places[row].get("pp", 0), layer].append(each)
        for key, rows in sums.items():
            if len({len(each) for each in rows}) == 1 and len(rows[0]) > 1 and np.sum(rows) > 0:
                layers[key] = np.sum(rows, axis=0) / (np.sum(rows) / len(rows[0]))
        if not layers:
            return None
        key = max(layers, key=lambda each: float(layers[each].max()))
        several = sum(layer[0] == key[0] for layer in layers) > 1
        hottest.append(float(layers[key].max()))
        names.append((int(layers[key].argmax()), key[1] if several else None))
        even = [load.reshape(owners, -1).mean(axis=1).max() for load in layers.values() if len(load) % owners == 0]
        fullest.append(float(max(even, default=1.0)))
    return np.array(hottest), np.array(fullest), names


def growing_memory(grid: StepGrid) -> list[Cause]:
    found = []
    for row, rank in enumerate(grid.ranks):
        held = grid.held_bytes[row][grid.count // 5 :]
        if len(held) < 2 * LASTS or np.isnan(held).any():
            continue
        blocks = np.array([np.median(part) for part in np.array_split(held, BLOCKS)])
        steps = np.diff(blocks)
        grown = float(blocks[-1] - blocks[0])
        steady = bool((steps > 0).all()) and steps[-1] > 0.3 * steps.mean() and steps[0] < 3 * steps.mean()
        if steady and grown > max(GROWN * blocks[0], GROWN_BYTES):
            found.append((grown, rank, len(held) * (BLOCKS - 1) / BLOCKS))
    if not found:
        return []
    grown, rank, steps_ = max(found)
    where = f"rank {rank}" if len(found) == 1 or len(found) < len(grid.ranks) else "all ranks"
    return [Cause(
        code="memory_leak", seconds=0.0, where=where, rank=rank if where != "all ranks" else None,
        evidence=f"it holds {grown / 2**20:,.0f} MiB more after {steps_:,.0f} steps, and grows with every one of them",
    )]  # fmt: skip
