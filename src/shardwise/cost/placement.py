"""Where the ranks of each axis lie: neighbours of an axis are `stride` global ranks apart."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shardwise.collectives import Shape
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Ints, Policies

AXES = ("tp", "cp", "dp", "pp")


@dataclass(frozen=True)
class Placement:
    """Axes from the innermost (consecutive ranks) to the outermost."""

    order: tuple[str, ...] = AXES

    def __post_init__(self) -> None:
        if sorted(self.order) != sorted(AXES) or self.order[0] != "tp":
            raise ValueError(
                f"placement: order is {self.order}; write tp first, then cp, dp and pp in the order they are to lie"
            )

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
        then ep, then edp, the replicas of an expert; stages that lie inside dp stay between expert replicas.
        """
        found: dict[str, Ints] = {}
        stride = np.ones_like(policies.tp)
        for axis in self.order:
            found[axis] = stride
            stride = stride * getattr(policies, axis)
        found["dp_cp"] = found["cp"] if self.order.index("cp") < self.order.index("dp") else found["dp"]
        etp = expert_tensor(policies)
        found["etp"], found["ep"], found["edp"] = np.ones_like(etp), etp, etp * policies.ep
        if self.order.index("pp") < self.order.index("dp"):
            found["edp"] = found["edp"] * policies.pp
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
