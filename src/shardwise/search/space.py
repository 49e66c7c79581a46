"""Every legal policy of a model, cluster and job, as columns.

Degrees are divisors of the number of GPUs, so that every point uses all of them; the caps in `Limits` leave out what
has never been worth it (tensor parallelism over many nodes, micro-batches of hundreds of sequences).
"""

from math import ceil

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import RECOMPUTE, SCHEDULES, ZERO, Ints, Policies
from shardwise.spec.rules import divisors, legal
from shardwise.spec.stack import Stack


class Limits(Struct, frozen=True, kw_only=True):
    nodes_of_tp: int = 2
    """tensor parallelism spans at most this many fast domains: every layer waits for its collectives"""
    tp: int = 64
    least_local_seq: int = 1024
    """context parallelism leaves each rank at least this many tokens of a sequence"""
    micro_batch: int = 16
    """largest; only powers of two"""
    vpp: int = 16
    zero_with_stages: int = 1
    """highest ZeRO stage together with pipeline stages: sharded gradients would be reduced for every micro-batch"""
    zero: tuple[int, ...] = ZERO
    recompute: tuple[str, ...] = ("none", "full")
    """selective recompute drops the attention scores, which flash attention never keeps: it could only lose"""


class Space(Struct, frozen=True):
    policies: Policies
    points: int
    """of the whole grid, before the rules"""


def space(model: Model, cluster: Cluster, job: Job, stack: Stack, limits: Limits | None = None) -> Space:
    """Columns of every legal policy inside the limits; overlap settings are the stack's."""
    bounds = limits or Limits()
    degrees = _degrees(model, cluster, job, bounds)
    settings = _product(
        [m for m in _powers(bounds.micro_batch) if job.global_batch % m == 0],
        list(bounds.zero),
        [RECOMPUTE.index(name) for name in bounds.recompute],
    )
    left, right = np.repeat(degrees, len(settings), axis=0), np.tile(settings, (len(degrees), 1))
    tp, pp, cp, vpp, ep = left.T
    micro, zero, recompute = right.T
    size = len(left)
    columns = Policies.columns(
        size, tp=tp, pp=pp, cp=cp, vpp=vpp, ep=ep, micro_batch=micro, zero=zero, recompute=recompute,
        dp=cluster.gpus // np.maximum(tp * pp * cp, 1),
        sp=(tp > 1).astype(np.int64),
        schedule=np.where(vpp > 1, SCHEDULES.index("interleaved"), SCHEDULES.index("1f1b")),
        **{f: np.full(size, int(getattr(stack, f)))
           for f in ("overlap_grad", "overlap_param", "overlap_tp", "overlap_pp")},
    )  # fmt: skip
    ok = legal(model, cluster, job, columns) & _worth_a_look(columns, bounds)
    return Space(columns.take(np.flatnonzero(ok)), size)


def _worth_a_look(p: Policies, bounds: Limits) -> NDArray[np.bool_]:
    """No two points that are the same run, and no ZeRO stage a pipeline cannot use."""
    shared = p.dp * p.cp > 1
    return np.asarray((shared | (p.zero == min(bounds.zero))) & ((p.pp == 1) | (p.zero <= bounds.zero_with_stages)))


def _degrees(model: Model, cluster: Cluster, job: Job, bounds: Limits) -> Ints:
    """Rows of (tp, pp, cp, vpp, ep) that use every GPU and give each chunk a layer."""
    gpus = divisors(cluster.gpus)
    most_tp = min(bounds.nodes_of_tp * cluster.node_size, bounds.tp)
    cps = [d for d in gpus if d == 1 or (job.seq % (2 * d) == 0 and job.seq // d >= bounds.least_local_seq)]
    rows = _product(
        [d for d in gpus if d <= most_tp], [d for d in gpus if d <= max(model.layers, 1)], cps,
        list(range(1, bounds.vpp + 1)), _expert_degrees(model, cluster),
    )  # fmt: skip
    tp, pp, cp, vpp, _ = rows.T
    # equal chunks, where embedding and head may stand for a layer each (126 layers on 16 x 8 chunks)
    equal = (model.layers % (pp * vpp) == 0) | ((model.layers + 2) % (pp * vpp) == 0)
    chunks = (vpp == 1) | ((pp > 1) & equal)
    return np.asarray(rows[(cluster.gpus % (tp * pp * cp) == 0) & chunks])


def _expert_degrees(model: Model, cluster: Cluster) -> list[int]:
    counts = {kind.experts.count for kind in model.kinds if kind.experts}
    if not counts:
        return [1]
    return [d for d in divisors(min(counts)) if d <= cluster.gpus]


def _powers(most: int) -> list[int]:
    return [2**i for i in range(ceil(np.log2(most)) + 1) if 2**i <= most]


def _product(*axes: list[int]) -> Ints:
    grids = np.meshgrid(*(np.array(axis, dtype=np.int64) for axis in axes), indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)
