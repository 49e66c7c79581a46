"""What the fabric model claims, measured.

    python benchmarks/fabric.py [--data collectives.csv] [--json]

Ends with one line of JSON. Every part is a function that returns figures; one whose data is not here is left out with a
printed reason.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _fabric_collectives

DATA = Path(__file__).resolve().parents[2] / "shared" / "truth" / "collectives.csv"


def _collectives(data: Path) -> dict[str, Any]:
    if not data.is_file():
        print(f"collectives: skipped, {data.name} is not here (--data FILE)")
        return {}
    return _fabric_collectives.measure(data)


PARTS: tuple[Callable[[Path], dict[str, Any]], ...] = (_collectives,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="measured collectives")
    parser.add_argument("--json", action="store_true", help="only the line of JSON")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for part in PARTS:
        found |= part(args.data)
    for name, value in found.items() if not args.json else ():
        print(name, value)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
