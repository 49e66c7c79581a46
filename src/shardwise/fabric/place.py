"""Ranks onto GPUs: which ranks form the groups of each axis, and which GPU each rank runs on.

Groups are cost/placement.py's; `order` says which axes lie on neighbouring ranks, `deal` how ranks are dealt out to
GPUs, and `ring` in which order a group's ranks stand in a ring.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardwise.arrays import Ints
from shardwise.cost.placement import Placement
from shardwise.fabric.links import RoutedFabric
from shardwise.registry import closest
from shardwise.spec.policy import GRID, SHARDED, Policies, Policy

"""the usual order, innermost first"""
DEALS = {
    "packed": "consecutive ranks on neighbouring GPUs, nodes in the order of their leaves",
    "alternating": "consecutive nodes in turn under different groups of leaves",
    "shifted": "each node's ranks start one NIC further on, so that equal local ranks lie on different rails",
    "random": "nodes as a scheduler hands them out",
    "scattered": "consecutive ranks on different nodes",
}
RINGS = {"rank": "as the ranks are numbered", "sorted": "by leaf group, node and rail"}


@dataclass(frozen=True)
class Seats:
    """Where the ranks of a policy lie."""

    policy: Policy
    order: tuple[str, ...]
    gpu: Ints
    """of each rank"""
    ring: str
    sort_key: Ints
    """of each GPU: its place by leaf group, node and rail"""
    twin: "Seats | None" = None
    """another job of the same policy that runs beside it"""
    _groups: dict[str, Ints] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _where(self) -> dict[str, Ints]:
        """Coordinate of each rank on each axis."""
        ranks, stride, found = np.arange(self.policy.gpus), 1, {}
        for axis in self.order:
            size = int(getattr(self.policy, axis))
            found[axis] = ranks // stride % size
            stride *= size
        return found

    @cached_property
    def stage(self) -> Ints:
        """Pipeline stage of each GPU; -1 where no rank runs."""
        stage = np.full(len(self.sort_key), -1, dtype=np.int64)
        stage[self.gpu] = self._where["pp"]
        return stage if self.twin is None else np.maximum(stage, self.twin.stage)

    def groups(self, name: str) -> Ints:
        """groups x ranks of one group, as GPUs; names as in Placement.sizes; the twin's behind the own."""
        if name not in self._groups:
            own = self.gpu[self._ranks(name)]
            self._groups[name] = own if self.twin is None else np.concatenate([own, self.twin.groups(name)])
        return self._groups[name]

    def ringed(self, members: Ints) -> Ints:
        if self.ring == "rank":
            return members
        return np.take_along_axis(members, np.argsort(self.sort_key[members], axis=1, kind="stable"), axis=1)

    def _ranks(self, name: str) -> Ints:
        where, policy = self._where, self.policy
        if name in ("ep", "etp", "edp"):
            sizes = {k: int(v[0]) for k, v in Placement().sizes(Policies.of([policy])).items()}
            stage = self._ordered(SHARDED, ("pp",)).reshape(policy.pp, -1)
            stage = np.sort(stage, axis=1)
            cube = stage.reshape(policy.pp, sizes["edp"], sizes["ep"], sizes["etp"])
            axis = {"edp": 1, "ep": 2, "etp": 3}[name]
            return np.moveaxis(cube, axis, -1).reshape(-1, sizes[name])
        inner = {"dp_cp": ("cp", "dp")}.get(name, (name,))
        if name == "dp_cp" and self.order.index("dp") < self.order.index("cp"):
            inner = ("dp", "cp")
        outer = tuple(axis for axis in where if axis not in inner)
        size = int(np.prod([getattr(policy, axis) for axis in inner]))
        return self._ordered(inner, outer).reshape(-1, size)

    def _ordered(self, inner: tuple[str, ...], outer: tuple[str, ...]) -> Ints:
        """Ranks with the inner axes running fastest, their first one first."""
        return np.lexsort([self._where[axis] for axis in (*inner, *outer)])


def seats_of(
    policy: Policy, fabric: RoutedFabric, *, order: tuple[str, ...] | None = None, deal: str = "packed",
    ring: str = "rank", seed: int = 0,
) -> Seats:  # fmt: skip
    order = order or tuple(policy.order.split("-"))
    if sorted(order) != sorted(GRID) or order[0] != GRID[0]:
        raise ValueError(f"order: {'-'.join(order)} is unknown; write tp first, then cp, dp and pp as they are to lie")
    if policy.gpus > fabric.gpus:
        raise ValueError(f"placement: the policy needs {policy.gpus:,} GPUs, the fabric has {fabric.gpus:,}")
    for what, value, known in (("deal", deal, DEALS), ("ring", ring, RINGS)):
        if value not in known:
            raise ValueError(f"{what}: {value!r} is unknown; {closest(value, list(known))}")
    packed = np.lexsort([fabric.rail, fabric.node, fabric.unit])
    key = np.empty(len(packed), dtype=np.int64)
    key[packed] = np.arange(len(packed))
    gpu = _dealt(packed[: policy.gpus], fabric, deal, seed)
    return Seats(policy, order, gpu, ring, key)


def _dealt(packed: Ints, fabric: RoutedFabric, deal: str, seed: int) -> Ints:
    node = fabric.node[packed]
    if deal == "packed":
        return packed
    if deal == "scattered":
        place = np.arange(len(packed)) - np.searchsorted(node, node)  # nodes rise along the packed order
        return packed[np.lexsort([node, place])]
    _, first, size = np.unique(node, return_index=True, return_counts=True)
    blocks = [packed[a : a + n] for a, n in zip(first, size, strict=True)]
    if deal == "shifted":
        return np.concatenate([np.roll(block, -number) for number, block in enumerate(blocks)])
    if deal == "random":
        return np.concatenate([blocks[i] for i in np.random.default_rng(seed).permutation(len(blocks))])
    unit = np.array([fabric.unit[block[0]] for block in blocks])
    turn = np.arange(len(unit)) - np.searchsorted(unit, unit)
    return np.concatenate([blocks[i] for i in np.lexsort([unit, turn])])
