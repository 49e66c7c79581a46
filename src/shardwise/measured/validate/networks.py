"""The network between nodes of a run that does not state it: what clusters of that generation of GPUs have.

The expectation is their median (catalog/usual_networks.toml). What the slow and the fast tenth of them would make of
the step widens its band, as one more cause of its own.
"""

import tomllib
from functools import cache
from math import expm1, hypot, log, log1p
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from shardwise import catalog
from shardwise.spec.gpu import Gpu
from shardwise.step.estimate.band import ErrorBand
from shardwise.step.estimate.posterior import NORMAL

TABLE = Path(catalog.__file__).parent / "usual_networks.toml"
DEFAULT_GBPS = 400.0
"""of a generation that no entry has"""
PCIE_GBPS = 50.0
"""of GPUs without NVLink: servers of eight such cards have one network card, of 400 Gb/s at most"""
TAIL = 0.1
"""share of clusters beyond the slow and beyond the fast one"""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    generation: str
    name: str
    gbps: float
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    date: str
    cluster: tuple[_Entry, ...]


class UsualNetwork(NamedTuple):
    """Gb/s for each GPU."""

    slow: float
    middle: float
    fast: float

    def __str__(self) -> str:
        return f"{self.slow:g} to {self.fast:g}"


def usual_network(gpu: Gpu) -> UsualNetwork:
    if gpu.nvlink is None:
        return UsualNetwork(PCIE_GBPS, PCIE_GBPS, PCIE_GBPS)
    found = _by_generation()
    known = found.get(gpu.name) or found.get(gpu.architecture) or (DEFAULT_GBPS,)
    slow, middle, fast = np.quantile(known, (TAIL, 0.5, 1.0 - TAIL), method="nearest")
    return UsualNetwork(float(slow), float(middle), float(fast))


@cache
def _by_generation() -> dict[str, tuple[float, ...]]:
    entries = msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), _Table).cluster
    return {
        generation: tuple(entry.gbps for entry in entries if entry.generation == generation)
        for generation in {entry.generation for entry in entries}
    }


class NetworkSpread(NamedTuple):
    """Logarithm of a step on the fast and on the slow network over that on the middle one."""

    low: float = 0.0
    high: float = 0.0

    @property
    def deviation(self) -> float:
        return (self.high - self.low) / 2.0 / NORMAL


def spread_of(slow_s: float, step_s: float, fast_s: float) -> NetworkSpread:
    return NetworkSpread(min(log(fast_s / step_s), 0.0), max(log(slow_s / step_s), 0.0))


def widened(band: ErrorBand, network: UsualNetwork, spread: NetworkSpread) -> ErrorBand:
    """The band of a step, with what the step takes on the slow and on the fast network."""
    low, high = -hypot(log1p(band.low), spread.low), hypot(log1p(band.high), spread.high)
    words = f"network not stated: {network} Gbps per GPU in clusters of its kind"
    return band._replace(low=expm1(low), high=expm1(high), evidence=f"{band.evidence}; {words}")
