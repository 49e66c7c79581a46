"""Collectives of one mebibyte and more: the error on all fabrics, and on each fabric when the fit never saw it."""

from pathlib import Path
from typing import Any

import numpy as np

from _collective_rows import MIB, Row, errors, read
from fit_network import held_out
from shardwise.cost._links import default_links

Scored = list[tuple[Row, float]]


def measure(data: Path) -> dict[str, Any]:
    """collectives_mape: shipped constants; collectives_left_out_mape: every fabric by a fit without any of its rows."""
    rows = read(data)
    shipped, left_out = (_long(found) for found in (errors(default_links(), None, rows), held_out(rows)))
    return {
        "collectives_rows": len(shipped),
        "collectives_mape": _mape(shipped),
        "collectives_left_out_mape": _mape(left_out),
        "collectives_by_fabric": _by_fabric(shipped),
        "collectives_left_out_by_fabric": _by_fabric(left_out),
    }


def _long(found: Scored) -> Scored:
    return [(row, error) for row, error in found if row.bytes >= MIB]


def _mape(found: Scored) -> float:
    return round(float(np.mean([abs(error) for _, error in found])), 4)


def _by_fabric(found: Scored) -> dict[str, float]:
    names = sorted({row.fabric for row, _ in found})
    return {name: _mape([pair for pair in found if pair[0].fabric == name]) for name in names}
