"""Whether this tree is as fast as another one: the same anchors in both, in turn, in one run.

    git worktree add --detach ../base COMMIT
    python benchmarks/against.py --base ../base [--only estimate,search,simulate,fabric,start] [--rounds 3] [--json]

Each anchor calls what a tree's own benchmarks/ define, so the two may differ inside. One thread and processor time
throughout, also where a benchmark itself looks at the clock on the wall; a part of a tree runs in a process of its own,
in both trees before the next round, and the fastest of all rounds counts. `ratio` is the speed of this tree over that
of the base: below 1 this one is slower. Ends with 1 where one is below `--least`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
HERE = Path(__file__).resolve().parents[1]
Seconds = dict[str, float]


def estimate() -> Seconds:
    its, scans = import_module("estimate"), import_module("search")
    counts = {"shuffled_65536": its.BATCH, "shuffled_1000": 1_000, "one_policy": 1}
    found = {name: 1 / its.policies_per_s(count) for name, count in counts.items()}
    found["plan"] = scans.fastest((its.MODEL, its.CLUSTER, its.JOB, its.STACK))[0]
    return found | {"validate_row": 1 / its.validate_rows_per_s()}


def search() -> Seconds:
    its = import_module("search")
    begun, ended, policies = its.estimated((0, 1, its.BATCHES))
    scans = {name: its.fastest(its.case(*of))[0] for name, of in (("scan_gpt3", its.GPT3), ("scan_1t", its.GPT1T))}
    return {"full_estimate": (ended - begun) / policies} | scans


def simulate() -> Seconds:
    its = import_module("simulate")
    step = its.seconds_of(its.llama_step, repeats=1)  # first, so that nothing is cached
    program, duration = its.tasks()
    return {"step_405b": step, "task": its.seconds_of(lambda: its.engine_end(program, duration)) / len(duration)}


def fabric() -> Seconds:
    found = import_module("_fabric_solver").measure() | import_module("_fabric_step").measure()
    return {
        name: found[name] for name in ("flows_10k_s", "flows_100k_s", "all_to_all_s", "study_1024_s", "loop_1024_s")
    }


def start() -> Seconds:
    """Whole processes, modules compiled beforehand: user and system seconds."""
    plans = {"plan_llama70b": ("llama-3-70b", "dgx-h100:1024"), "plan_gpt175b": ("gpt-3-175b", "dgx-h100:4096")}
    return {name: _process_s("plan", model, "--on", cluster) for name, (model, cluster) in plans.items()}


PARTS: dict[str, Callable[[], Seconds]] = {part.__name__: part for part in (estimate, search, simulate, fabric, start)}


def _process_s(*arguments: str) -> float:
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "shardwise", *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found[1:])


def measure(tree: Path, part: str, compiled: str) -> Seconds:
    """In a process of its own, with the tree's modules."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    paths = os.pathsep.join(str(tree / folder) for folder in ("src", "benchmarks"))
    ended = subprocess.run(
        [sys.executable, __file__, "--measure", part], check=True, stdout=subprocess.PIPE, text=True,
        env=given | ONE_THREAD | {"PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": compiled}, cwd=tree,
    )  # fmt: skip
    found: Seconds = json.loads(ended.stdout.splitlines()[-1])
    return found


def compare(base: Path, parts: list[str], rounds: int) -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as compiled:
        for number in range(rounds):
            for part in parts:
                for which, tree in (("base_s", base), ("here_s", HERE)):
                    print(f"round {number + 1} of {rounds}: {part}, {tree}", file=sys.stderr)
                    for anchor, seconds in measure(tree, part, compiled).items():
                        its = best.setdefault(anchor, {})
                        its[which] = min(seconds, its.get(which, seconds))
    return {anchor: its | {"ratio": its["base_s"] / its["here_s"]} for anchor, its in best.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="folder of the other tree, such as a git worktree")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, joined by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", type=float, default=0.0, help="ratio below which the exit code is 1")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--measure", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.path.pop(0)  # this folder: the tree that is measured has its own
        time.perf_counter = time.monotonic = time.process_time
        print(json.dumps(PARTS[options.measure]()))
        return 0
    parts = options.only.split(",")
    if options.base is None or not (options.base / "src" / "shardwise").is_dir():
        parser.error(
            f"--base: {options.base} has no src/shardwise; write the folder of another tree of this repository"
        )
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is unknown; write some of {', '.join(PARTS)}")
    found = compare(options.base.resolve(), parts, options.rounds)
    print(f"{'':16} {'base':>10} {'here':>10} {'ratio':>6}   seconds, of one policy, row, task or run")
    for anchor, its in found.items():
        print(f"{anchor:16} {its['base_s']:10.4g} {its['here_s']:10.4g} {its['ratio']:6.2f}")
    if options.json:
        print(json.dumps(found))
    return int(min(its["ratio"] for its in found.values()) < options.least)


if __name__ == "__main__":
    sys.exit(main())
