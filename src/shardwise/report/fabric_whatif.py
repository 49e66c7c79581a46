"""What-ifs of a studied step as rows: collectives, and the step they lead to."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from shardwise.fabric.demand import demand_of
from shardwise.fabric.step import StepLoad
from shardwise.fabric.whatif import Variant, collectives_s, variants_of
from shardwise.report.fabric_build import Studied
from shardwise.simulate.joint import joint_step

PATIENCE_S = 20.0
"""longest that one row may take with the joint loop"""
JOINT, ALONE = "joint loop", "kinds alone"


class WhatIfRow(Struct, frozen=True, kw_only=True):
    name: str
    what: str
    communication_s: float
    """collectives of a step, before overlap; of hashes the mean over seeds"""
    times: float
    """as long as planned"""
    step_s: float
    """of hashes the mean over seeds"""
    step_p95_s: float | None
    """over the seeds of a hash"""
    growth: float
    """of the step"""
    answered: str
    """by the joint loop, or by pricing kinds alone with all that they gain exposed, where the loop takes too long"""


def rows_of(studied: Studied) -> Iterator[WhatIfRow]:
    base = collectives_s(Variant("", "", ()), studied.load)
    planned = sum(base.values())
    for variant in variants_of(studied.load):
        joint = studied.loop_s * len(variant.loads) <= PATIENCE_S
        steps, sums = [], []
        for load_of in variant.loads:
            load = load_of()
            sums.append(sum(collectives_s(variant, load).values()))
            steps.append(_step(studied, variant, load) if joint else studied.report.step_s + sums[-1] - planned)
        step = float(np.mean(steps))
        yield WhatIfRow(
            name=variant.name, what=variant.what, communication_s=float(np.mean(sums)),
            times=float(np.mean(sums)) / planned if planned else 1.0, step_s=step,
            step_p95_s=float(np.quantile(steps, 0.95)) if len(steps) > 1 else None,
            growth=step / studied.report.step_s - 1.0, answered=JOINT if joint else ALONE,
        )  # fmt: skip


def _step(studied: Studied, variant: Variant, load: StepLoad) -> float:
    return joint_step(studied.simulation, demand_of(load, variant.slower)).step_s
