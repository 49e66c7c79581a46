"""A problem from a model, groups of GPUs and a policy, through the estimate's own pieces: no second cost formula."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from shardwise.arrays import Ints
from shardwise.plan.search.problems.stages._problem import StageOption, StageProblem
from shardwise.plugins.schedules import schedules
from shardwise.spec.parameters import check_value
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import split_refusal
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.synced import SyncChoice
from shardwise.step.simulate.segments import Segments, segments_of
from shardwise.work.case import Case

MOST_ENTRIES = 20_000_000
"""options x stages x layers squared: each takes 32 bytes"""


@dataclass(frozen=True)
class GpuGroup:
    """GPUs of one kind, and how many of the pipeline's stages run on them."""

    case: Case
    """the same training as of the other groups, on these GPUs"""
    stages: int

    @property
    def gpus(self) -> int:
        return self.case.cluster.gpus


PLAIN_MIX = (("none", "full"),)
"""layers that need not recompute do not, those that must do so whole"""


def stage_problem(
    groups: Sequence[GpuGroup],
    policy: Policy,
    *,
    stage_tp: Sequence[int] = (),
    headroom: float = 1.0,
    most_bytes: float = np.inf,
    mixes: Sequence[tuple[str, str]] = PLAIN_MIX,
    sync: SyncChoice | None = None,
) -> StageProblem:
    """`stage_tp`: the tensor-parallel degrees a stage may choose from (default: the policy's). A stage keeps its GPUs
    and the pipeline its number of micro-batches, so with another tp come another dp and another micro-batch.

    The policy's recompute is not used: each stage recomputes as many layers as it must, in the best of `mixes`.
    `most_bytes`: a stage may fill, where that is less than the headroom. `sync`: in place of the mean gradient.
    """
    _check(groups, policy, headroom)
    model = groups[0].case.model
    degrees = tuple(dict.fromkeys(stage_tp)) or (policy.tp,)
    plain = replace(policy, recompute="none", recompute_layers=-1)
    chosen = [(place, p) for place, group in enumerate(groups) for p in stage_policies(group, plain, degrees)]
    if len(chosen) * policy.pp * model.layers**2 > MOST_ENTRIES:
        raise ValueError(f"pp: {policy.pp} stages of {model.layers:,} layers with {len(chosen)} options are too many; "
                         "write a smaller pp or fewer degrees in stage-tp")  # fmt: skip
    options, tables, found = [], [], []
    for place, own in chosen:
        case = groups[place].case
        whole = estimate(case, Policies.of([own]), every_stage=True, sync=sync)
        memory = case.cluster.gpu.memory_bytes
        limit = min(headroom * memory, memory - case.stack.memory.reserve_bytes, most_bytes)
        tables.append(best_segments(case, own, limit, mixes, sync))
        options.append(StageOption(place, case.cluster.name, own, limit, once_seconds(whole, policy)))
        found.append(whole)
    micro = float(found[0].work.layout.micro_batches[0])
    firsts = [next(i for i, option in enumerate(options) if option.group == place) for place in range(len(groups))]
    return StageProblem(
        options=tuple(options), group_stages=tuple(group.stages for group in groups), pattern=tuple(model.pattern),
        micro_batches=micro, share=idle_share(found[0], policy), stretch=max(map(stretch_of, found)),
        overhead_s=found[0].work.stack.host.step_overhead_s, mixes=tuple(mixes), **joined_tables(tables),
        even=(
            tuple(found[0].work.stages.layers[0].astype(int).tolist()),
            tuple(first for first, group in zip(firsts, groups, strict=True) for _ in range(group.stages)),
        ),
    )  # fmt: skip


