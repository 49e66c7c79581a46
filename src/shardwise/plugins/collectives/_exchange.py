"""What an exchange of every rank with every other loads the levels with."""

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Load, Shape

_AT_ONCE = 8.0
"""peers a library serves side by side, so that their latencies hide each other"""


def exchange_steps(peers: Floats) -> Floats:
    return np.where(peers > 0.0, 1.0 + (peers - 1.0) / _AT_ONCE, 0.0)


def exchange_load(shape: Shape, passes: float = 1.0) -> Load:
    peers = shape.members - shape.below
    volume = np.where(shape.passed, (shape.size - shape.below) / shape.size, 0.0)
    # Above the node, what goes to far peers passes the near levels on its way; inside it, only what stays there.
    volume[0] = peers[0] / shape.size
    across = passes * (1.0 - shape.same_rail) * peers / shape.size
    across[0] = 0.0
    return Load(steps=passes * exchange_steps(peers), volume=passes * volume, own=1.0 / shape.size, across=across)
