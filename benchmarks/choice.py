"""Is the recommended policy a better bet than the fastest by prediction? Measured jobs that tried several layouts.

    python benchmarks/choice.py [--data FILE.csv ...] [--failed FILE.csv] [--json]

A group is one job (source, model, GPU, GPUs, sequence, batch) with at least four measured layouts; layouts that gave no
result belong to it. `first` is the fastest by prediction that fits; `recommended` is what plan/choice.py takes, the
spread of measured memory and the nearest measured run being of other sources only. regret_*: measured speed of the
pick over the best measured (a pick that gave no result counts 0); oom_*: share of picks that gave none. alike_order:
of pairs predicted within ALIKE of each other, how many were measured in the predicted order. regret_without_far: of the
recommended, if the distance from measured runs did not count. Most measured jobs list only what ran, so that caution
costs regret; what ran out of memory is known of one source.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from shardwise.measured.validate.failed import read_failed
from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.score import LOW_MFU
from shardwise.measured.validate.table import read_table
from shardwise.plan.candidate import Candidate
from shardwise.plan.choice import ALIKE, RISK, Weighed, best_of
from shardwise.plan.exhaustive import HEADROOM
from shardwise.plan.nearest import MEASURED, nearest_run
from shardwise.work.case import Case, case_of

TRUTH = Path(__file__).resolve().parents[2] / "shared" / "truth"
FEWEST = 4
GROUP = ("source", "model", "gpu", "gpus", "seq", "global_batch")
FAILED_SOURCE = "nanotron-ultrascale"
"""the study that also publishes what gave no result"""
Figures = dict[str, float | int | dict[str, list[float]]]
Surpluses = dict[str, list[float]]
"""source -> logarithms of measured over predicted peaks"""


@dataclass(frozen=True)
class Tried:
    """A layout that somebody ran."""

    source: str
    group: tuple[str, ...]
    case: Case
    found: Candidate
    measured: float
    """tokens/s of a GPU; 0: it gave no result"""
    predicted: float
    peak_gib: float | None
    broken: bool
    """below what any sound run reaches: counted as a pick, not in the spreads"""
    distance: float
    """doublings from the nearest run of another source"""

    @property
    def room(self) -> float:
        return self.case.cluster.gpu.memory_bytes - self.case.stack.memory.reserve_bytes


def tried_of(prediction: Prediction, *, failed: bool = False) -> Tried | None:
    row, policy = prediction.measured, prediction.policy
    if policy is None or prediction.step_s is None or prediction.peak_bytes is None:
        return None
    if not failed and not row.tokens_per_s_per_gpu:
        return None
    known = measured_case(row, "auto")
    source = FAILED_SOURCE if failed else row.word("source")
    case = case_of(known.model, known.cluster, known.job, known.stack)
    rate = prediction.tokens_per_s_per_gpu or 0.0
    return Tried(
        source=source, group=(source, *(row.word(name) for name in GROUP[1:])), case=case,
        found=Candidate(policy, prediction.step_s, rate, prediction.peak_bytes),
        measured=0.0 if failed else float(row.tokens_per_s_per_gpu or 0.0), predicted=rate,
        peak_gib=None if failed else row.number("peak_mem_gb"),
        broken=failed or (prediction.measured_mfu or 0.0) < LOW_MFU,
        distance=nearest_run(case, policy, without=source).distance,
    )  # fmt: skip


def surpluses_of(runs: Iterable[Tried]) -> Surpluses:
    found: Surpluses = defaultdict(list)
    for run in runs:
        if run.peak_gib and not run.broken:
            found[run.source].append(float(np.log(run.peak_gib * 2**30 / run.found.peak_bytes)))
    return found


def chances_of(group: Sequence[Tried], surpluses: Surpluses) -> list[float]:
    """Of each to run out of memory: the share of measured peaks, of other sources, that would not have fitted. A source
    weighs as the root of its runs, as in the shipped table."""
    values = [(each, len(own) ** -0.5) for source, own in surpluses.items() if source != group[0].source
              for each in own]  # fmt: skip
    surplus, weight = np.array(values).T
    return [float(weight[surplus > np.log(run.room / run.found.peak_bytes)].sum() / weight.sum()) for run in group]


def first_of(group: Sequence[Tried]) -> Tried:
    """The fastest by prediction that fits; where none does, the smallest."""
    fits = [run for run in group
            if run.found.peak_bytes <= min(HEADROOM * run.case.cluster.gpu.memory_bytes, run.room)]  # fmt: skip
    return max(fits, key=lambda run: run.predicted) if fits else _smallest(group)


def recommended_of(group: Sequence[Tried], surpluses: Surpluses, risk: float, *, far: bool = True) -> Tried:
    """What plan/choice.py takes; `far`: the distance from measured runs counts."""
    inside = [
        (run, Weighed(run.found, chance, run.distance if far else 0.0))
        for run, chance in zip(group, chances_of(group, surpluses), strict=True)
        if chance <= risk
    ]
    taken = best_of([weighed for _, weighed in inside])
    return next((run for run, weighed in inside if weighed is taken), None) or _smallest(group)


def _smallest(group: Sequence[Tried]) -> Tried:
    return min(group, key=lambda run: run.found.peak_bytes)


def measure(runs: Sequence[Tried], risk: float = RISK) -> Figures:
    groups: dict[tuple[str, ...], list[Tried]] = defaultdict(list)
    for run in runs:
        groups[run.group].append(run)
    surpluses = surpluses_of(runs)
    picks: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    lost, counted = [0, 0], 0
    for group in groups.values():
        best = max(run.measured for run in group)
        if sum(run.measured > 0 for run in group) < FEWEST:
            continue
        counted += 1
        both = first_of(group), recommended_of(group, surpluses, risk)
        without = recommended_of(group, surpluses, risk, far=False)
        picks[group[0].source].append(tuple(pick.measured / best for pick in (*both, without)))
        for number, pick in enumerate(both):
            lost[number] += pick.measured == 0.0
    every = np.array([pair for pairs in picks.values() for pair in pairs])
    means = np.array([np.mean(pairs, axis=0) for pairs in picks.values()])
    order = [better for group in groups.values() for better in _ordered(group)]
    return {
        "groups": counted, "sources": len(picks),
        "regret_first": float(every[:, 0].mean()), "regret_recommended": float(every[:, 1].mean()),
        "regret_first_sources": float(means[:, 0].mean()), "regret_recommended_sources": float(means[:, 1].mean()),
        "regret_without_far": float(every[:, 2].mean()),
        "oom_first": lost[0] / counted, "oom_recommended": lost[1] / counted,
        "alike_pairs": len(order), "alike_order": float(np.mean(order)),
        "by_source": {s: [len(p), *np.round(np.mean(p, axis=0), 4).tolist()] for s, p in sorted(picks.items())},
    }  # fmt: skip


def _ordered(group: Sequence[Tried]) -> Iterable[bool]:
    sound = [run for run in group if not run.broken]
    if len(sound) >= FEWEST:
        for one, other in combinations(sound, 2):
            fast, slow = (one, other) if one.predicted > other.predicted else (other, one)
            if 1.0 < fast.predicted / slow.predicted <= 1.0 + ALIKE:
                yield fast.measured > slow.measured


def usual_tables() -> tuple[list[Path], Path | None]:
    """Measured runs, and configurations that gave no result."""
    if not TRUTH.is_dir():
        return [MEASURED], None
    return [TRUTH / name for name in ("steps.csv", "steps_small.csv", "steps_more.csv")], TRUTH / "nanotron_failed.csv"


def runs_of(data: Sequence[Path], failed: Path | None) -> list[Tried]:
    found = [tried_of(p) for path in data for p in predict(read_table(path))]
    if failed is not None:
        found += [tried_of(p, failed=True) for p in predict(read_failed(failed))]
    return [run for run in found if run is not None]


def usual_figures() -> Figures:
    return measure(runs_of(*usual_tables()))


def main() -> None:
    usual, failed = usual_tables()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", default=usual, help="tables of measured runs")
    parser.add_argument("--failed", type=Path, default=failed)
    parser.add_argument("--risk", type=float, default=RISK, help="accepted chance to run out of memory")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    figures = measure(runs_of(args.data, args.failed), args.risk)
    for name, value in figures.items():
        if isinstance(value, dict):
            for source, (number, first, taken, _) in value.items():
                print(f"  {source:28} {number:4.0f} groups  first {first:.3f}  recommended {taken:.3f}")
        else:
            print(f"{name:26} {value:.4g}")
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
