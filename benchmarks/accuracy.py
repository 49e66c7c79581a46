"""Writes docs/accuracy.md, its figures and the table of error bands from the constants the catalog holds now.

python benchmarks/accuracy.py             # the page, with the folds stored in evidence/accuracy/folds.json (seconds)
python benchmarks/accuracy.py --folds     # cross-validates every stack first (minutes, one core)
python benchmarks/accuracy.py --folds --stack torchtitan    # only this one; the others' records stay
python benchmarks/accuracy.py --peers     # also the figures of benchmarks/peers.md, between its markers
"""

# ruff: noqa: E402
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before numpy starts its threads

import argparse
import sys
import time

from _accuracy_data import ROOT, fitted_stacks, has_truth, rows_of
from _accuracy_folds import FOLDS, read_folds, record_of, write_folds
from _accuracy_left_out import renew_left_out
from _accuracy_page import PAGE, write_page
from _accuracy_peers import write_peers
from _band_table import write_bands
from shardwise.registry import closest


def refit(count: int, names: list[str], jobs: int) -> None:
    """Every record is written as soon as it is there: an interrupted run keeps what it has."""
    stacks = [stack for stack in fitted_stacks() if stack.fitted]
    known = {stack.name for stack in stacks}
    for name in names:
        if name not in known:
            raise ValueError(f"--stack: {name!r} has no folds; {closest(name, sorted(known))}")
    records = {name: record for name, record in read_folds().items() if name in known}
    for stack in stacks:
        if names and stack.name not in names:
            continue
        begun = time.process_time()
        records[stack.name] = record_of(rows_of(stack), count, jobs=jobs)
        out = records[stack.name]["held_out"]
        print(f"{stack.name}: held out {out['mape']:.1%} of {out['rows']} rows, {time.process_time() - begun:.0f} s")
        write_folds(records)
        renew_left_out([stack])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", action="store_true", help="cross-validate again")
    parser.add_argument("--stack", action="append", default=[], help="cross-validate only this one; may be repeated")
    parser.add_argument("--count", type=int, default=5, help="number of folds")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the folds of a stack")
    parser.add_argument("--peers", action="store_true", help="print the figures beside other tools', and paste them")
    given = parser.parse_args()
    if not has_truth():
        print("the large tables are not beside the repository: using the table that ships", file=sys.stderr)
    if given.peers:
        print(write_peers())
        return 0
    if given.folds:
        try:
            refit(given.count, given.stack, max(given.jobs, 1))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    records = read_folds()
    if not records:
        print(f"{FOLDS.relative_to(ROOT)} is missing: no held-out errors; add --folds", file=sys.stderr)
    write_bands()
    write_page(records)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
