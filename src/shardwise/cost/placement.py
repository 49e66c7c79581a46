"""Where the ranks of each axis lie: neighbours of an axis are `stride` global ranks apart."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from shardwise.collectives import Shape
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import ORDERS, Ints, Policies


class Placement:
    """Groups of ranks under the policies' own order of axes."""

    def sizes(self, policies: Policies) -> Mapping[str, Ints]:
        """Ranks in one group of each axis, under the same names as `strides`."""
        etp = expert_tensor(policies)
        return {
            "tp": policies.tp, "cp": policies.cp, "dp": policies.dp, "pp": policies.pp,
            "dp_cp": policies.dp * policies.cp, "ep": policies.ep, "etp": etp,
            "edp": np.maximum(policies.dp * policies.cp * policies.tp // (policies.ep * etp), 1),
        }  # fmt: skip

    def strides(self, policies: Policies) -> Mapping[str, Ints]:
        """Consecutive global ranks between two neighbours of a group.

        dp_cp is the group over which gradients are reduced. Experts run over the tp x cp x dp ranks: etp innermost,
        then ep, then edp, the replicas of an expert.
        """
        codes = np.flatnonzero(np.bincount(policies.order)) if len(policies) else np.zeros(0, dtype=np.int64)
        found = _strides(ORDERS[int(codes[0])], policies) if len(codes) else _strides(ORDERS[0], policies)
        for code in codes[1:]:
            mine, other = policies.order == code, _strides(ORDERS[int(code)], policies)
            found = {axis: np.where(mine, other[axis], stride) for axis, stride in found.items()}
        return found


def _strides(order: str, policies: Policies) -> dict[str, Ints]:
    found: dict[str, Ints] = {}
    stride = np.ones_like(policies.tp)
    for axis in order.split("-"):
        found[axis] = stride
        stride = stride * getattr(policies, axis)
    found["dp_cp"] = np.minimum(found["cp"], found["dp"])
    etp = expert_tensor(policies)
    found["etp"], found["ep"], found["edp"] = np.ones_like(etp), etp, etp * policies.ep
    if order.index("pp") < order.index("dp"):
        # stages lie between the replicas of an expert; a rule keeps the ranks of one expert group together
        found["edp"] = np.maximum(found["edp"], policies.tp * policies.pp)
    return found


def expert_tensor(policies: Policies) -> Ints:
    """The tensor-parallel degree inside an expert; 0 means: as tp when ep is 1, else 1."""
    return np.where(policies.etp > 0, policies.etp, np.where(policies.ep > 1, 1, policies.tp))


def level_members(cluster: Cluster, size: ArrayLike, stride: ArrayLike) -> Shape:
    """How many ranks of a group lie inside one block of each level."""
    ranks, apart = np.broadcast_arrays(np.asarray(size, dtype=np.float64), np.asarray(stride, dtype=np.int64))
    blocks = np.cumprod([level.degree for level in cluster.levels])
    rows = [np.clip((block // apart).astype(np.float64), 1.0, ranks) for block in blocks[:-1]]
    return Shape(np.stack([*rows, ranks]))
