"""The faults that `benchmarks/operate.py` puts into runs, and runs without any."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from _operate_faults import (
    DENSE,
    EXPERTS,
    LAYOUTS,
    Fault,
    damaged,
    hot_expert,
    leak,
    not_a_number,
    own_network,
    preempted,
    shaped,
    signalled,
    slow_compute,
    slow_data,
)

MIB = 2**20


def models_in(folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, config in (("dense", DENSE), ("experts", EXPERTS)):
        found[name] = folder / f"{name}.json"
        found[name].write_text(json.dumps(config))
    return found


def left_out() -> frozenset[str]:
    """What this machine cannot do."""
    root = os.geteuid() == 0
    network = root and all(shutil.which(name) for name in ("ip", "tc", "nsenter", "unshare"))
    if network:
        network = subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode == 0
    lacking = {"network": not network, "disk": not (root and shutil.which("mount"))}
    return frozenset(name for name, lacks in lacking.items() if lacks)


def healthy() -> list[Fault]:
    return [Fault("", layout) for layout in LAYOUTS]


def every_fault() -> list[Fault]:
    """Of each kind several: another rank, another layout, another strength."""
    return [
        *slow_ranks(), *slow_links(), *silent_ranks(), *killed_ranks(), *full_disks(), *damaged_checkpoints(),
        *data_stalls(), *hot_experts(), *leaks(), *spoiled(),
    ]  # fmt: skip


def slow_ranks() -> list[Fault]:
    expect = ("straggler",)
    found = [Fault(f"rank {rank} {times:g} times as slow from step {onset}", layout, expect, rank,
                   slow_compute(rank, times, onset))
             for layout, rank, times, onset in (("dp2", 0, 2.0, 5), ("dp2", 1, 2.5, 32), ("dp3", 2, 2.0, 32),
                                                ("zero3", 1, 2.5, 32), ("tp2", 0, 2.5, 32), ("pp2", 0, 2.5, 32),
                                                ("pp2", 1, 2.5, 32), ("dp3", 0, 2.5, 5))]  # fmt: skip
    found += [Fault(f"rank {rank} without a processor for {stop * 1e3:.0f} of every {(stop + go) * 1e3:.0f} ms", layout,
                    expect, rank, outside=preempted(rank, stop, go))
              for layout, rank, stop, go in (("dp2", 1, 0.06, 0.02), ("dp3", 1, 0.06, 0.02))]  # fmt: skip
    return found


def slow_links() -> list[Fault]:
    return [Fault(f"network of {mbit:g} Mbit/s from step 32", layout, ("slow_link",), None, own_network, shaped(mbit),
                  needs=frozenset({"network"}))
            for layout, mbit in (("dp2", 40), ("zero3", 30), ("tp2", 10), ("dp3", 40), ("pp2", 2),
                                 ("dp2", 20))]  # fmt: skip


def silent_ranks() -> list[Fault]:
    return [Fault(f"rank {rank} stopped after step {at}", layout, ("silent",), rank,
                  outside=signalled(rank, signal.SIGSTOP, at), more=("--timeout", "12"))
            for layout, rank, at in (("dp2", 1, 20), ("dp3", 2, 30), ("tp2", 1, 10), ("pp2", 1, 25), ("zero3", 0, 30),
                                     ("dp3", 1, 40))]  # fmt: skip


def killed_ranks() -> list[Fault]:
    return [Fault(f"rank {rank} killed by {name} after step {at}", layout, ("killed",), rank,
                  outside=signalled(rank, number, at))
            for layout, rank, at, number, name in (
                ("dp2", 1, 20, signal.SIGKILL, "SIGKILL"), ("dp3", 2, 30, signal.SIGKILL, "SIGKILL"),
                ("tp2", 0, 10, signal.SIGSEGV, "SIGSEGV"), ("pp2", 1, 40, signal.SIGKILL, "SIGKILL"),
                ("ep2", 0, 30, signal.SIGABRT, "SIGABRT"), ("zero3", 1, 50, signal.SIGKILL, "SIGKILL"))]  # fmt: skip


def full_disks() -> list[Fault]:
    return [Fault("a disk of 1 MB for checkpoints", layout, ("disk_full",), None, small_disk=True,
                  needs=frozenset({"disk"}))
            for layout in ("dp2", "dp3", "tp2", "pp2", "zero3", "ep2")]  # fmt: skip


def damaged_checkpoints() -> list[Fault]:
    return [Fault(f"the newest checkpoint damaged: {how}", layout, ("damaged_checkpoint",), None,
                  afterwards=damaged(how, seed))
            for seed, (layout, how) in enumerate((("dp2", "bit"), ("tp2", "bit"), ("pp2", "cut"), ("dp3", "gone"),
                                                  ("zero3", "manifest"), ("ep2", "bit")))]  # fmt: skip


def data_stalls() -> list[Fault]:
    return [Fault(f"{seconds * 1e3:.0f} ms late data on {'all' if rank is None else f'rank {rank}'}"
                  + (f", every {every} batches" if every > 1 else ""), layout, ("data",), rank,
                  slow_data(rank, seconds, onset, every))
            for layout, rank, seconds, onset, every in (
                ("dp2", None, 0.1, 0, 1), ("dp2", 1, 0.15, 32, 1), ("dp3", 2, 0.15, 0, 1), ("tp2", None, 0.15, 32, 1),
                ("zero3", 0, 0.15, 32, 1), ("pp2", 0, 0.1, 0, 1), ("dp3", None, 1.0, 0, 7),
                ("ep2", 1, 0.15, 32, 1))]  # fmt: skip


def hot_experts() -> list[Fault]:
    return [Fault(f"expert {expert} preferred from call {onset} on", "ep2", ("hot_expert",), None,
                  hot_expert(expert, onset))
            for expert, onset in ((0, 0), (3, 60), (7, 70), (5, 0), (1, 40), (6, 60))]  # fmt: skip


def leaks() -> list[Fault]:
    return [Fault(f"{size / MIB:.1f} MiB kept every step on {'all' if rank is None else f'rank {rank}'}", layout,
                  ("memory_leak",), rank, leak(rank, int(size)))
            for layout, rank, size in (("dp2", 0, MIB), ("dp2", 1, 2 * MIB), ("dp3", 2, MIB), ("tp2", None, MIB),
                                       ("pp2", 1, 2 * MIB), ("zero3", 0, MIB))]  # fmt: skip


def spoiled() -> list[Fault]:
    return [Fault(f"a loss that is no number after step {step}", layout, ("not_finite",), None, not_a_number(step))
            for layout, step in (("dp2", 20), ("tp2", 40))]  # fmt: skip
