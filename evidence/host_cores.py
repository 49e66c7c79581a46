"""How fast the host is on each core of this machine, in the threads that run a step's forward and backward pass.

    python evidence/host_cores.py --out evidence/timed/host-cores-h200.csv                  # on the GPU, Linux

The step of `shardwise calibrate`, so small that only the host takes time, with its thread and autograd's left free,
then pinned to each core in turn. `python_us`: a call of Python's own; `launch_us`: an operator without autograd. Where
cores differ by as much as the table says, a machine has no one speed: others work beside some of its cores.
"""

import argparse
import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch

from shardwise.cost.calibrate.measure.launch import LAYERS, OPERATIONS_PER_LAYER, host_passes
from trace_look import launch_us, python_us

STEPS, SETTLE, FREE_STEPS, APART = 12, 2, 400, 5
FORWARD = LAYERS * OPERATIONS_PER_LAYER
AUTOGRAD = "pt_autograd_0"
COLUMNS = ["how", "core", "autograd_core", "steps", "forward_us", "backward_us", "python_us", "launch_us"]
Row = dict[str, str | int]


def autograd_thread() -> int:
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == AUTOGRAD:
            return int(task.name)
    raise ValueError("autograd has no thread here; run it on a machine with a GPU")


def core_of(thread: int) -> int:
    return int(Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[36])


class Host:
    def __init__(self) -> None:
        self.passes = host_passes(torch.device("cuda"))
        self.passes()
        self.one = torch.ones(8, device="cuda")
        self.threads = os.getpid(), autograd_thread()

    def measured(self, how: str, steps: int) -> Row:
        rows = []
        for _ in range(SETTLE + steps):
            torch.cuda.synchronize()
            forward, backward = self.passes()
            rows.append((1e6 * forward / FORWARD, 0.5e6 * backward / FORWARD, python_us(), launch_us(self.one)))
        middle = [f"{median(column):.3f}" for column in zip(*rows[SETTLE:], strict=True)]
        return dict(zip(COLUMNS, [how, *map(core_of, self.threads), steps, *middle], strict=True))

    def pinned(self, cores: tuple[set[int], set[int]]) -> None:
        for thread, allowed in zip(self.threads, cores, strict=True):
            os.sched_setaffinity(thread, allowed)


def rows() -> Iterator[Row]:
    host, cores = Host(), sorted(os.sched_getaffinity(0))
    yield host.measured("free", FREE_STEPS)
    for apart, how in ((APART, "pinned"), (APART, "pinned again"), (0, "pinned, both on one core")):
        for place, core in enumerate(cores):
            host.pinned(({core}, {cores[(place + apart) % len(cores)]}))
            yield host.measured(how, STEPS)
    host.pinned((set(cores), set(cores)))
    yield host.measured("free again", FREE_STEPS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    with parser.parse_args().out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows():
            writer.writerow(row)
            print(row, file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
