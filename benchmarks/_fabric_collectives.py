"""Collectives of one mebibyte and more: the error on all fabrics, and on each fabric when the fit never saw it."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "evidence"))  # where the fit lies
from _collective_rows import MIB, Row, errors, read
from fit_network import held_out
from shardwise import catalog
from shardwise.cost._links import default_links
from shardwise.measured.diagnose.expect import HELD

Scored = list[tuple[Row, float]]


def measure(data: Path, write: bool) -> dict[str, Any]:
    """collectives_mape: shipped constants; collectives_left_out_mape: every fabric by a fit without any of its rows;
    left_out_mean_of_fabrics: each fabric counted once; left_out_family: a whole NVLink generation, or EFA, or RDMA."""
    rows = read(data)
    unseen = held_out(rows, lambda row: row.fabric)
    if write:
        write_bands(unseen)
    shipped, left_out = _long(errors(default_links(), None, rows)), _long(unseen)
    families = _long(held_out(rows, lambda row: row.family))
    return {
        "collectives_rows": len(shipped),
        "collectives_mape": _mape(shipped),
        "collectives_left_out_mape": _mape(left_out),
        "collectives_left_out_mean_of_fabrics": round(float(np.mean(list(_by_fabric(left_out).values()))), 4),
        "collectives_left_out_family_mape": _mape(families),
        "collectives_by_fabric": _by_fabric(shipped),
        "collectives_left_out_by_fabric": _by_fabric(left_out),
    }


BANDS = Path(catalog.__file__).parent / "collective_bands.toml"
SIZES = (("below 1 MiB", 0.0), ("1 to 16 MiB", MIB), ("16 MiB and more", 16 * MIB))


def write_bands(left_out: Scored) -> None:
    """Measured over expected bandwidth, less 1, that a tenth of the left-out rows lay below and above."""
    lines = [
        "# Measured over expected bandwidth, less 1: on fabrics left out of the fit a tenth of collectives lay below",
        "# `low`, a tenth above `high`. Written by benchmarks/fabric.py --write; not edited by hand.",
    ]
    for place in ("one node", "several nodes"):
        for index, (name, least) in enumerate(SIZES):
            most = SIZES[index + 1][1] if index + 1 < len(SIZES) else np.inf
            shares = [
                1.0 / (1.0 + error) - 1.0 for row, error in left_out
                if (row.nodes > 1) == (place == "several nodes") and least <= row.bytes < most
            ]  # fmt: skip
            low, high = np.quantile(shares, [(1 - HELD) / 2, (1 + HELD) / 2])
            lines += ["", f'["{place}"."{name}"]', f"low = {low:.3f}", f"high = {high:.3f}", f"rows = {len(shares)}"]
    BANDS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _long(found: Scored) -> Scored:
    return [(row, error) for row, error in found if row.bytes >= MIB]


def _mape(found: Scored) -> float:
    return round(float(np.mean([abs(error) for _, error in found])), 4)


def _by_fabric(found: Scored) -> dict[str, float]:
    names = sorted({row.fabric for row, _ in found})
    return {name: _mape([pair for pair in found if pair[0].fabric == name]) for name in names}
