"""Where the ranks of each axis lie: neighbours of an axis are `stride` global ranks apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, lcm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardwise.arrays import Ints
from shardwise.plugins.collectives import Shape
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import ORDERS, Policies


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
        found["edp"] = np.where(policies.pp > 1, np.maximum(found["edp"], policies.tp * policies.pp), found["edp"])
    return found


def expert_tensor(policies: Policies) -> Ints:
    """The tensor-parallel degree inside an expert; 0 means: as tp when ep is 1, else 1."""
    return np.where(policies.etp > 0, policies.etp, np.where(policies.ep > 1, 1, policies.tp))


def level_members(
    cluster: Cluster, size: ArrayLike, stride: ArrayLike, *, within: tuple[int, int] | None = None, filled: bool = False
) -> Shape:
    """How many ranks of a group lie inside one block of each level, and how far along its rails. `within`: only groups
    of the GPUs from one on and before another, such as those of a pipeline stage. `filled`: as if all filled theirs."""
    ranks, apart = np.broadcast_arrays(np.asarray(size, dtype=np.float64), np.asarray(stride, dtype=np.int64))
    blocks = np.array(cluster.blocks)
    members = np.stack([*(np.clip((block // apart).astype(np.float64), 1.0, ranks) for block in blocks[:-1]), ranks])
    out, in_nodes = None, None
    first, behind = within or (0, cluster.gpus)
    for level, block in enumerate(blocks[:-1].tolist()):
        odd = np.flatnonzero(~_regular(ranks, apart, block, cluster.gpus))
        if len(odd) and not filled:
            out = ranks / members - 1.0 if out is None else out
            for place in odd.tolist():
                found = _uneven(int(ranks.flat[place]), int(apart.flat[place]), block, first, behind)
                members.reshape(len(blocks), -1)[level, place] = found.share if level else found.unit
                out.reshape(len(blocks), -1)[level, place] = found.leaves
                if not level:
                    in_nodes = in_nodes or (np.array(members[0]), np.array(members[0]))
                    in_nodes[0].flat[place], in_nodes[1].flat[place] = found.fewest, found.most
    if out is not None:
        members = np.minimum(np.maximum.accumulate(members, axis=0), ranks)
    node, rails = cluster.node_size, cluster.rails
    one_rail = np.array([1.0, *(rails / block for block in blocks[:-1])]).reshape(-1, *[1] * ranks.ndim)
    if rails == 1:
        tori = tuple(level.torus for level in cluster.levels)
        return Shape(members, out, in_nodes, one_rail=one_rail, torus=tori if any(tori) else ())
    step = apart % node % rails
    # ranks of a node, every so many cards, come round to the first one's rail after as many as there are other rails
    different = np.minimum(rails // np.gcd(step, rails), members[0])
    return Shape(members, out, in_nodes, same_rail=1.0 / different, next_on_rail=step == 0, one_rail=one_rail)


def _regular(ranks: NDArray[np.float64], apart: Ints, block: int, gpus: int) -> NDArray[np.bool_]:
    """Does every block that a group of so many ranks touches hold as many of them; nobody asks for one that is too
    large."""
    span = ranks * apart
    inside, whole = block % span == 0, (span % block == 0) & (block % apart == 0)
    return np.asarray(inside | whole | (apart % block == 0) | (gpus <= block) | (span > gpus) | (ranks <= 1))


@dataclass(frozen=True)
class _Uneven:
    """How groups lie in blocks that hold different numbers of their ranks."""

    unit: int
    """the largest number that the blocks' members are made of"""
    share: float
    """GPUs of a block over the most groups that leave one"""
    leaves: float
    """hops of a chain through a group that leave a block"""
    fewest: int
    """ranks that a block holds of a group that leaves it"""
    most: int


@lru_cache(maxsize=65536)
def _uneven(ranks: int, apart: int, block: int, start: int, behind: int) -> _Uneven:
    """Of groups that lie one after another from one GPU on and before another."""
    span = ranks * apart
    first = start + np.arange(0, max(min(lcm(span, block), (behind - start) // span * span), span), span)
    lies = (first[:, None, None] + np.arange(apart)[:, None] + apart * np.arange(ranks)) // block
    leaves = np.diff(lies, axis=2) != 0
    cuts = np.flatnonzero(leaves.any(axis=(0, 1))) + 1
    # a ring leaves every block that it touches and does not fill once
    split = lies[leaves.any(axis=2)]
    if not len(split):
        return _Uneven(ranks, float(block), 0.0, ranks, ranks)
    begins = np.diff(split, axis=1, prepend=-1) != 0
    fullest = np.bincount(split[begins] - split.min()).max()
    places = np.flatnonzero(begins.ravel())
    runs = np.diff(np.append(places, begins.size))
    return _Uneven(gcd(ranks, *cuts.tolist()), block / float(fullest), float(leaves.sum(axis=2).mean()),
                   int(runs.min()), int(runs.max()))  # fmt: skip
