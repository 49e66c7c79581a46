"""Time and memory of every stage with every run of layers it might hold."""

from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as changed

from shardwise.arrays import Floats, Ints
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.memory import memory_of
from shardwise.step.estimate.synced import SyncChoice
from shardwise.work import Work, work_of
from shardwise.work.case import Case, Training
from shardwise.work.parameters import stage_parameters
from shardwise.work.stages import Stages

MOST_SEGMENTS = 20_000_000


@dataclass(frozen=True)
class Segments:
    """stages x first layer x end: one micro-batch's seconds, layers that recompute, bytes at the peak."""

    seconds: Floats
    """infinite where the stage would not fit even with every layer recomputed, or would be empty"""
    any_seconds: Floats
    """the same where it does not fit"""
    recomputed: Floats
    bytes: Floats


def segments_of(
    case: Case,
    policy: Policy,
    limit: float,
    mix: tuple[str, str] = ("none", "full"),
    sync: SyncChoice | None = None,
) -> Segments:
    """Stages that hold as many layers of each kind are the same, so only those that differ are computed.

    `mix`: how much the layers recompute that need not, and those that memory asks to recompute more. `sync`: a
    strategy in place of the mean gradient, which may hold something of its own.
    """
    model, cluster, stack = case.model, case.cluster, case.stack
    if policy.pp * model.layers**2 > MOST_SEGMENTS:
        raise ValueError(
            f"pp: {policy.pp} stages of {model.layers:,} layers have too many splits to look at; write a smaller pp"
        )
    counts, index = _distinct(model)
    stages = np.repeat(np.arange(policy.pp), len(counts))
    held = np.tile(counts, (policy.pp, 1))
    plain, full = (_works(case, changed(policy, recompute=r), stages, held) for r in mix)
    layers = held.sum(axis=1)
    memory, least = (memory_of(work, sync, cluster) for work in (plain, full))
    total, grows = memory.total[:, 0], 1.0 + stack.memory.fragmentation
    kept, short = (found.kinds["activations"][:, 0] for found in (memory, least))
    # a chord: with put-off weight gradients the first layers may free less than the last, never more
    saves = (kept - short) / np.maximum(layers, 1) * grows
    # what one layer makes again stands beside the rest as soon as any does
    again = np.maximum(least.total[:, 0] - total + layers * saves, 0.0)
    over = total - limit
    # with offloaded activations there is nothing to gain
    worth = (saves > 0) & (policy.offload not in ("activations", "both"))
    needed = np.where(worth, np.ceil((over + again) / np.where(worth, saves, 1.0)), np.inf)
    repeated = np.where(over <= 0, 0.0, needed)
    possible = repeated <= layers
    repeated = np.where(possible, repeated, np.where(worth, layers, 0))
    bytes_ = total + np.where(repeated > 0, again - repeated * saves, 0.0)
    seconds = _seconds(case, policy, held, stages, repeated, mix)
    empty = (layers == 0) & (stages > 0) & (stages < policy.pp - 1)
    return Segments(
        seconds=_spread(np.where(possible & ~empty, seconds, np.inf), index, policy.pp),
        any_seconds=_spread(seconds, index, policy.pp),
        recomputed=_spread(repeated, index, policy.pp),
        bytes=_spread(bytes_, index, policy.pp),
    )


def _distinct(model: Model) -> tuple[Ints, Ints]:
    """Different layer counts by kind of all runs of layers, and which of them each (first, end) is; -1: none."""
    pattern = np.array(model.pattern, dtype=np.int64)
    prefix = np.stack([np.concatenate([[0], np.cumsum(pattern == k)]) for k in range(len(model.kinds))], axis=1)
    low, high = np.triu_indices(model.layers + 1)
    counts, inverse = np.unique(prefix[high] - prefix[low], axis=0, return_inverse=True)
    index = np.full((model.layers + 1, model.layers + 1), -1, dtype=np.int64)
    index[low, high] = inverse.reshape(-1)
    return counts, index


def _spread(values: Floats, index: Ints, pp: int) -> Floats:
    table = values.reshape(pp, -1)
    return np.where(index >= 0, table[:, np.maximum(index, 0)], np.inf)


def _works(training: Training, policy: Policy, stage: Ints, held: Ints) -> Work:
    """One row per stage and set of layers."""
    rows = Policies.of([policy]).take(np.zeros(len(stage), dtype=np.int64))
    work = work_of(training, rows, every_stage=False)
    stages = Stages(
        index=stage[:, None].astype(np.float64),
        kinds=tuple(held[:, k : k + 1].astype(np.float64) for k in range(held.shape[1])),
        layers=held.sum(axis=1, keepdims=True).astype(np.float64),
        first=(stage == 0)[:, None].astype(np.float64),
        last=(stage == policy.pp - 1)[:, None].astype(np.float64),
    )
    return replace(work, stages=stages, parameters=stage_parameters(work.counts, work.layout, stages))


def _seconds(case: Case, policy: Policy, held: Ints, stage: Ints, repeated: Floats, mix: tuple[str, str]) -> Floats:
    both = Policies.of([changed(policy, recompute=r) for r in mix])
    units = estimate(case, both).times.units
    plain, full = (np.array([float(unit.total[row]) for unit in units]) for row in (0, 1))
    counts = np.column_stack([held, stage == 0, stage == policy.pp - 1])
    share = repeated / np.maximum(held.sum(axis=1), 1)
    return np.asarray(counts @ plain + share * (counts @ (full - plain)))
