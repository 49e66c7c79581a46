"""What-ifs of a studied step as rows: collectives, and the step they lead to."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from shardwise.fabric.demand import demand_of
from shardwise.fabric.whatif import Variant, collectives_s, variants_of
from shardwise.question.studies.fabric.build import FabricStudy
from shardwise.step.simulate.joint import joint_step

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


def rows_of(studied: FabricStudy) -> Iterator[WhatIfRow]:
    loop = studied.loop
    planned = sum(collectives_s(Variant("", "", ()), loop.load).values())
    for variant in variants_of(loop.load):
        joint = loop.seconds * len(variant.loads) <= PATIENCE_S
        steps, sums = [], []
        for load_of in variant.loads:
            load = load_of()
            sums.append(sum(collectives_s(variant, load).values()))
            gained = loop.joint.step_s + sums[-1] - planned
            steps.append(joint_step(loop.simulation, demand_of(load, variant.slower)).step_s if joint else gained)
        times = float(np.mean(sums)) / planned if planned else 1.0
        # of a step of which the loop ran a part, all of it grows alike
        whole = studied.report.step_s / loop.joint.step_s
        yield WhatIfRow(
            name=variant.name, what=variant.what,
            communication_s=times * sum(studied.report.communication_s.values()), times=times,
            step_s=float(np.mean(steps)) * whole,
            step_p95_s=float(np.quantile(steps, 0.95)) * whole if len(steps) > 1 else None,
            growth=float(np.mean(steps)) / loop.joint.step_s - 1.0, answered=JOINT if joint else ALONE,
        )  # fmt: skip
