"""Strategies by block of layers: stages of one pipeline with a tensor and data parallelism of their own.

Stages pass on the same sequences at a time, so that one with half the tensor parallelism has twice the replicas and
half the micro-batch, on as many GPUs. It pays where memory is short on some stages only. For the policies with the
least bounds the best choice of all stages is worked out exactly; what it chose then is a line like any other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems.joint import Line
from shardwise.plan.search.problems.stages import StageProblem

MOST_POLICIES = 4
"""whose stages are looked at so"""
BUDGET = 3_000


def block_lines(lines: Sequence[Line], best: float) -> Iterator[Line]:
    """Lines with unlike stages whose objective is below the best known."""
    seen, tried = set[tuple[object, ...]](), 0
    for line in lines:
        own = line.policy
        key = (own.pp, own.cp, own.dp * own.micro_batch, own.zero, own.offload, own.order, own.schedule, own.sync)
        if line.own_tp is None or own.pp < 2 or key in seen:
            continue
        seen.add(key)
        stages = line.own_tp()
        if stages is None:
            continue
        tried += 1
        found = _unlike(line, stages)
        if found is not None and found.least_s < best:
            yield found
        if tried == MOST_POLICIES:
            return


def _unlike(line: Line, stages: StageProblem) -> Line | None:
    """None where the best stages are all alike, or nothing fits."""
    found = method_of("dp").solve(stages, budget_evaluations=BUDGET)
    if found.point is None:
        return None
    layers, options = (tuple(half.tolist()) for half in np.split(found.point, 2))
    if len(set(options)) < 2:
        return None
    fixed = replace(stages, even=(layers, options))
    first = stages.options[options[0]].policy
    told = "+".join(str(stages.options[option].policy.tp) for option in options)
    return replace(
        line, policy=first, least_s=line.weight * found.objective_s * (1.0 - 1e-9), build=lambda: fixed, unlike=True,
        what=f"tp {told} by stage", placed_s=np.inf, own_tp=None, _built=None,
    )  # fmt: skip
