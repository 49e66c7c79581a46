"""What an export of nsys says of its GPUs themselves: their names, and their clocks where `--gpu-metrics-devices`
sampled them. The metric is called "GPC Clock Frequency [MHz]" and counts cycles a second."""

import re
import sqlite3
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from shardwise.measured.diagnose.clocks import GpuClock, clock_of
from shardwise.programs.importers.sqlite_file import columns_of

GPUS, CUDA_GPUS = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
SAMPLES, METRICS = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
CLOCK_TABLES = (GPUS, CUDA_GPUS, SAMPLES, METRICS)
CLOCK, ACTIVE = re.compile(r"GPC Clock", re.IGNORECASE), re.compile(r"GR Active|GPU Active", re.IGNORECASE)
MOST_SAMPLES = 5_000_000
MEGA = 1e5
"""a clock below this is in MHz"""


@dataclass(frozen=True)
class GpuNames:
    """What the driver calls the GPUs."""

    of_process: dict[tuple[int, int], str]
    """(process, the number a GPU has there)"""
    of_number: dict[int, str]

    def of(self, process: int, device: int) -> str:
        alike = set(self.of_number.values())
        only = next(iter(alike)) if len(alike) == 1 else ""
        return self.of_process.get((process, device)) or only or self.of_number.get(device, "")


def gpu_names(file: sqlite3.Connection, tables: set[str]) -> GpuNames:
    if GPUS not in tables or not {"id", "name"} <= columns_of(file, GPUS):
        return GpuNames({}, {})
    called = {number: name[:200] for number, name in file.execute(f"SELECT id, name FROM {GPUS}")
              if isinstance(number, int) and isinstance(name, str)}  # fmt: skip
    found: dict[tuple[int, int], str] = {}
    if CUDA_GPUS in tables and {"pid", "cudaId", "gpuId"} <= columns_of(file, CUDA_GPUS):
        for process, own, number in file.execute(f"SELECT pid, cudaId, gpuId FROM {CUDA_GPUS}"):
            if isinstance(process, int) and isinstance(own, int) and number in called:
                found[process, own] = called[number]
    return GpuNames(found, called)


def clocks_in(file: sqlite3.Connection, tables: set[str]) -> dict[int, GpuClock]:
    """CUDA's number of a GPU -> its clock while it worked."""
    if not {SAMPLES, METRICS} <= tables:
        return {}
    if not {"metricId", "metricName"} <= columns_of(file, METRICS):
        return {}
    named = {number: name[:200] for number, name in file.execute(f"SELECT DISTINCT metricId, metricName FROM {METRICS}")
             if isinstance(number, int) and isinstance(name, str)}  # fmt: skip
    clocks = [number for number, name in named.items() if CLOCK.search(name)]
    actives = [number for number, name in named.items() if ACTIVE.search(name) and "%" in name]
    if not clocks:
        return {}
    hz, busy = _samples(file, clocks[0]), _samples(file, actives[0]) if actives else {}
    found, numbers = {}, _cuda_numbers(file, tables)
    for kind, values in hz.items():
        active = busy.get(kind, {})
        rates = np.array([value if value > MEGA else value * 1e6 for value in values.values()])
        shares = np.array([active.get(moment, np.nan) for moment in values]) / 100
        device = numbers.get(kind & 0xFF, kind & 0xFF)
        clock = clock_of(f"GPU {device}", "", rates, shares)
        if clock is not None:
            found[device] = clock
    return found


def _samples(file: sqlite3.Connection, metric: int) -> dict[int, dict[int, float]]:
    """Of each GPU that was sampled: moment -> value. Its number is the lowest byte of the type."""
    found: dict[int, dict[int, float]] = defaultdict(dict)
    kind = "typeId" if "typeId" in columns_of(file, SAMPLES) else "0"
    query = f"SELECT {kind}, timestamp, value FROM {SAMPLES} WHERE metricId = ? LIMIT {MOST_SAMPLES}"
    for which, moment, value in file.execute(query, (metric,)):
        if isinstance(which, int) and isinstance(moment, int) and isinstance(value, int | float) and value >= 0:
            found[which][moment] = float(value)
    return found


def _cuda_numbers(file: sqlite3.Connection, tables: set[str]) -> dict[int, int]:
    """The number that the sampler gives a GPU -> the one that CUDA gives it."""
    if GPUS not in tables or not {"pwGpuId", "cuDevice"} <= columns_of(file, GPUS):
        return {}
    return {own: number for own, number in file.execute(f"SELECT pwGpuId, cuDevice FROM {GPUS}")
            if isinstance(own, int) and isinstance(number, int)}  # fmt: skip
