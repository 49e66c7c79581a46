"""Published timings of attention kernels that gather their keys, and the law the planner has for them.

    python evidence/sparse.py

prints, for each kind of GPU and pass, the constants fitted on evidence/timed/sparse-attention.csv (for heads of 512:
the catalog's e_max is that over what dim0 adds) and how far the timings lie from the law that the catalog holds. Used
are 4,096 to 16,384 tokens, and the one timing of an indexer, which dim0 follows from; all others are held out.
"""

import csv
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import sparse_attention_seconds
from shardwise.spec.hardware import gpu_of

TABLE = Path(__file__).resolve().parents[1] / "evidence" / "timed" / "sparse-attention.csv"
FITTED = (4096, 16384)
PRODUCTS = {"forward": (1, 1), "backward": (3, 2), "index backward": (2, 0)}
"""of queries with keys, and with values"""


class Timed(NamedTuple):
    gpu: str
    heads: int
    head_dim: int
    value_dim: int
    keys: int
    tokens: int
    name: str
    seconds: float

    @property
    def flops(self) -> float:
        of_keys, of_values = PRODUCTS[self.name]
        return 2.0 * self.tokens * self.heads * self.keys * (of_keys * self.head_dim + of_values * self.value_dim)

    @property
    def share(self) -> float:
        """of the bf16 peak"""
        return self.flops / self.seconds / gpu_of(self.gpu).peak("bf16")

    @property
    def used(self) -> bool:
        return FITTED[0] <= self.tokens <= FITTED[1]


def timed() -> list[Timed]:
    sizes = ("heads", "head_dim", "value_dim", "keys", "tokens")
    with TABLE.open(encoding="utf-8") as file:
        return [
            Timed(row["gpu"], *(int(row[size]) for size in sizes), row["pass"], 1e-3 * float(row["ms"]))
            for row in csv.DictReader(file)
        ]


def error(row: Timed) -> float:
    curve = curve_of(gpu_of(row.gpu))
    backward = row.name != "forward"
    found = sparse_attention_seconds(curve, row.flops, row.keys, row.head_dim, row.heads, backward=backward)
    return float(found) / row.seconds - 1.0


def fitted(rows: list[Timed]) -> tuple[float, float, float]:
    """e_max, keys and heads of (1 + keys0 / keys) (1 + heads0 / heads) / (e_max share) = 1, by least squares over
    heads0 on a grid."""
    share, keys, heads = (np.array([getattr(row, name) for row in rows]) for name in ("share", "keys", "heads"))
    best = (np.inf, 0.0, 0.0, 0.0)
    for heads0 in np.arange(0.0, 200.0, 1.0):
        weight = share * (1.0 + heads0 / heads)
        columns = np.stack([weight, weight / keys], axis=1)
        (inverse, product), *_ = np.linalg.lstsq(columns, np.ones(len(rows)), rcond=None)
        miss = float(np.sum((columns @ np.array([inverse, product]) - 1.0) ** 2))
        best = min(best, (miss, 1.0 / inverse, product / inverse, float(heads0)))
    return best[1:]


def main() -> None:
    groups: dict[tuple[str, str], list[Timed]] = defaultdict(list)
    for row in timed():
        groups["Hopper" if row.gpu == "h200" else "Blackwell", row.name].append(row)
    for (kind, name), rows in groups.items():
        used = [row for row in rows if row.used]
        print(f"{kind} {name}")
        if len({row.keys for row in used}) > 2:
            e_max, keys0, heads0 = fitted(used)
            print(f"  fit: e_max {e_max:.3f}, keys0 {keys0:.0f}, heads0 {heads0:.0f}")
        for word, part in (("used", used), ("held out", [row for row in rows if not row.used])):
            misses = [abs(error(row)) for row in part]
            if misses:
                print(f"  {word}: {len(part)}, off by {np.mean(misses):.1%} on average, {max(misses):.1%} at most")


if __name__ == "__main__":
    main()
