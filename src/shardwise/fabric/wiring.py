"""What a Cluster leaves open about its switches: how rails are joined and how a message picks its way."""

from msgspec import Struct

from shardwise.registry import closest

RAILS = ("optimised", "only", "none")
CROSS = ("spine", "nvlink")
ROUTING = ("spray", "ecmp")


class Wiring(Struct, frozen=True, kw_only=True):
    rails: str = "optimised"
    """optimised: card i of every node on leaf i, spines join the rails; only: no spine joins two rails; none: all
    cards of a node on one leaf"""
    cross_rail: str = "spine"
    """the way between two rails: over a spine, or over NVLink to the card of the other rail first (PXN)"""
    routing: str = "spray"
    """spray: packets over all equal ways (adaptive routing at its best); ecmp: a hash picks one for each connection"""
    connections: int = 1
    """of each pair of GPUs, each with a hash of its own"""
    seed: int = 0
    radix: int = 64
    """ports of a switch at the speed of a card"""

    def __post_init__(self) -> None:
        for field, known in (("rails", RAILS), ("cross_rail", CROSS), ("routing", ROUTING)):
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"{field}: {value!r} is unknown; {closest(value, list(known))}")
        for field, most in (("connections", 1024), ("radix", 4096)):
            if not 1 <= getattr(self, field) <= most:
                raise ValueError(f"{field}: {getattr(self, field)} is out of range; write 1 to {most:,}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed: {self.seed} is out of range; write 0 to {2**32 - 1}")
