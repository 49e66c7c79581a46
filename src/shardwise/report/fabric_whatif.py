"""What-ifs of a studied step as rows: collectives, and between which bounds the step grows."""

from collections.abc import Iterator

from msgspec import Struct

from shardwise.fabric.whatif import WhatIf, what_ifs
from shardwise.report.fabric_build import Studied


class WhatIfRow(Struct, frozen=True, kw_only=True):
    name: str
    what: str
    communication_s: float
    """collectives of a step, before overlap"""
    times: float
    """as long as planned"""
    p95_s: float | None
    step_low_s: float
    """if what is added hides as well as the rest does"""
    step_high_s: float
    """if none of it hides"""


def rows_of(studied: Studied) -> Iterator[WhatIfRow]:
    base: WhatIf | None = None
    for found in what_ifs(studied.load, [p.call for p in studied.load.priced]):
        base = base or found
        grown = {axis: seconds - base.seconds[axis] for axis, seconds in found.seconds.items()}
        step = studied.report.step_s
        yield WhatIfRow(
            name=found.name, what=found.what, communication_s=found.total_s,
            times=found.total_s / base.total_s if base.total_s else 1.0, p95_s=found.p95_s,
            step_low_s=step + sum(studied.exposed[axis] * more for axis, more in grown.items()),
            step_high_s=step + sum(grown.values()),
        )  # fmt: skip
