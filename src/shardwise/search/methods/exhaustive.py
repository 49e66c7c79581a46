"""Every point there is: the referee on small spaces."""

from itertools import islice

import numpy as np

from shardwise.search.methods._contract import Method
from shardwise.search.methods._meter import Meter

CHUNK = 4_096


def _look(meter: Meter, _seed: int) -> None:
    points = meter.problem.every()
    while meter.left and (chunk := list(islice(points, min(CHUNK, meter.left)))):
        meter.price(np.array(chunk))
    meter.proven = meter.evaluations == meter.problem.points


METHOD = Method(name="exhaustive", summary="every point; for small spaces", exact=True, look=_look)
