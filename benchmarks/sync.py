"""Do cost, simulation and run of every strategy agree, do the published orderings hold? `--json` ends with one line.

strategies: how many; examples: how many ways of working they have. three_way_equal: examples whose events are equal in
cost, simulation and four gloo processes and whose parameters are equal bit for bit; wire_bytes_equal: those whose
messages, counted where torch takes them, have the bytes the events say. speedup: of PSGD over one worker.
orderings_held: checks of `python -m evidence.papers` that hold, of `orderings` (`--full` runs the large problems).
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "tests" / "sync"),
]  # the training task is the conformance suite's

import task

from evidence.papers import Result, reproductions
from shardwise.plugins.sync import ParameterLayout, Strategy, simulate, strategies, trace_of


def ran(folder: Path) -> list[dict[str, Any]]:
    """What each of four processes ended with, by example."""
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"
    command = [sys.executable, str(ROOT / "tests" / "sync" / "ranks.py"), str(folder), "all"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=True)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(task.WORKERS)]


def agree(strategy: Strategy, found: list[dict[str, Any]]) -> tuple[bool, bool]:
    """(events and bits equal three ways, bytes on the wire equal)."""
    sim = simulate(
        task.model_fn, task.optimizer_for(strategy), strategy, n=task.WORKERS, steps=task.STEPS,
        batch_fn=task.batch_fn, loss_fn=task.loss_fn, batched=False,
    )  # fmt: skip
    traced = trace_of(strategy, ParameterLayout.of(task.model_fn()), task.WORKERS, task.STEPS)
    costed = [*traced.setup, *(event for step in traced.steps for event in step)]
    equal = sim.trace == costed and all(
        torch.equal(rank["x"], sim.x[i]) and rank["trace"][1:] == costed for i, rank in enumerate(found)
    )
    wire = all(rank["wire"] == sum(e.sent_by(i) for e in rank["trace"]) for i, rank in enumerate(found))
    return equal, wire


def unseen(done: int, of: int) -> None:
    print(f"  {done} of {of}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--full", action="store_true", help="the large problems: minutes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = ran(Path(folder))
    checked = {name: agree(s, [rank[name] for rank in found]) for name, s in task.EXAMPLES.items()}
    results: dict[str, Result] = {}
    for name, each in reproductions().items():
        print(name, file=sys.stderr)
        results[name] = each.run(name != "speedup" and not options.full, unseen)
    checks = [check for result in results.values() for check in result.checks]
    figures = {
        "strategies": len(strategies()),
        "examples": len(checked),
        "three_way_equal": sum(equal for equal, _ in checked.values()),
        "wire_bytes_equal": sum(wire for _, wire in checked.values()),
        "speedup": {str(row[0]): float(str(row[2])) for row in results["speedup"].rows},
        "orderings": len(checks),
        "orderings_held": sum(check.holds for check in checks),
        "failed": [name for name, both in checked.items() if not all(both)] + [c.claim for c in checks if not c.holds],
    }
    for name, value in figures.items():
        print(f"{name:18} {value}")
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
