"""One collective of a lab run: what is asked, and who sends how much to whom when gloo carries it out.

gloo's all-reduce, all-gather and reduce-scatter are rings in the order of the ranks (its reduce-scatter moves an
all-reduce's bytes); an all-to-all posts all messages at once. `bytes` is the operation's buffer, as in `collectives`.
"""

from dataclasses import replace

import numpy as np
from msgspec import Struct

from shardwise.arrays import Floats
from shardwise.plugins.collectives import collective
from shardwise.registry import closest
from shardwise_lab.sends import WireSends, gloo_sends, table_sends

RINGS = {"all_reduce": "all_reduce", "reduce_scatter": "all_reduce", "all_gather": "all_gather"}
OPS = (*RINGS, "all_to_all", "hot_expert", "shift", "gossip", "incast")
HOT = 4.0
"""what the hot expert gets, beside 1 for each other"""
LEAST, MOST = 1, 1 << 30


class LabCase(Struct, frozen=True, kw_only=True):
    op: str
    bytes: int
    times: int = 3

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise ValueError(f"collective: {self.op!r} is unknown; {closest(self.op, list(OPS))}")
        if not LEAST <= self.bytes <= MOST:
            raise ValueError(f"sizes: {self.bytes:,} bytes is out of range; write '1 kB' to '1 GB'")
        if not 1 <= self.times <= 100:
            raise ValueError(f"times: {self.times} is out of range; write 1 to 100")

    @property
    def ring(self) -> bool:
        return self.op in RINGS

    def steps(self, ranks: int) -> int:
        """Messages that wait for one another."""
        if not self.ring:
            return 1
        return collective("ring").rounds(RINGS[self.op], ranks, 1)

    def sends(self, ranks: int) -> WireSends:
        """Messages of all ranks."""
        if self.ring or self.op == "all_to_all":
            found = gloo_sends(self.op, self.bytes, ranks)
            # the lab's exchanges post what they receive before anyone sends
            return found if self.ring else replace(found, how="ready")
        return table_sends(self.matrix(ranks), "ready")

    def matrix(self, ranks: int) -> Floats:
        """Bytes from each rank to each."""
        if self.ring or self.op == "all_to_all":
            return self.sends(ranks).matrix(ranks)
        table = np.zeros((ranks, ranks))
        here = np.arange(ranks)
        if self.op == "hot_expert":
            table += np.array(uneven(self.bytes, ranks))[None, :]
            np.fill_diagonal(table, 0.0)
        elif self.op == "incast":
            table[1:, 0] = self.bytes
        else:
            # on a ring of two both neighbours are one rank, which is sent to once
            for shift in sorted({1 % ranks, -1 % ranks}) if self.op == "gossip" else [1]:
                table[here, (here + shift) % ranks] = self.bytes
        return table


def uneven(size: int, ranks: int) -> list[int]:
    """Parts of a buffer when the last rank's expert is hot; whole numbers of floats."""
    each = int(size / 4 / (ranks - 1 + HOT))
    return [4 * each] * (ranks - 1) + [4 * round(HOT * each)]
