"""What memory asks of a pipeline at least, whatever layers its stages hold: seconds of recompute, for many policies at
once. A bound, so it leaves out what is short-lived, and lets each stage hold as many layers as both its memory and a
step below the best known allow.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardwise.arrays import Floats
from shardwise.spec.policy import OFFLOAD, Policies
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.memory import memory_of
from shardwise.step.estimate.synced import SyncChoice
from shardwise.work import work_of
from shardwise.work.case import Case
from shardwise.work.parameters import stage_parameters
from shardwise.work.stages import Stages, totals

AWAY = (OFFLOAD.index("activations"), OFFLOAD.index("both"))
STATE = ("parameters", "gradients", "optimizer", "activations")


def recomputed_least(
    case: Case, policies: Policies, limit: float, most_layers: Floats, modes: Sequence[int], sync: SyncChoice | None
) -> Floats:
    """Seconds that recompute adds to one micro-batch over all stages at least; infinite where nothing fits.

    `most_layers`: that one stage can hold in a step below the best. Of layers of several kinds the commonest alone are
    counted.
    """
    counts = totals(case.model)
    layers, inside = max(counts), _inside(policies)
    fixed, slope = _held(case, policies, sync)
    room = np.where(inside, np.clip((limit - fixed) / slope, 0.0, most_layers[:, None]), 0.0)
    short = np.maximum(layers - room.sum(axis=1), 0.0)
    worth, enough = np.zeros(len(policies)), np.zeros(len(policies), dtype=np.bool_)
    for mode in modes:
        again = replace(policies, recompute=np.full(len(policies), mode))
        freed = np.where(inside, (slope - _held(case, again, sync)[1]) / slope, 0.0).max(axis=1)
        freed = np.where(np.isin(policies.offload, AWAY), 0.0, np.maximum(freed, 0.0))
        units = [estimate(case, each, sync=sync).times.units[commonest(case)].total for each in (policies, again)]
        longer = np.maximum(units[1] - units[0], 1e-12)
        # with several modes side by side none frees more for its time than the best of them
        worth = np.maximum(worth, freed / longer)
        enough |= freed * layers >= short
    needed = np.where(enough & (worth > 0), short / np.maximum(worth, 1e-300), np.inf)
    return np.where(short <= 0, 0.0, needed)


def commonest(case: Case) -> int:
    """The kind that most layers are of."""
    counts = totals(case.model)
    return counts.index(max(counts))


def _inside(policies: Policies) -> np.ndarray:
    """policies x stages: those the policy has."""
    return np.arange(int(policies.pp.max()))[None, :] < policies.pp[:, None]


def _held(case: Case, policies: Policies, sync: SyncChoice | None) -> tuple[Floats, Floats]:
    """Of each stage: bytes it holds without a layer, and bytes of each layer."""
    one, two = (_with_layers(case, policies, sync, count) for count in (1.0, 2.0))
    return np.maximum(2.0 * one - two, 0.0), np.maximum(two - one, 1.0)


def _with_layers(case: Case, policies: Policies, sync: SyncChoice | None, count: float) -> Floats:
    work = work_of(case, policies, every_stage=True)
    held = np.full_like(work.stages.index, count)
    kinds = tuple(held if kind == commonest(case) else 0.0 * held for kind in range(len(work.stages.kinds)))
    stages = Stages(work.stages.index, kinds, held, work.stages.first, work.stages.last)
    changed = replace(work, stages=stages, parameters=stage_parameters(work.counts, work.layout, stages))
    memory = memory_of(changed, sync, case.cluster)
    # gradients that are freed on the way are less than their sum
    counted = [kind for kind in STATE if kind != "gradients" or not case.stack.memory.frees_gradients]
    tensors = sum((memory.kinds[kind] for kind in counted), start=0.0)
    return np.asarray(tensors * (1.0 + case.stack.memory.fragmentation) + case.stack.memory.base_bytes)
