"""What a Cluster leaves open about its switches: how rails are joined and how a message picks its way."""

from msgspec import Struct
from msgspec.structs import replace

from shardwise.registry import closest
from shardwise.spec.cluster import CROSS_RAIL, Cluster

RAILS = ("optimised", "only", "none")
CROSS = ("", *CROSS_RAIL)
ROUTING = ("spray", "ecmp")
HASHES = ("distinct", "same", "turn")


class Wiring(Struct, frozen=True, kw_only=True):
    rails: str = "optimised"
    """optimised: card i of every node on leaf i, spines join the rails; only: no spine joins two rails; none: all
    cards of a node on one leaf"""
    cross_rail: str = ""
    """the way between two rails: over NVLink to the card of the other rail first (PXN), or over a spine; empty: as the
    cluster's leaves say"""
    routing: str = "spray"
    """spray: packets over all equal ways (adaptive routing at its best); ecmp: a hash picks one for each connection"""
    connections: int = 1
    """of each pair of GPUs, each with a hash of its own"""
    seed: int = 0
    hashes: str = "distinct"
    """distinct: every tier hashes with a seed of its own; same: one hash on every tier, so that the choice on one tier
    decides the next (polarization); turn: the connections of a pair take equal ways in turn"""
    radix: int = 64
    """ports of a switch at the speed of a card"""

    def __post_init__(self) -> None:
        for field, known in (("rails", RAILS), ("cross_rail", CROSS), ("routing", ROUTING), ("hashes", HASHES)):
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"{field}: {value!r} is unknown; {closest(value, list(known))}")
        for field, most in (("connections", 1024), ("radix", 4096)):
            if not 1 <= getattr(self, field) <= most:
                raise ValueError(f"{field}: {getattr(self, field)} is out of range; write 1 to {most:,}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed: {self.seed} is out of range; write 0 to {2**32 - 1}")


def wired(cluster: Cluster, wiring: Wiring) -> Cluster:
    """The cluster with its leaves as the wiring has them, so that links and closed form know the same rails."""
    if len(cluster.levels) == 1:
        return cluster
    node, leaf, *above = cluster.levels
    rails = 1 if wiring.rails == "none" else leaf.rails
    across = "nvlink" if wiring.rails == "only" else wiring.cross_rail or leaf.cross_rail
    return replace(cluster, levels=(node, replace(leaf, rails=rails, cross_rail=across), *above))
