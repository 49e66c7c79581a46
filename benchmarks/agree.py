"""Do the tiers say the same? Random cases over models, fabrics, schedules and policies; `--json` ends with one line.

bytes_gap_max: largest relative difference of bytes, axis by axis: `estimate`'s traffic against the fabric's links,
level by level, and the simulated timeline against the list of messages that real runs are held against, lane by lane.
sim_gap_*: simulated step over the closed form's. flow_gap_p95: the step with all traffic on the links (what `fabric`
says, ranks as the policy orders them) over the closed form's, on the first flow_cases of the cases. same_first: share
of small spaces in which closed form and flow level put the same policy first.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from _agree_cases import Sample, cases, small_spaces
from _agree_gaps import Gaps, gaps_of, same_first

CASES, FLOW_CASES, SPACES = 2_000, 330, 200
SHOWN = 8


def _run(work: Callable[[Any], Any], items: Iterable[Any], workers: int) -> list[Any]:
    if workers == 1:
        return list(map(work, items))
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(work, items, chunksize=8))


def measure(count: int, flow_count: int, spaces: int, seed: int, workers: int) -> tuple[dict[str, Any], list[str]]:
    """The figures, and the cases that are farthest apart with why."""
    samples = list(cases(count, seed))
    found: list[Gaps] = _run(partial(gaps_of, flows=True), samples[:flow_count], workers)
    found += _run(partial(gaps_of, flows=False), samples[flow_count:], workers)
    first: list[bool] = _run(same_first, islice(small_spaces(spaces, seed), spaces), workers)
    sim = np.abs([gap.sim_gap for gap in found])
    flow = np.abs([gap.flow_gap for gap in found if gap.flow_gap is not None])
    figures = {
        "cases": len(found),
        "bytes_gap_max": max(gap.bytes_gap for gap in found),
        "sim_gap_p95": float(np.quantile(sim, 0.95)),
        "sim_gap_max": float(sim.max()),
        "sim_gap_median": float(np.median(sim)),
        "flow_cases": len(flow),
        "flow_gap_p95": float(np.quantile(flow, 0.95)),
        "flow_gap_max": float(flow.max()),
        "flow_gap_median": float(np.median(flow)),
        "spaces": len(first),
        "same_first": float(np.mean(first)),
    }
    return figures, _worst(samples, found)


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    figures, worst = measure(args.cases, args.flow_cases, args.spaces, args.seed, args.workers)
    for line in worst:
        print(line)
    for name, value in figures.items():
        print(f"{name:18} {value:,.4g}")
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
