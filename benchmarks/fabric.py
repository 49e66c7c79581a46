"""What the fabric model claims, measured.

    python benchmarks/fabric.py [--json]

Ends with one line of JSON. Every part is a function that returns figures.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
from collections.abc import Callable
from typing import Any

import _fabric_solver


def _solver(args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    return _fabric_solver.measure()


PARTS: tuple[Callable[[argparse.Namespace], dict[str, Any]], ...] = (_solver,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
