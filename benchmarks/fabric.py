"""What the fabric model claims, measured.

    python benchmarks/fabric.py [--data collectives.csv] [--write] [--json]

Ends with one line of JSON. Every part is a function that returns figures; one whose data is not here is left out with a
printed reason.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _fabric_collectives
import _fabric_solver
import _fabric_step

DATA = Path(__file__).resolve().parents[2] / "shared" / "truth" / "collectives.csv"


def _solver(args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    return _fabric_solver.measure()


def _step(args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    return _fabric_step.measure()


def _collectives(args: argparse.Namespace) -> dict[str, Any]:
    if not args.data.is_file():
        print(f"collectives: skipped, {args.data.name} is not here (--data FILE)")
        return {}
    return _fabric_collectives.measure(args.data, args.write)


PARTS: tuple[Callable[[argparse.Namespace], dict[str, Any]], ...] = (_solver, _step, _collectives)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="measured collectives")
    parser.add_argument("--write", action="store_true", help="write the bands that `fabric expect` judges by")
    parser.add_argument("--json", action="store_true", help="only the line of JSON")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for part in PARTS:
        found |= part(args)
    for name, value in found.items() if not args.json else ():
        print(name, value)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
