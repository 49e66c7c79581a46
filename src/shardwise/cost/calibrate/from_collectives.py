"""Measured collectives -> factors on the modelled network, and a straight line for each operation."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from shardwise.arrays import Floats
from shardwise.cost.calibrate.fitting import least_squares
from shardwise.cost.calibrate.overlay import network_with
from shardwise.cost.calibrate.profile import Factors, FittedOp, NetworkFit, Point
from shardwise.cost.network import BUS
from shardwise.spec.cluster import Cluster

LOW, HIGH = (0.05, 0.02), (50.0, 2.0)


def network_fit(points: Sequence[Point], cluster: Cluster | None) -> NetworkFit:
    """`cluster`: what the ranks ran on; without one the lines are kept and no factor is."""
    fitted = {op: _line([row for row in points if row["op"] == op]) for op in _ops(points)}
    if cluster is None:
        return NetworkFit(fitted=fitted)
    factors: dict[str, Factors] = {}
    # from the inside out: what crosses nodes is judged with the node's own factors in place
    for level in range(len(cluster.levels)):
        mine = [row for row in points if top_level(cluster, int(row["ranks"]), int(row["nodes"])) == level]
        kind = cluster.levels[level].kind
        if mine and kind not in factors:
            factors[kind] = _factors(mine, cluster, kind, factors)
    return NetworkFit(cluster=cluster.name, factors=factors, fitted=fitted)  # type: ignore[arg-type]


def _ops(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(str(row["op"]) for row in points))


def _column(rows: Sequence[Point], name: str) -> Floats:
    return np.array([float(row[name]) for row in rows])


def _line(rows: Sequence[Point]) -> FittedOp:
    """Time = latency + bus bytes / rate on the largest group measured, relative errors equal."""
    ranks = max(int(row["ranks"]) for row in rows)
    rows = [row for row in rows if int(row["ranks"]) == ranks]
    seconds, op = _column(rows, "seconds"), str(rows[0]["op"])
    bus = _column(rows, "bytes") * BUS.get(op, 1.0) * ((ranks - 1) / ranks if op in BUS else 1.0)

    def residual(x: Floats) -> Floats:
        return np.asarray(np.log((x[0] + bus * x[1]) / seconds))

    slope = float(seconds[np.argmax(bus)] / bus.max())
    low = float(seconds.min())
    found = least_squares(residual, [low, slope], [low * 1e-3, slope * 1e-3], [low * 10, slope * 10], [low, slope])
    nodes = max(int(row["nodes"]) for row in rows)
    return FittedOp(ranks=ranks, nodes=nodes, latency_s=float(found[0]), bus_bytes_per_s=float(1 / found[1]))


def top_level(cluster: Cluster, ranks: int, nodes: int) -> int:
    if nodes <= 1:
        return 0
    size, levels = 1, cluster.levels
    for index, level in enumerate(levels):
        size *= level.degree
        if index and ranks <= size:
            return index
    return len(levels) - 1


def _factors(rows: Sequence[Point], cluster: Cluster, kind: str, known: dict[str, Factors]) -> Factors:
    seconds = _column(rows, "seconds")
    sizes, ranks = _column(rows, "bytes"), _column(rows, "ranks").astype(np.int64)
    ops = np.array([str(row["op"]) for row in rows])

    def residual(x: Floats) -> Floats:
        tried = Factors(latency=float(x[0]), bandwidth=float(x[1]))
        network = network_with(cluster, {**known, kind: tried})
        predicted = np.empty_like(seconds)
        for op in dict.fromkeys(ops):
            mine = ops == op
            predicted[mine] = network.seconds(op, sizes[mine], ranks[mine])
        return np.log(predicted / seconds)

    found = least_squares(residual, [1.0, 1.0], LOW, HIGH, [1.0, 1.0], robust=0.1)
    return Factors(latency=float(found[0]), bandwidth=float(found[1]))


def group_cluster(cluster: Cluster, ranks: int, nodes: int) -> Cluster:
    """The cluster with nodes of the size that was measured."""
    per_node = max(ranks // max(nodes, 1), 1)
    node, *outer = cluster.levels
    if per_node >= node.degree or nodes <= 1:
        return cluster
    return replace(cluster, levels=(replace(node, degree=per_node), *outer), gpus=min(cluster.gpus, ranks))
