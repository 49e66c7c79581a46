"""Measures this machine step by step and keeps what it has: an interrupted calibration is a smaller profile."""

import datetime
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from msgspec.structs import replace

from shardwise.cost.calibrate.from_collectives import group_cluster, network_fit
from shardwise.cost.calibrate.from_points import profile_from_points
from shardwise.cost.calibrate.measure import attention, collectives, gemm, launch, memory, optimizer
from shardwise.cost.calibrate.measure._bench import Bench, bench_on
from shardwise.cost.calibrate.profile import Point, Profile
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import gpu_of
from shardwise.spec.reported import catalog_gpu


@dataclass(frozen=True)
class Step:
    """One kind of measurement; `points` yields them one by one, `size` says how many there will be."""

    kind: str
    words: str
    size: int
    points: Callable[[], Iterable[Point]]


@dataclass
class Calibration:
    """`run` measures and yields (done, of, what comes next); `profile` may be asked for at any time."""

    bench: Bench
    quick: bool = False
    cluster: Cluster | None = None
    """what the ranks under torchrun ran on; None: the usual fabric of this GPU"""
    points: dict[str, list[Point]] = field(default_factory=dict)
    leads: bool = True
    """this rank measures kernels and writes the profile"""
    done: bool = False

    def run(self) -> Iterator[tuple[int, int, str]]:
        yield from self._collectives()
        if not self.leads:
            return
        steps = self._steps()
        total, count = sum(step.size for step in steps), 0
        for step in steps:
            yield count, total, step.words
            kept = self.points.setdefault(step.kind, [])
            for point in step.points():
                kept.append(point)
                count += 1
                yield count, total, step.words
            self._free()
        self.done = True

    def _collectives(self) -> Iterator[tuple[int, int, str]]:
        if collectives.world_size() < 2:
            return
        with collectives.joined(self.bench) as world:
            self.leads = world.rank == 0
            kept = self.points.setdefault("collectives", [])
            total = len(collectives.OPS) * len(collectives.SIZES[self.bench.device.type])
            for point in collectives.collective_points(self.bench, world, self.quick):
                kept.append(point)
                if self.leads:
                    yield len(kept), max(total, len(kept)), f"collectives over {world.ranks} ranks"
        self._free()

    def _steps(self) -> list[Step]:
        bench, quick = self.bench, self.quick
        dtype = "bf16" if bench.cuda else "fp32"
        products, attends = gemm.shapes_of(bench, quick), attention.shapes_of(bench, quick)
        return [
            Step("launch", "launch cost", 2, lambda: (point(bench) for point in launch.POINTS)),
            Step("clock", f"{dtype} product, rested and warm", 2, lambda: self._clock(dtype)),
            Step("gemm", f"{dtype} products", len(products), lambda: gemm.gemm_points(bench, dtype, products)),
            Step("attention", "flash attention", 2 * len(attends), lambda: attention.attention_points(bench, attends)),
            Step("memory", "element-wise passes", 8, lambda: memory.memory_points(bench)),
            Step("memory", "optimizer", 2, lambda: optimizer.optimizer_points(bench)),
        ]  # fmt: skip

    def _clock(self, dtype: str) -> Iterator[Point]:
        yield {"what": "burst", "dtype": dtype, "seconds": gemm.burst_seconds(self.bench, dtype)}
        yield {
            "what": "hot",
            "dtype": dtype,
            "seconds": gemm.hot_seconds(self.bench, dtype, 0.5 if self.quick else 3.0),
        }

    def _free(self) -> None:
        if self.bench.cuda:
            torch.cuda.empty_cache()

    @property
    def gpu(self) -> Gpu | None:
        name = catalog_gpu(reported_name(self.bench)) if self.bench.cuda else None
        return None if name is None else gpu_of(name)

    def profile(self, name: str | None = None) -> Profile:
        gpu, reported, today = self.gpu, reported_name(self.bench), datetime.date.today().isoformat()
        device = gpu.name if gpu is not None else ("cpu" if not self.bench.cuda else reported.lower())
        head = Profile(
            name=name or f"{device.replace(' ', '-')}-{today}", device=device, reported=reported,
            driver=driver_version() if self.bench.cuda else platform.release(), torch=str(torch.__version__),
            date=today, complete=self.done,
        )  # fmt: skip
        profile = profile_from_points(head, self.points, gpu)
        measured = self.points.get("collectives", [])
        return replace(profile, network=network_fit(measured, self._measured_on(measured))) if measured else profile

    def _measured_on(self, points: list[Point]) -> Cluster | None:
        if not self.bench.cuda or self.cluster is None:
            return None
        return group_cluster(self.cluster, int(points[0]["ranks"]), int(points[0]["nodes"]))


def calibration(device: str | None = None, *, quick: bool = False, cluster: Cluster | None = None) -> Calibration:
    """Ready to run on 'cuda', 'cpu', or what this machine has."""
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen not in ("cuda", "cpu"):
        raise ValueError(f"device: {chosen!r} is unknown; write cuda or cpu")
    if chosen == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: torch finds no CUDA device here; write --device cpu")
    if chosen == "cuda":
        chosen = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(chosen)
    return Calibration(bench_on(chosen, quick=quick), quick, cluster)


def reported_name(bench: Bench) -> str:
    return torch.cuda.get_device_name(bench.device) if bench.cuda else (platform.processor() or platform.machine())


def driver_version() -> str:
    """What the kernel module says of itself; empty where it does not."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            words = file.readline(500).split()
    except OSError:
        return ""
    return next((word for word in words if word[:1].isdigit() and "." in word), "")
