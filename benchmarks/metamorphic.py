"""Laws between answers: better hardware is never slower, one policy is priced as in an array, a plan's first as by its
own command, a launch file keeps its policy, simulation and closed form agree. `--json` ends with one line of JSON.

Random models (of the catalog and random shapes, experts among them), clusters, stacks and policies that the stack's
program runs. `checks`: comparisons made; `violations`: those that break a law by more than its tolerance
(_metamorphic_laws.py states each); per law both, and the most that a step went the wrong way inside the tolerance is in
`worst`. The smallest violation is printed as a command that shows it again.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
import shlex
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np

from _metamorphic_cases import Drawn, drawn_case
from _metamorphic_laws import LAWS, Law, allowed, planned
from shardwise.spec.policy import Policies, Policy, encoded
from shardwise.step.estimate.closed_form import estimate

CASES, PLANS, SEED = 2_000, 60, "0"
TOGETHER = 20


@dataclass(frozen=True)
class Violation:
    law: str
    number: int
    """of the case, or of the plan"""
    row: int
    by: float
    shown: str
    size: tuple[int, int] = (0, 0)
    """GPUs and layers: the smallest is told"""


@dataclass
class Tally:
    checks: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    """by how much the nearest to a violation stays inside the tolerance, below 0, or goes beyond it"""
    violations: list[Violation] = field(default_factory=list)

    def add(self, law: str, checks: int, worst: float, found: Iterable[Violation] = ()) -> None:
        self.checks[law] = self.checks.get(law, 0) + checks
        self.worst[law] = max(self.worst.get(law, -1.0), worst)
        self.violations += found

    def join(self, other: "Tally") -> None:
        for law, checks in other.checks.items():
            self.add(law, checks, other.worst[law])
        self.violations += other.violations


def check_case(number: int, seed: str, laws: Iterable[str] = LAWS) -> Tally:
    drawn, tally = drawn_case(number, seed), Tally()
    found = estimate(drawn.case, drawn.policies)
    for law in laws:
        broken = LAWS[law].check(drawn, found)
        asked = broken[~np.isnan(broken)]
        size = (drawn.case.cluster.gpus, drawn.case.model.layers)
        beyond = [Violation(law, number, int(row), float(broken[row]), _told(drawn, int(row)), size)
                  for row in np.flatnonzero(broken > 0.0)]  # fmt: skip
        tally.add(law, len(asked), float(asked.max(initial=-1.0)), beyond)
    return tally


def check_cases(numbers: range, seed: str) -> Tally:
    tally = Tally()
    for number in numbers:
        tally.join(check_case(number, seed))
    return tally


def check_plan(number: int, seed: str) -> Tally:
    command, broken = planned(number, seed)
    tally = Tally()
    if not np.isnan(broken):
        tally.add("planned", 1, broken, [Violation("planned", number, 0, broken, command)] if broken > 0.0 else [])
    return tally


def measure(cases: int, plans: int, seed: str, workers: int, first: int = 0) -> tuple[dict[str, Any], list[Violation]]:
    """`first`: number of the first of these cases, so that several calls share the work."""
    tally, end = Tally(), first + cases
    parts = [range(begin, min(begin + TOGETHER, end)) for begin in range(first, end, TOGETHER)]
    if workers == 1:
        found = [*(check_cases(part, seed) for part in parts), *(check_plan(n, seed) for n in range(plans))]
    else:
        with ProcessPoolExecutor(workers) as pool:
            found = [
                *pool.map(partial(check_cases, seed=seed), parts),
                *pool.map(partial(check_plan, seed=seed), range(plans)),
            ]
    for each in found:
        tally.join(each)
    broken = {law: sum(each.law == law for each in tally.violations) for law in tally.checks}
    figures = {
        "cases": cases + plans, "checks": sum(tally.checks.values()), "violations": len(tally.violations),
        "laws": {law: {"checks": count, "violations": broken[law], "worst": tally.worst[law]}
                 for law, count in tally.checks.items()},
    }  # fmt: skip
    return figures, sorted(tally.violations, key=lambda each: (each.size, -each.by))


def _told(drawn: Drawn, row: int) -> str:
    case, policy, usual = drawn.case, drawn.policies[row], Policy()
    words = [f"{name}={getattr(policy, name)}" for name in Policy.__struct_fields__
             if getattr(policy, name) != getattr(usual, name)]  # fmt: skip
    return f"{case.model.name} on {case.cluster.gpus} of {case.cluster.name}, {case.stack.name}: {' '.join(words)}"


def command_of(violation: Violation, seed: str) -> str:
    if violation.law == "planned":
        return violation.shown
    return shlex.join(["python", "benchmarks/metamorphic.py", "--seed", seed, "--law", violation.law, "--case",
                       str(violation.number), "--row", str(violation.row)])  # fmt: skip


def smallest(law: Law, drawn: Drawn, row: int) -> tuple[Policies, float]:
    """The policy with as many fields at their usual value as still break the law by itself."""
    alone = drawn.policies.take(np.array([row]))
    by = _broken_by(law, drawn, alone)
    for column in fields(Policies):
        usual = {column.name: np.array([encoded(Policy(), column.name)])}
        simpler = Policies(**{**vars(alone), **usual})
        if allowed(drawn, simpler) and (again := _broken_by(law, drawn, simpler)) > 0.0:
            alone, by = simpler, again
    return alone, by


def _broken_by(law: Law, drawn: Drawn, policies: Policies) -> float:
    one = Drawn(drawn.number, drawn.case, policies, drawn.factor)
    return float(law.check(one, estimate(drawn.case, policies))[0])


def show(law: str, number: int, row: int, seed: str) -> None:
    drawn = drawn_case(number, seed)
    print(f"{law}: {LAWS[law].states}; by a factor of {drawn.factor:g}\n{_told(drawn, row)}")
    policies, by = smallest(LAWS[law], drawn, row)
    print(f"alone and as simple as it can be: {by:+.3g} beyond the tolerance\n"
          f"{_told(Drawn(number, drawn.case, policies, drawn.factor), 0)}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--plans", type=int, default=PLANS)
    parser.add_argument("--first", type=int, default=0, help="number of the first case: a part of more of them")
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--law", choices=list(LAWS), help="with --case and --row: one comparison, made as small as it goes"
    )
    parser.add_argument("--case", type=int, default=0)
    parser.add_argument("--row", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    if args.law:
        show(args.law, args.case, args.row, args.seed)
        return
    figures, violations = measure(args.cases, args.plans, args.seed, args.workers, args.first)
    for law, each in figures["laws"].items():
        print(f"{law:18} {each['checks']:8,} checks {each['violations']:5,} violations, worst {each['worst']:+.2g}")
    told = {each.law: each for each in reversed(violations)}
    for each in told.values():
        print(f"{each.law}: by {each.by:.2g}: {each.shown}\n  {command_of(each, args.seed)}")
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
