"""Seconds of one collective on an axis placed on the cluster.

Every (algorithm, protocol) is a straight line in the bytes: latency + bytes / rate, with both from the place of the
group in the tree of levels. Latency: messages that wait for each other, level by level. Rate: the slowest level, where
the ranks of one node share their network cards. A library picks the fastest, so the time is the lowest line.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardwise.arrays import Floats, Ints
from shardwise.cost._links import NetworkConstants, default_links
from shardwise.cost.placement import level_members
from shardwise.plugins.collectives import OPS, Collective, Load, Shape, collective, collectives
from shardwise.registry import closest
from shardwise.spec.cluster import Cluster
from shardwise.spec.distinct import ranked

DistinctGroups = tuple[Ints, Ints, Ints]
"""sizes and strides of the groups that occur, and the group of each element"""

MOST_KNOWN = 4096
_HOPELESS = 1.0
"""seconds per byte of an algorithm that cannot run; its latency is infinite besides"""
BUS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


@dataclass(frozen=True)
class Law:
    """Lines of distinct groups, and which group each element belongs to."""

    latency: Floats
    """seconds, (line, group)"""
    slope: Floats
    """seconds per byte, (line, group)"""
    algorithm: tuple[str, ...]
    """of each line"""
    group: Ints

    def seconds(self, bytes_: ArrayLike) -> Floats:
        size = np.asarray(bytes_, dtype=np.float64)
        best = self.slope[0][self.group] * size
        best += self.latency[0][self.group]
        for slope, latency in zip(self.slope[1:], self.latency[1:], strict=True):
            line = slope[self.group] * size
            line += latency[self.group]
            best = np.minimum(best, line)
        return np.asarray(best)

    def line(self, bytes_: ArrayLike) -> Ints:
        """Which line is the lowest."""
        size, group = np.broadcast_arrays(np.asarray(bytes_, dtype=np.float64), self.group)
        times = self.slope[:, group] * size + self.latency[:, group]
        return np.asarray(np.argmin(times, axis=0))


@dataclass(frozen=True)
class Breakdown:
    seconds: Floats
    latency: Floats
    """part of the seconds that would stay with no bytes"""
    algorithm: NDArray[np.str_]
    level: Ints
    """the level whose links set the rate"""


@dataclass(frozen=True)
class Protocol:
    """One way of sending: seconds by level."""

    start_s: float
    step_s: tuple[float, ...]
    """of a message that others wait for"""
    within_s: float
    """the same inside a node that the group leaves"""
    byte_s: tuple[float, ...]
    """of a byte that one GPU sends into the level"""
    stored_s: tuple[float, ...]
    """of a byte, for every step that waits for it before passing it on"""


GroupQuestion = tuple[str, str | None, tuple[int, int] | None]
"""operation, algorithm if one is named, GPUs that groups are looked at on"""


@dataclass(frozen=True)
class Lines:
    """Of one operation, every (algorithm, protocol) on the groups priced so far."""

    column: dict[tuple[int, int], int]
    """(size, stride) -> its place among the groups"""
    latency: Floats
    """seconds, (line, group)"""
    slope: Floats
    """seconds per byte, (line, group)"""
    algorithm: tuple[str, ...]
    """of each line"""

    @cached_property
    def lowest(self) -> tuple[Floats, Floats, tuple[str, ...]]:
        """Those that are the lowest somewhere."""
        kept = _undominated(self.latency, self.slope)
        return self.latency[kept], self.slope[kept], tuple(self.algorithm[k] for k in kept)


@dataclass(frozen=True)
class Network:
    cluster: Cluster
    links: NetworkConstants
    reducing: tuple[bool, ...]
    """which levels' switches add numbers"""
    efficiency: tuple[float, ...]
    """by level: factor on the bandwidth reached, beyond the fitted constants"""
    boundary_message_s: float = 0.0
    """what the software adds to each message of a tensor-parallel collective that passes the boundary of a node"""
    nodes_filled: bool = False
    """takes every group to fill its nodes, for what it costs that some do not"""
    known: dict[GroupQuestion, Lines] = field(default_factory=dict, init=False, compare=False, repr=False)
    """by operation, algorithm and where: the batches of a scan have few groups that none had before"""
    priced: dict[str, list["Protocol"]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """by style"""
    shapes: dict[tuple[object, ...], Shape] = field(default_factory=dict, init=False, compare=False, repr=False)

    def seconds(
        self, op: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1, *, algorithm: str | None = None
    ) -> Floats:
        """Time of one collective; see collectives for what `bytes_` counts. A group of one rank takes no time."""
        return self.law(op, size, stride, algorithm=algorithm).seconds(bytes_)

    def law(
        self, op: str, size: ArrayLike, stride: ArrayLike = 1, *, algorithm: str | None = None,
        within: tuple[int, int] | None = None,
    ) -> Law:  # fmt: skip
        """The time as a function of bytes; build it once where several calls run over the same axis. Where groups lie
        differently, that of the slowest; `within`: of those on some GPUs only (`level_members`)."""
        return self.law_of(op, distinct(size, stride), algorithm=algorithm, within=within)

    def law_of(
        self, op: str, found: DistinctGroups, *, algorithm: str | None = None, within: tuple[int, int] | None = None
    ) -> Law:
        """The same for groups that are already found."""
        ranks, apart, group = found
        groups = list(zip(ranks.tolist(), apart.tolist(), strict=True))
        lines = self._known_lines((op, algorithm, within), groups)
        column = np.array([lines.column[each] for each in groups], dtype=np.int64)
        return Law(*lines.lowest, np.asarray(column[group]))

    def _known_lines(self, asked: GroupQuestion, groups: list[tuple[int, int]]) -> Lines:
        """Lines that have these groups among others; only new ones are worked out."""
        known = self.known.get(asked)
        if known is not None and len(known.column) > MOST_KNOWN:
            known = None
        new = groups if known is None else [each for each in groups if each not in known.column]
        if known is not None and not new:
            return known
        found = self._lines_of(*asked, new)
        if known is not None:
            found = Lines(
                column=known.column | {each: len(known.column) + place for each, place in found.column.items()},
                latency=np.concatenate([known.latency, found.latency], axis=1),
                slope=np.concatenate([known.slope, found.slope], axis=1),
                algorithm=known.algorithm,
            )
        self.known[asked] = found
        return found

    def _lines_of(
        self, op: str, algorithm: str | None, within: tuple[int, int] | None, groups: list[tuple[int, int]]
    ) -> Lines:
        ranks, apart = np.array(groups, dtype=np.int64).reshape(-1, 2).T.copy()
        shape = self.shape(ranks, apart, within)
        chosen = self._algorithms(op, algorithm)
        latencies, slopes, names = [], [], []
        for found in chosen:
            latency, slope, _ = self.lines(found, op, shape)
            latencies.append(latency)
            slopes.append(slope)
            names += [found.name] * len(latency)
        alone = shape.size <= 1.0
        latency = np.where(alone, 0.0, np.concatenate(latencies))
        slope = np.where(alone, 0.0, np.concatenate(slopes))
        if not np.isfinite(latency).any(axis=0).all():
            raise ValueError(f"algorithm: {algorithm!r} cannot run {op} on every group asked for; leave it out")
        return Lines({each: place for place, each in enumerate(groups)}, latency, slope, tuple(names))

    def shape(self, ranks: Ints, apart: Ints, within: tuple[int, int] | None = None) -> Shape:
        key = (ranks.tobytes(), apart.tobytes(), within)
        if key not in self.shapes:
            if len(self.shapes) >= MOST_KNOWN:
                self.shapes.clear()
            self.shapes[key] = level_members(self.cluster, ranks, apart, within=within, filled=self.nodes_filled)
        return self.shapes[key]

    def bus_bandwidth(
        self, op: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1, *, algorithm: str | None = None
    ) -> Floats:
        """bytes/s as nccl-tests counts them: all_reduce 2 (n - 1) / n, gather, scatter, all-to-all (n - 1) / n."""
        ranks = np.asarray(size, dtype=np.float64)
        factor = BUS[op] * (ranks - 1.0) / ranks if op in BUS else np.ones_like(ranks)
        return np.asarray(factor * np.asarray(bytes_) / self.seconds(op, bytes_, size, stride, algorithm=algorithm))

    def traffic(
        self, op: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1, *, algorithm: str | None = None
    ) -> Floats:
        """Bytes an average GPU sends into each level (last axis) under the algorithm that is the fastest."""
        law = self.law(op, size, stride, algorithm=algorithm)
        sent, ranks, apart = np.broadcast_arrays(np.asarray(bytes_, dtype=np.float64), size, stride)
        shape = level_members(self.cluster, ranks, apart)
        line = np.broadcast_to(law.line(bytes_), sent.shape)
        total = np.zeros((len(self.cluster.levels), *sent.shape))
        for name in dict.fromkeys(law.algorithm):
            mine = np.isin(line, [i for i, a in enumerate(law.algorithm) if a == name])
            found = collective(name)
            total = np.where(mine, self._routed((found.average or found.load)(op, shape)) * sent, total)
        return np.moveaxis(total, 0, -1)

    def breakdown(
        self, op: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike = 1, *, algorithm: str | None = None
    ) -> Breakdown:
        """Why a collective takes that long."""
        law = self.law(op, size, stride, algorithm=algorithm)
        line = law.line(bytes_)
        names = np.array(law.algorithm)[line]
        _, ranks, apart = np.broadcast_arrays(np.asarray(bytes_), size, stride)
        shape = level_members(self.cluster, ranks, apart)
        level = np.zeros(ranks.shape, dtype=np.int64)
        for name in dict.fromkeys(law.algorithm):
            binding = np.argmax(self.lines(collective(name), op, shape)[2], axis=0)
            level = np.where(names == name, binding, level)
        return Breakdown(law.seconds(bytes_), law.latency[line, law.group], names, level)

    def _algorithms(self, op: str, algorithm: str | None) -> list[Collective]:
        if op not in OPS:
            raise ValueError(f"op: {op!r} is unknown; {closest(op, list(OPS))}")
        if algorithm is None:
            able = self.reducing[0]
            tori = any(level.torus for level in self.cluster.levels)
            known = [each for each in collectives().values() if op in each.ops and each.automatic]
            return [each for each in known if (tori or each.torus != "only") and (able or each.reduces_at == "none")]
        found = collective(algorithm)
        if op not in found.ops:
            raise ValueError(f"algorithm: {algorithm} does not serve {op}; it serves {', '.join(found.ops)}")
        return [found]

    def _legal(self, found: Collective, shape: Shape) -> NDArray[np.bool_]:
        legal = np.ones(shape.size.shape, dtype=np.bool_)
        if found.torus != "also":
            tori = np.array([bool(level.torus) for level in self.cluster.levels]).reshape(-1, *[1] * shape.size.ndim)
            legal &= (shape.crossed & tori).any(axis=0) == (found.torus == "only")
        if found.spans_nodes:
            legal &= shape.nodes > 1.0
        if found.reduces_at == "node":
            legal &= self.reducing[0] & shape.crossed[0]
        if found.reduces_at == "network":
            able = np.array(self.reducing[1:], dtype=np.bool_).reshape(-1, *[1] * shape.size.ndim)
            legal &= (able | ~shape.crossed[1:]).all(axis=0)
        if found.reduces_at == "all":
            # In the fabric the switches add what a reducing node hands up; without one there is nothing to hand.
            able = np.array(self.reducing).reshape(-1, *[1] * shape.size.ndim)
            legal &= (able | ~shape.crossed).all(axis=0) & shape.crossed[0]
        return legal | (shape.size <= 1.0)

    def protocols(self, found: Collective) -> list["Protocol"]:
        """What steps and bytes of an algorithm cost at each level, protocol by protocol."""
        if found.style not in self.priced:
            self.priced[found.style] = self._protocols(found)
        return self.priced[found.style]

    def _protocols(self, found: Collective) -> list["Protocol"]:
        levels = self.cluster.levels
        styles = [self.links.of(self.cluster, level).style(found.style) for level in levels]
        wires = [wire * reached for wire, reached in zip(self.cluster.wires, self.efficiency, strict=True)]
        count = min(len(style.rate) for style in styles)
        base = styles[0].base_us or (0.0,) * count
        paired = list(zip(styles, levels, strict=True))
        steps = [tuple(s.step_us[k] * 1e-6 + level.latency_s for s, level in paired) for k in range(count)]
        least = [max([0.0, *(s.inside_us[k] * 1e-6 for s in styles[1:] if s.inside_us)]) for k in range(count)]
        return [
            Protocol(
                start_s=base[k] * 1e-6,
                step_s=steps[k],
                within_s=max(steps[k][0], least[k]),
                byte_s=tuple(1.0 / (wire * s.rate[k]) for s, wire in zip(styles, wires, strict=True)),
                stored_s=tuple(s.stored[k] / wire if s.stored else 0.0 for s, wire in zip(styles, wires, strict=True)),
            )
            for k in range(count)
        ]

    def _routed(self, load: Load) -> Floats:
        """What goes into each level, with the way between rails: over NVLink first, or through the level above."""
        if load.across is None or self.cluster.rails == 1:
            return load.volume
        volume = load.volume.copy()
        if self.cluster.forwards:
            volume[0] += load.across.sum(axis=0)
        elif len(volume) > 2:
            volume[2] += load.across[1]
        return volume

    def lines(self, found: Collective, op: str, shape: Shape) -> tuple[Floats, Floats, Floats]:
        """(seconds, seconds per byte) with a first axis for protocols; seconds per byte by level at full rate."""
        load = found.load(op, shape)
        volume = self._routed(load)
        copy_rate = self.links.of(self.cluster, self.cluster.levels[0]).copy_bytes_per_s
        legal, leaves = self._legal(found, shape), found.pooled & (shape.nodes > 1.0)
        latency, slope = [], []
        for protocol in self.protocols(found):
            start = protocol.start_s + np.where(legal, 0.0, np.inf)
            inside = np.where(leaves, protocol.within_s, protocol.step_s[0])
            fill = np.zeros_like(shape.size)
            by_level = np.zeros_like(shape.members)
            for i, level in enumerate(self.cluster.levels):
                start = start + load.steps[i] * (inside if i == 0 else protocol.step_s[i])
                crowding = self._crowding(found, i, shape)
                crowding = crowding / level.mesh_share(shape.members[i] / shape.below[i])
                by_level[i] = volume[i] * crowding * protocol.byte_s[i]
                if protocol.stored_s[i]:
                    fill = fill + protocol.stored_s[i] * load.steps[i] * crowding / shape.below[i]
            latency.append(start)
            busy = _in_turn(by_level, volume) if found.levels_in_turn else by_level.max(axis=0)
            full = busy + fill + (load.own / copy_rate if copy_rate else 0.0)
            slope.append(np.where(legal, full, _HOPELESS))
        return np.stack(latency), np.stack(slope), by_level

    def _crowding(self, found: Collective, level: int, shape: Shape) -> Floats | float:
        """How much more than its own share a card carries when a group uses only some of the node's cards. Above the
        cards a switch has the ways up of all of them."""
        if level != 1 or self.cluster.levels[1].kind != "network" or not found.pooled:
            return 1.0
        used = shape.cards if found.uneven else shape.below[1]
        return np.maximum(used / self.links.cards_per_group, 1.0)


def network_of(
    cluster: Cluster,
    *,
    sharp: bool = False,
    nvls: bool = True,
    efficiency: dict[str, float] | None = None,
    links: NetworkConstants | None = None,
) -> Network:
    """The network of a cluster.

    sharp: the network's switches reduce (needs a plug-in and a licence, so off unless asked for); nvls: those of the
    NVLink domain do. Both only where the level can. efficiency: factor by level name, for a fabric that is known to
    reach less (or more) than the ones the constants were fitted on.
    """
    given = efficiency or {}
    names = [level.name for level in cluster.levels]
    for name, value in given.items():
        if name not in names:
            raise ValueError(f"efficiency: {cluster.name} has no level {name!r}; {closest(name, names)}")
        if not 0.0 < value <= 2.0:
            raise ValueError(f"efficiency: {name} is {value}; write a factor above 0 and at most 2")
    return Network(
        cluster=cluster,
        links=links or default_links(),
        reducing=tuple(level.reduces and (sharp if level.kind == "network" else nvls) for level in cluster.levels),
        efficiency=tuple(given.get(name, 1.0) for name in names),
    )


def _undominated(latency: Floats, slope: Floats) -> list[int]:
    """Lines that are below all others somewhere: not both later and steeper than one other line in every group."""
    kept = []
    for k in range(len(latency)):
        lower = (latency <= latency[k]) & (slope <= slope[k])
        equal = (latency == latency[k]) & (slope == slope[k])
        lower[k:] &= ~equal[k:]  # of equal lines the first stays
        if not lower.any(axis=0).all():
            kept.append(k)
    return kept or [0]


def _in_turn(by_level: Floats, volume: Floats) -> Floats:
    """Rounds inside nodes, then those that reach just up to each level, at the pace of the slowest they cross."""
    total, slowest = by_level[0], np.zeros_like(by_level[0])
    for i in range(1, len(by_level)):
        beyond = volume[i + 1] if i + 1 < len(volume) else 0.0
        each = np.divide(by_level[i], volume[i], out=np.zeros_like(by_level[i]), where=volume[i] > 0)
        slowest = np.maximum(slowest, each)
        total = total + np.maximum(volume[i] - beyond, 0.0) * slowest
    return np.asarray(total)


def distinct(size: ArrayLike, stride: ArrayLike) -> DistinctGroups:
    """The pairs of a size and a stride that occur, and the pair of each element.

    A million policies have a few hundred distinct groups. Table look-ups find them in linear time, without a sort.
    """
    ranks, apart = np.broadcast_arrays(np.asarray(size, dtype=np.int64), np.asarray(stride, dtype=np.int64))
    if ranks.size and (ranks.min() < 1 or apart.min() < 1):
        raise ValueError("size and stride of a group: write whole numbers of 1 or more")
    sizes, which_size = ranked(ranks)
    strides, which_stride = ranked(apart)
    pairs, group = ranked(which_size * len(strides) + which_stride)
    return sizes[pairs // len(strides)], strides[pairs % len(strides)], group
