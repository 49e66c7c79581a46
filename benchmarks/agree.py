"""Do the tiers say the same? Random cases over models, fabrics, schedules and policies; `--json` ends with one line.

bytes_gap_max: largest relative difference of bytes, axis by axis: `estimate`'s traffic against the fabric's links,
level by level, the simulated timeline against the list of messages, lane by lane, and that list against what the
training program itself records (recorded_cases of them, on small models; none without torch).
sim_gap_*: simulated step over the closed form's. flow_gap_p95: the step with all traffic on the links (what `fabric`
says, ranks as the policy orders them) over the closed form's, on the first flow_cases of the cases. same_first: share
of small spaces in which closed form and flow level put the same policy first; first_lost_max: how much longer the
closed form's first choice takes at flow level than the best there, where it hurts most.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np

from _agree_cases import Sample, cases, small_spaces
from _agree_gaps import FirstChoice, Gaps, first_choice, gaps_of

CASES, FLOW_CASES, SPACES, RECORDED = 2_000, 330, 200, 12
SHOWN = 8


def _run(work: Callable[[Any], Any], items: Iterable[Any], workers: int) -> list[Any]:
    if workers == 1:
        return list(map(work, items))
    waiting, done = list(items), []
    with ProcessPoolExecutor(workers) as pool:
        for number, result in enumerate(pool.map(work, waiting, chunksize=4), start=1):
            done.append(result)
            if sys.stderr.isatty():
                print(f"\r{number:,} of {len(waiting):,} ", end="", file=sys.stderr)
    return done


def measure(
    count: int, flow_count: int, spaces: int, recorded: int, seed: int, workers: int
) -> tuple[dict[str, Any], list[str]]:
    """The figures, and the cases that are farthest apart with why."""
    samples = list(cases(count, seed))
    found: list[Gaps] = _run(partial(gaps_of, flows=True), samples[:flow_count], workers)
    found += _run(partial(gaps_of, flows=False), samples[flow_count:], workers)
    first: list[FirstChoice] = _run(first_choice, islice(small_spaces(spaces, seed), spaces), workers)
    heard: list[tuple[float, str]] = _recorded(recorded, seed, workers)
    sim = np.abs([gap.sim_gap for gap in found])
    flow = np.abs([gap.flow_gap for gap in found if gap.flow_gap is not None])
    figures = {
        "cases": len(found),
        "bytes_gap_max": max([gap.bytes_gap for gap in found] + [gap for gap, _ in heard]),
        "recorded_cases": len(heard),
        "sim_gap_p95": float(np.quantile(sim, 0.95)),
        "sim_gap_max": float(sim.max()),
        "sim_gap_median": float(np.median(sim)),
        "flow_cases": len(flow),
        "flow_gap_p95": float(np.quantile(flow, 0.95)),
        "flow_gap_max": float(flow.max()),
        "flow_gap_median": float(np.median(flow)),
        "spaces": len(first),
        "same_first": float(np.mean([choice.same for choice in first])),
        "first_lost_max": max((choice.lost for choice in first), default=0.0),
    }
    told = [f"first {choice.told}: the closed form's takes {choice.lost:.2%} longer on the links, the other "
            f"{choice.nearer:.2%} longer in closed form" for choice in first if not choice.same]  # fmt: skip
    told += [f"recorded {gap:.2g}: {where}" for gap, where in heard if gap > 1e-6]
    return figures, [*_worst(samples, found), *told]


def _recorded(number: int, seed: int, workers: int) -> list[tuple[float, str]]:
    if not number or find_spec("torch") is None:
        print("no case is recorded: torch is not installed" if number else "no case is recorded")
        return []
    from _agree_recorded import recorded_gap, recorded_samples

    return _run(recorded_gap, recorded_samples(number, seed), workers)


def _worst(samples: list[Sample], found: list[Gaps]) -> list[str]:
    pairs = list(zip(samples, found, strict=True))
    lines = []
    for title, size, why in (
        ("bytes", lambda gap: gap.bytes_gap, lambda gap: (gap.where,)),
        ("simulation", lambda gap: abs(gap.sim_gap), lambda gap: gap.sim_why),
        ("flow level", lambda gap: abs(gap.flow_gap or 0.0), lambda gap: gap.flow_why),
    ):
        far = sorted(pairs, key=lambda pair: -size(pair[1]))[:SHOWN]
        lines += [f"{title} {size(gap):.2g}: {_told(sample)}: {'; '.join(why(gap))}" for sample, gap in far
                  if size(gap) > 1e-6]  # fmt: skip
    return lines


def _told(sample: Sample) -> str:
    p = sample.policy
    return (
        f"{sample.model.name} on {sample.cluster.gpus} of {sample.cluster.name}, {sample.stack.name}, {p.schedule} "
        f"tp {p.tp} pp {p.pp}x{p.vpp} cp {p.cp} dp {p.dp} ep {p.ep} zero {p.zero} order {p.order}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--flow-cases", type=int, default=FLOW_CASES, help="the first of them, at flow level too")
    parser.add_argument("--spaces", type=int, default=SPACES)
    parser.add_argument("--recorded", type=int, default=RECORDED, help="cases run by the training program itself")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    figures, worst = measure(args.cases, args.flow_cases, args.spaces, args.recorded, args.seed, args.workers)
    for line in worst:
        print(line)
    for name, value in figures.items():
        print(f"{name:18} {value:,.4g}")
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