def best_segments(
    case: Case, policy: Policy, limit: float, mixes: Sequence[tuple[str, str]], sync: SyncChoice | None = None
) -> tuple[Segments, Ints]:
    """Every run of layers on every stage with the way to recompute that is fastest there, and which that is."""
    found = [segments_of(case, policy, limit, mix, sync) for mix in mixes]
    fits = np.stack([np.isfinite(each.seconds) for each in found])
    seconds = np.stack([each.any_seconds for each in found])
    # where nothing fits, what comes nearest
    worth = np.where(fits.any(axis=0), np.where(fits, seconds, np.inf), np.stack([each.bytes for each in found]))
    best = worth.argmin(axis=0)
    names = ("seconds", "any_seconds", "recomputed", "bytes")
    stacked = {name: np.stack([getattr(each, name) for each in found]) for name in names}
    return Segments(**{name: np.take_along_axis(table, best[None], 0)[0] for name, table in stacked.items()}), best


def joined_tables(tables: Sequence[tuple[Segments, Ints]]) -> dict[str, Any]:
    found = {name: np.stack([getattr(table, name) for table, _ in tables])
             for name in ("seconds", "any_seconds", "recomputed", "bytes")}  # fmt: skip
    return found | {"mix": np.stack([mix for _, mix in tables])}


def _check(groups: Sequence[GpuGroup], policy: Policy, headroom: float) -> None:
    check_value("headroom", headroom)
    if not 1 <= len(groups) <= 2:
        raise ValueError(f"groups: {len(groups)} groups of GPUs; write one or two")
    model = groups[0].case.model
    if not model.layers:
        raise ValueError(f"model: {model.name} has no layers to deal out; write a model with some")
    if any(group.stages < 1 for group in groups) or sum(group.stages for group in groups) != policy.pp:
        stages = " + ".join(str(group.stages) for group in groups)
        raise ValueError(f"groups: {stages} stages do not make pp {policy.pp}; write 1 or more for each")
    for group in groups:
        if group.gpus % group.stages:
            raise ValueError(f"groups: {group.gpus} GPUs of {group.case.cluster.name} do not divide by its "
                             f"{group.stages} stages; write another pp or number of GPUs")  # fmt: skip


def stage_policies(group: GpuGroup, policy: Policy, degrees: Sequence[int]) -> list[Policy]:
    """The policy on this group with each degree that is possible; none is an error that says why."""
    gpus = group.gpus // group.stages
    at_once, found, why = policy.dp * policy.micro_batch, [], ""
    for tp in degrees:
        if tp < 1 or gpus % (tp * policy.cp) or at_once % (dp := gpus // (tp * policy.cp)):
            why = why or (f"tp {tp} and cp {policy.cp} on {gpus} GPUs of a stage leave no dp that divides the "
                          f"{at_once} sequences of a micro-batch")  # fmt: skip
            continue
        own = replace(policy, tp=tp, dp=dp, micro_batch=at_once // dp, sp=policy.sp and tp > 1)
        broken = split_refusal(group.case.model, group.case.job, own)
        why = why or broken
        if not broken:
            found.append(own)
    if not found:
        raise ValueError(f"tp: no degree of {', '.join(map(str, degrees))} works on {group.case.cluster.name}: {why}; "
                         "write others")  # fmt: skip
    return found


def once_seconds(found: Estimate, policy: Policy) -> float:
    """What of the even split's step is neither the slowest stage's steady phase nor the filling and draining."""
    times, stage = found.times, found.times.stage_s[0]
    micro = float(found.work.layout.micro_batches[0])
    share = idle_share(found, policy)
    pipeline = (micro - share) * stage.max() + share * stage.sum()
    return float(times.step_s[0] - times.parts["other"][0] - pipeline)


def idle_share(found: Estimate, policy: Policy) -> float:
    """Idle time of the schedule over pp - 1, in micro-batches."""
    layout = found.work.layout
    idle = schedules()[policy.schedule].idle(policy.pp, policy.vpp, float(layout.in_pass[0]))
    return float(layout.passes[0] * idle) / max(policy.pp - 1, 1)


def stretch_of(found: Estimate) -> float:
    other = float(found.times.parts["other"][0])
    busy = float(found.times.step_s[0]) - other
    return 1.0 + (other - found.work.stack.host.step_overhead_s) / busy
