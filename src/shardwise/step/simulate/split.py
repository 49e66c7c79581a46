"""The timeline of a step whose stages hold given layers, some of them recomputed.

Which layers are best is looked for elsewhere: `search/problems/stages.py`.
"""

from collections.abc import Sequence
from dataclasses import replace as with_

import numpy as np
from msgspec.structs import replace

from shardwise.spec.policy import Policy
from shardwise.step.simulate.step import Simulation, composed, simulate
from shardwise.work.case import Case


def simulate_split(case: Case, policy: Policy, layers: Sequence[int], recomputed: Sequence[int]) -> Simulation:
    """The step with these layers on each stage, so many of them computed again in the backward."""
    plain, full = (
        simulate(case, replace(policy, recompute=recompute, recompute_layers=-1), rank_layers=tuple(layers))
        for recompute in ("none", "full")
    )
    if not any(recomputed):
        return plain
    program = plain.program
    rank_share = np.array(recomputed) / np.maximum(layers, 1)
    share = np.zeros(program.stages)
    for chunk in range(program.held.shape[1] - 1, -1, -1):
        share[program.held[:, chunk]] = rank_share
    a, b = plain.costs, full.costs
    again = rank_share > 0
    held = with_(
        a.held,
        # what one layer makes again stands beside the rest as soon as any does
        static={kind: np.where(again, b.held.static[kind], size) for kind, size in a.held.static.items()},
        saved=a.held.saved + rank_share[:, None] * (b.held.saved - a.held.saved),
        once=np.where(again, b.held.once, a.held.once),
    )
    costs = with_(
        a,
        forward=a.forward + share * (b.forward - a.forward),
        backward=a.backward + share * (b.backward - a.backward),
        input_gradient=a.input_gradient + share * (b.input_gradient - a.input_gradient),
        recompute=share * b.recompute,
        held=held,
    )
    return with_(composed(plain.policy, plain.closed, program, costs), rank_layers=plain.rank_layers)
