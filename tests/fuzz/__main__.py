"""`python -m fuzz --inputs 100000`: ends with one line of JSON; exit code 1 where something was found."""

import argparse
import json
import sys
import time

from fuzz.drive import Findings, by_place, drive


def main() -> int:
    asked = argparse.ArgumentParser(prog="fuzz")
    asked.add_argument("--inputs", type=int, default=100_000)
    asked.add_argument("--seed", default="0")
    asked.add_argument("--workers", type=int, default=2)
    asked.add_argument("--first", type=int, default=0, help="number of the first input")
    given = asked.parse_args()
    last, seen = [time.monotonic()], [0]

    def progress(found: Findings) -> None:
        for failure in found.failures[seen[0] :]:
            print(json.dumps(failure), file=sys.stderr, flush=True)
        seen[0] = len(found.failures)
        if time.monotonic() - last[0] > 15:
            last[0] = time.monotonic()
            print(f"{found.inputs:,} inputs, {len(found.failures)} failures", file=sys.stderr, flush=True)

    found = drive(given.inputs, given.seed, given.workers, given.first, progress)
    for count, why in by_place(found)[:40]:
        print(f"{count:6} x {why}")
    for seconds, what in found.slowest[:5]:
        print(f"{seconds:6.1f} s {what[:160]}")
    print(json.dumps(found.summary))
    return int(bool(found.failures))


if __name__ == "__main__":
    sys.exit(main())
