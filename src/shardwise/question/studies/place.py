"""Which free nodes of a site a policy takes, and in which order its ranks lie on them.

The search of `search/problems/ranks` looks for the order; what is compared and chosen is the whole step at flow level,
on the site's own tree of switches: nodes as they are listed, packed block by block, in equal segments that each lie
in one block, and as the search found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np
from msgspec.structs import replace as with_fields

from shardwise.arrays import Ints
from shardwise.fabric.calls import PlacedMessage, calls_of
from shardwise.fabric.place import Seats, seats_of
from shardwise.fabric.price import Prices, Quotes
from shardwise.fabric.site import Site, SiteLevel
from shardwise.fabric.step import step_load
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import MOST_GPUS, tree_of
from shardwise.plan.search.methods import BUDGET, method_for
from shardwise.plan.search.problems.ranks import RankProblem, rank_problem_at
from shardwise.question.studies.fabric.loop import looped
from shardwise.refusal import is_refusal
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.policy import Policy
from shardwise.spec.usual import usual_fabric
from shardwise.step.simulate import simulate
from shardwise.step.simulate.step import Simulation
from shardwise.work.case import Case

SEARCHED = 1024
"""free nodes a search looks through; of more, those of the blocks with most free nodes"""
AXES = ("tp", "cp", "ep", "dp", "pp")
SAME = 1e-3
"""steps that differ by less are as good: the nodes as listed are kept"""


@dataclass(frozen=True)
class AxisGroups:
    """How many groups of an axis, of those that span several nodes, stay inside one block of each level."""

    axis: str
    groups: int
    inside: dict[str, int]


@dataclass(frozen=True)
class NodeOrder:
    """Nodes in the order of the ranks, and what a step takes on them."""

    name: str
    nodes: tuple[str, ...]
    step_s: float
    communication_s: float
    """all collectives one after another, before overlap"""
    groups: tuple[AxisGroups, ...]


@dataclass(frozen=True)
class NodeChoice:
    orders: tuple[NodeOrder, ...]
    """as listed, packed, in segments, searched"""
    chosen: NodeOrder
    run: int
    """as many nodes one after another always lie in one block of the lowest level"""
    blocks_used: dict[str, int]
    """level -> blocks that hold a node of the job"""
    node_gpus: int
    notes: tuple[str, ...]

    @property
    def listed(self) -> NodeOrder:
        return self.orders[0]


def choose_nodes(
    case: Case, policy: Policy, site: Site, free: Sequence[str], *, budget: int = BUDGET, seed: int = 0
) -> NodeChoice:
    """The policy must be legal; bad input is a ValueError."""
    ground = _Ground(case, policy, site)
    held = site.numbers(free, "free")
    needed = ground.hosts
    if len(held) < needed:
        raise ValueError(
            f"free: {len(held):,} nodes, but the policy's {policy.gpus:,} GPUs need {needed:,} of {ground.host_gpus}; "
            "free more, or plan for fewer GPUs"
        )
    priced = _Priced(ground, held)
    packed = ground.packed(held)
    orders = [
        priced.order("as listed", held[:needed]), priced.order("packed", packed[:needed]),
        priced.order("in segments", ground.in_segments(packed)),
    ]  # fmt: skip
    notes = list(ground.notes)
    near = packed[: max(SEARCHED, needed)]
    try:
        problem = _problem(ground, near)
    except ValueError as error:
        if not is_refusal(error):
            raise
        notes.append(f"nothing is searched: {error}")
    else:
        orders.append(priced.order("searched", _searched(ground, problem, near, budget, seed)))
    best = min(orders, key=lambda order: order.step_s)
    chosen = orders[0] if orders[0].step_s <= best.step_s * (1.0 + SAME) else best
    places = site.numbers(chosen.nodes, "free")
    used = {level.name: len(np.unique(level.block[places])) for level in ground.levels}
    return NodeChoice(tuple(orders), chosen, _run(ground.levels[0].block[places]), used, ground.host_gpus, tuple(notes))


def _run(blocks: Ints) -> int:
    """The longest length that divides the nodes and whose every stretch lies in one block."""
    count = len(blocks)
    lengths = [length for length in range(1, count + 1) if count % length == 0]
    return max(length for length in lengths if (np.ptp(blocks.reshape(-1, length), axis=1) == 0).all())


class _Ground:
    """The site as levels of the cluster: what each level carries is the cluster's, how many it joins the site's."""

    def __init__(self, case: Case, policy: Policy, site: Site) -> None:
        self.site, self.policy, self.notes = site, policy, list[str]()
        inner = case.cluster.levels[0]
        tray = usual_fabric(case.cluster.gpu).tray
        self.host_gpus = min(tray, inner.degree) if tray else inner.degree
        if policy.gpus % self.host_gpus:
            raise ValueError(
                f"policy: its {policy.gpus} GPUs are not whole nodes of {self.host_gpus}; write other degrees"
            )
        self.hosts = policy.gpus // self.host_gpus
        self.levels = (self._domain(), *site.network) if self.host_gpus < inner.degree else site.network
        if len(self.levels[-1].names) > 1:
            names, count = self.levels[-1].names, len(site.nodes)
            self.levels = (*self.levels, SiteLevel("top", np.zeros(count, dtype=np.int64), ("top",)))
            self.notes.append(f"nothing in the topology joins {names[0]} and {names[1]}: a level above them is assumed")
        self.cluster = self._cluster(case.cluster)
        self.case = case.on(with_fields(self.cluster, gpus=policy.gpus))

    def _domain(self) -> SiteLevel:
        if self.site.domain is None:
            raise ValueError(
                "topology: one NVLink domain spans many nodes here, and the file does not say which; write a nodes.csv "
                "with the columns node, rack and leaf, or Slurm's BlockName lines"
            )
        return self.site.domain

    def _cluster(self, cluster: Cluster) -> Cluster:
        """With as many levels of switches as the site, each as wide as its fullest block there."""
        domain = self.host_gpus < cluster.levels[0].degree
        switches, told = self.levels[1:] if domain else self.levels, cluster.levels[1:]
        if not told:
            raise ValueError(f"on: {cluster.name} is one node, so every place is as good; write a cluster of several")
        if len(switches) > len(told):
            self.notes.append(
                f"{cluster.name} describes {len(told)} level(s) of switches, the topology {len(switches)}: those above "
                f"are taken to carry as much as {told[-1].name}; a cluster in YAML states them"
            )
        levels = [told[min(place, len(told) - 1)] for place in range(len(switches))]
        inner = cluster.levels[0]
        if domain and self._widest(self.levels[0]) * self.host_gpus > inner.degree:
            raise ValueError(
                f"topology: a {self.levels[0].name} of {self._widest(self.levels[0])} nodes of {self.host_gpus} GPUs, "
                f"but {cluster.name} joins {inner.degree} GPUs; write the racks as they are"
            )
        wide = [self._sized(level, place, place + domain) for place, level in enumerate(levels)]
        slots = inner.degree * prod(level.degree for level in wide)
        if slots > MOST_GPUS:
            raise ValueError(
                f"topology: padded to its fullest blocks it has {slots:,} GPUs, too many to follow link by link "
                f"({MOST_GPUS:,}); write the part of it that has free nodes"
            )
        return Cluster(name=cluster.name, gpu=cluster.gpu, gpus=slots, levels=(inner, *wide), source=cluster.source)

    def _sized(self, level: Level, place: int, number: int) -> Level:
        """`number`: of the site's level that this one is."""
        degree = self._widest(self.levels[number], self.levels[number - 1] if number else None)
        return with_fields(level, name=self.levels[number].name, degree=degree, rails=1 if place else level.rails)

    def _widest(self, level: SiteLevel, below: SiteLevel | None = None) -> int:
        if below is None:
            return int(np.bincount(level.block).max())
        pairs = np.unique(np.stack([level.block, below.block]), axis=1)
        return int(np.bincount(pairs[0]).max())

    def slots(self) -> Ints:
        """Of each node of the site: its place among the hosts of the padded tree."""
        inside = _place_within(self.levels[0].block)
        domain = self.host_gpus < self.cluster.levels[0].degree
        width = self.cluster.levels[0].degree // self.host_gpus if domain else self.cluster.levels[1].degree
        slot, size = inside, width
        above = self.cluster.levels[1 if domain else 2 :]
        for (lower, upper), level in zip(pairwise(self.levels), above, strict=True):
            _, first = np.unique(lower.block, return_index=True)
            slot = slot + size * _place_within(upper.block[first])[lower.block]
            size *= level.degree
        return slot

    def packed(self, held: Ints) -> Ints:
        """Blocks with most free nodes first, from the largest level down, the order of the list inside."""
        keys: list[Ints] = [np.arange(len(held))]
        for level in self.levels:
            count = np.bincount(level.block[held], minlength=len(level.names))
            keys += [level.block[held], -count[level.block[held]]]
        return held[np.lexsort(keys)]

    def in_segments(self, packed: Ints) -> Ints:
        """The longest stretches of equal length that blocks of the lowest level hold whole, as Slurm's --segment."""
        block = self.levels[0].block[packed]
        place, room = _place_within(block), np.bincount(block)[block]
        for length in sorted((n for n in range(1, self.hosts + 1) if self.hosts % n == 0), reverse=True):
            whole = packed[place < room // length * length]
            if len(whole) >= self.hosts:
                return np.asarray(whole[: self.hosts])
        return packed[: self.hosts]


def _place_within(block: Ints) -> Ints:
    """Of each item: how many before it lie in its block."""
    order = np.argsort(block, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(block))[:-1]])
    place = np.empty(len(block), dtype=np.int64)
    place[order] = np.arange(len(block)) - starts[block[order]]
    return place


