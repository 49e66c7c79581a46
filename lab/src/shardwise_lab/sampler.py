"""What the ports of a lab carry, tick by tick, and what TCP says of itself in every namespace of a GPU."""

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, get_native_id
from types import TracebackType
from typing import Self

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise_lab.build import Built
from shardwise_lab.inside import net_file
from shardwise_lab.queues import QueueGauge

TICK_S = 0.01
MOST_SAMPLES = 60_000
REALTIME = 6
"""priority of the thread that reads, where root may say so"""
PRESSURE = Path("/proc/pressure/cpu")
TOLD = {
    "retransmits": ("snmp", "Tcp", "RetransSegs"),
    "timeouts": ("netstat", "TcpExt", "TCPTimeouts"),
    "marks_received": ("netstat", "IpExt", "InCEPkts"),
}


@dataclass(frozen=True)
class Samples:
    """One row a tick."""

    at_s: Floats
    """on the monotonic clock, which all ranks share"""
    bytes: Ints
    """sent over each link of the fabric so far"""
    queues: Ints
    """bytes waiting in front of each watched link"""
    watched: tuple[int, ...]
    waited_s: Floats
    """in which something waited for a core, so far"""

    def pressure(self, start: float, end: float) -> float:
        """Share of this time in which something waited for a core."""
        at, before = np.interp([end, start], self.at_s, self.waited_s)
        return float(min(max((at - before) / max(end - start, TICK_S), 0.0), 1.0))

    def between(self, start: float, end: float) -> Ints:
        """Bytes over each link from the last tick before `start` to the first after `end`."""
        first = max(int(np.searchsorted(self.at_s, start)) - 1, 0)
        last = min(int(np.searchsorted(self.at_s, end)), len(self.at_s) - 1)
        return np.asarray(self.bytes[last] - self.bytes[first])

    def deepest(self, start: float, end: float) -> dict[int, int]:
        """watched link -> the longest queue seen."""
        rows = self.queues[(self.at_s >= start) & (self.at_s <= end)]
        return {link: int(rows[:, i].max(initial=0)) for i, link in enumerate(self.watched)}


class Sampler:
    """Reads every port each tick, in a thread of its own, while it is entered."""

    def __init__(self, built: Built, watched: tuple[int, ...] = (), every_s: float = TICK_S) -> None:
        self._every_s, self._over = every_s, Event()
        self._links = len(built.fabric.tree.links)
        self._watched = watched
        self._files: list[int] = []
        self._ports: list[dict[bytes, tuple[int, int]]] = []
        self._open(built)
        self._gauges = [gauge_of(built, link) for link in watched]
        self._rows: list[tuple[float, Ints, list[int], float]] = []
        self._thread = Thread(target=self._run, daemon=True)

    def _open(self, built: Built) -> None:
        ports: dict[str, dict[bytes, tuple[int, int]]] = {}
        for cable in built.plant.cables:
            # what a GPU sends is what its switch receives: only switches are asked
            first, second = cable.ends
            ports.setdefault(second, {})[cable.devices[1].encode()] = (cable.out, cable.back)
            if not first.startswith("h"):
                ports.setdefault(first, {})[cable.devices[0].encode()] = (cable.back, cable.out)
        for vertex, devices in ports.items():
            self._files.append(net_file(built.space(vertex), "dev"))
            self._ports.append(devices)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        for file in self._files:
            os.close(file)
        for gauge in self._gauges:
            gauge.close()

    def _run(self) -> None:
        with suppress(PermissionError):  # a tick takes a millisecond, but it must not come late
            os.sched_setscheduler(get_native_id(), os.SCHED_RR, os.sched_param(REALTIME))
        due = time.monotonic()
        while not self._over.is_set() and len(self._rows) < MOST_SAMPLES:
            self._rows.append((
                time.monotonic(), self._read(), [gauge.read().bytes for gauge in self._gauges], waited_s()
            ))  # fmt: skip
            due = max(due + self._every_s, time.monotonic())
            self._over.wait(max(due - time.monotonic(), 0.0))
        self._rows.append((time.monotonic(), self._read(), [0] * len(self._gauges), waited_s()))

    def _read(self) -> Ints:
        found = np.zeros(self._links, dtype=np.int64)
        for file, devices in zip(self._files, self._ports, strict=True):
            for line in os.pread(file, 65536, 0).split(b"\n")[2:]:
                name, _, rest = line.partition(b":")
                if links := devices.get(name.strip()):
                    columns = rest.split()
                    found[links[0]], found[links[1]] = int(columns[0]), int(columns[8])
        return found

    @property
    def samples(self) -> Samples:
        at = np.array([row[0] for row in self._rows])
        sent = np.stack([row[1] for row in self._rows])
        queues = np.array([row[2] for row in self._rows], dtype=np.int64).reshape(len(at), len(self._watched))
        return Samples(at, sent, queues, self._watched, np.array([row[3] for row in self._rows]))


def gauge_of(built: Built, link: int) -> QueueGauge:
    for cable in built.plant.cables:
        for end in (0, 1):
            if link == (cable.out, cable.back)[end]:
                return QueueGauge(built.space(cable.ends[end]), cable.devices[end])
    raise ValueError(f"lab: link {link} is on no cable of this fabric")


def drops_of(built: Built) -> dict[int, int]:
    """link -> packets that found its queue full, of all links so far."""
    found = {}
    for cable in built.plant.cables:
        for link in (cable.out, cable.back):
            gauge = gauge_of(built, link)
            found[link] = gauge.read().drops
            gauge.close()
    return found


def port_downs(built: Built) -> dict[int, int]:
    """link -> how often the port that sends it has been down, so far."""
    found = {}
    for cable in built.plant.cables:
        for end, link in ((0, cable.out), (1, cable.back)):
            command = ["ip", "netns", "exec", built.space(cable.ends[end]), "cat",
                       f"/sys/class/net/{cable.devices[end]}/carrier_down_count"]  # fmt: skip
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
            found[link] = int(said) if said.isdigit() else 0
    return found


def tcp_counts(built: Built) -> dict[str, int]:
    """Sums over all GPUs, since they were made."""
    total = dict.fromkeys(TOLD, 0)
    for space in built.hosts:
        tables: dict[tuple[str, str], int] = {}
        for name in ("snmp", "netstat"):
            file = net_file(space, name)
            text = os.pread(file, 65536, 0).decode()
            os.close(file)
            lines = text.splitlines()
            for heads, values in zip(lines[::2], lines[1::2], strict=False):
                kind, _, names = heads.partition(":")
                pairs = zip(names.split(), values.partition(":")[2].split(), strict=False)
                tables.update({(kind, key): int(value) for key, value in pairs})
        for told, (_, kind, key) in TOLD.items():
            total[told] += tables.get((kind, key), 0)
    return total


def cpu_pressure() -> float:
    """Share of the last ten seconds in which something waited for a core; 0 where the kernel does not say."""
    return _told("avg10") / 100.0


def waited_s() -> float:
    """Seconds since the machine began in which something waited for a core."""
    return _told("total") * 1e-6


def _told(name: str) -> float:
    try:
        return float(PRESSURE.read_text(encoding="ascii").split(f"{name}=")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return 0.0
