"""A long broadcast as NCCL runs it: pieces go down one chain through all ranks, each rank passing on what it has whole.

NCCL's only algorithm for a broadcast is the ring, and its tuner counts one step of it however many ranks there are
(src/graph/tuning.cc: Reduce and Broadcast), so long messages take the protocol of full bandwidth. A piece is what a
rank waits for before it passes it on: one of 8 steps of a buffer of 4 MiB (src/init.cc: DEFAULT_BUFFSIZE,
device.h: NCCL_STEPS, collectives.h: BROADCAST_CHUNKSTEPS). The last rank has nothing before the first piece has been
through all others:

    t = start + hops · (step + piece / link) + bytes / rate
"""

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.cost.network import Network, distinct
from shardwise.plugins.collectives import collective

PIECE = 4 * 2**20 / 8
"""bytes"""


def relay_seconds(network: Network, bytes_: Floats, size: Floats | Ints, stride: Ints) -> Floats:
    """One message from one rank to all others of its group."""
    ranks, apart, group = distinct(size, stride)
    latency, slope, fill = _line(network, ranks, apart)
    message = np.asarray(bytes_, dtype=np.float64)
    return np.asarray(latency[group] + fill[group] * np.minimum(message, PIECE) + slope[group] * message)


def _line(network: Network, ranks: Ints, apart: Ints) -> tuple[Floats, Floats, Floats]:
    """Of each group: seconds without bytes, per byte of the message, and per byte of a piece."""
    ring, shape = collective("ring"), network.shape(ranks, apart)
    latency, slope, _ = network.lines(ring, "broadcast", shape)
    whole = network.protocols(ring)[-1]
    hops = ring.load("broadcast", shape).steps
    # one piece at a time goes over a card, also where several GPUs share it
    rates = [byte_s / network.cluster.gpus_per_card(level) for level, byte_s in enumerate(whole.byte_s)]
    fill = sum((each * rate for each, rate in zip(hops, rates, strict=True)), start=np.zeros_like(shape.size))
    alone = shape.size <= 1.0
    return (np.where(alone, 0.0, latency[-1]), np.where(alone, 0.0, slope[-1]), np.where(alone, 0.0, fill))