class _Priced:
    """A step at flow level with the ranks on given nodes."""

    def __init__(self, ground: _Ground, held: Ints) -> None:
        self.ground, self.held = ground, held
        self.tree: Tree = tree_of(ground.cluster)
        self.slots = ground.slots()
        self.found: Simulation = simulate(ground.case, ground.policy)
        self.calls: list[PlacedMessage] = calls_of(self.found.closed.work)
        self.quotes: Quotes = {}

    def order(self, name: str, nodes: Ints) -> NodeOrder:
        ground = self.ground
        local = np.arange(ground.host_gpus)
        gpu = (self.slots[nodes][:, None] * ground.host_gpus + local).ravel()
        seats = replace(seats_of(ground.policy, self.tree), gpu=gpu)
        load = step_load(Prices(self.tree, ground.case.network, seats, self.quotes), self.calls)
        run = looped(ground.case, ground.policy, self.found, load)
        return NodeOrder(
            name, tuple(ground.site.nodes[node] for node in nodes), run.step_s, sum(load.communication_s().values()),
            tuple(self._groups(seats, nodes)),
        )  # fmt: skip

    def _groups(self, seats: Seats, nodes: Ints) -> list[AxisGroups]:
        policy, each = self.ground.policy, self.ground.host_gpus
        host = np.empty(len(seats.sort_key), dtype=np.int64)
        host[seats.gpu] = nodes[np.arange(policy.gpus) // each]
        rows = []
        for axis in AXES:
            if int(getattr(policy, axis)) < 2:
                continue
            members = host[seats.groups(axis)]
            wide = members[(members != members[:, :1]).any(axis=1)]
            if len(wide):
                inside = {
                    level.name: int((np.ptp(level.block[wide], axis=1) == 0).sum()) for level in self.ground.levels[:-1]
                }
                rows.append(AxisGroups(axis, len(wide), inside))
        return rows


def _problem(ground: _Ground, nodes: Ints) -> RankProblem:
    if len(ground.levels) < 2 or len(np.unique(ground.levels[0].block[nodes])) < 2:
        raise ValueError("all free nodes hang on one switch, so every order is as good")
    blocks = np.stack([level.block[nodes] for level in ground.levels[:-1]])
    apart = ground.host_gpus < ground.cluster.levels[0].degree
    case = ground.case.on(_by_hosts(ground)) if apart else ground.case
    return rank_problem_at(case, ground.policy, blocks, ground.levels[0].names)


def _searched(ground: _Ground, problem: RankProblem, nodes: Ints, budget: int, seed: int) -> Ints:
    """`nodes`: those of the problem; what is left of them, in the order of the ranks."""
    point = method_for(problem, None, ("rl",), budget).solve(problem, budget_evaluations=budget, seed=seed).point
    block = ground.levels[0].block[nodes]
    # a problem of nodes has no point that cannot be used
    boxes = (problem.default if point is None else point)[: problem.nodes].tolist()
    room = [list(nodes[block == each]) for each in np.unique(block)]
    return np.array([room[box].pop(0) for box in boxes])


def _by_hosts(ground: _Ground) -> Cluster:
    """A domain of many hosts as two levels, so that a host can be placed by itself."""
    inner, *above = ground.cluster.levels
    host = with_fields(inner, name="host", degree=ground.host_gpus)
    domain = with_fields(inner, degree=inner.degree // ground.host_gpus)
    return with_fields(ground.cluster, gpus=ground.policy.gpus, levels=(host, domain, *above))
