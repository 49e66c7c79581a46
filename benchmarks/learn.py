"""How much a few runs of a site tighten predictions of its others, on sources left out.

    python benchmarks/learn.py [--fit] [--draw] [--json]

Every run of a group (one source, model and GPU, at least 4 runs) is predicted blind and from 1 and 3 others of it, by a
prior fitted without its publisher. mape_k0, mape_k1, mape_k3, coverage_k0 .. and width_k0 ..: over runs of sources that
no constant was fitted on; *_unfitted: over runs of fitted sources, predicted as if they had not been fitted;
worse_than_blind: of the known sources, the largest of mean error after 1 or 3 runs less the blind one; cpu_s_100:
processor seconds to learn from 100 runs; coverage_changes: of the changes of the step between two runs of a group, the
share inside their bands of 80 %. --fit writes catalog/prior.toml from all sources, --draw the figure of docs/learn.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np

from _accuracy_data import ROOT
from _learn_rows import LearnRow, arrays, folds_of, groups, learn_rows
from _prior_fit import fitted_prior, table_of
from shardwise.arrays import Floats
from shardwise.report.charts import Chart, LineMark, Panel, PlotAxis, chart_svg
from shardwise.step.estimate.posterior import Posterior, Prior, SeenShares

FIGURE = ROOT / "docs" / "learn-error.svg"
PRIOR = ROOT / "src" / "shardwise" / "catalog" / "prior.toml"
SHOTS = (0, 1, 2, 3)
LEAST = 4
DRAWS = 2
MOST_TARGETS = 30
FOLDS = 5
SHARES = (0.003, 0.01, 0.03)
"""tried of the variances that runs share, where constants were fitted on the source"""
OWN = 0.7
"""share of each run's own variance that is left there: bands of known sources then hold about 80 %"""
FEW_TARGETS = 8
WORSE = 0.005
"""by which the mean error of no known source may grow when others of its runs are learned from"""
HEAD = (
    "# Written by `python benchmarks/learn.py --fit`, not by hand: how far off predictions are, by cause.",
    "# Standard deviations of the logarithm of measured over predicted step time for each unit of a cause,",
    "# shared by runs of one site, by runs of one model on one GPU there, and of each run by itself. [seen]:",
    "# shares of these variances where constants were fitted on runs of the very site.",
)
Trial = tuple[float, bool, float]
"""error of the step, whether the band held it, its upper end over its lower"""


def trials(rows: Sequence[LearnRow], prior: Prior, number: int, most: int = MOST_TARGETS) -> list[Trial]:
    """Of every row of a group that is large enough, after `number` others."""
    found = []
    for group in groups(rows):
        draw = np.random.default_rng(0)
        causes, surplus = arrays(group)
        jobs = [str(row.group) for row in group]
        for target in draw.permutation(len(group))[:most] if len(group) >= LEAST else ():
            for _ in range(DRAWS):
                taken = draw.permutation([i for i in range(len(group)) if i != target])[:number]
                known = Posterior(prior, causes[taken], surplus[taken], [jobs[i] for i in taken])
                step = known.at(causes[target][None, :], jobs[target])
                mean, low, high = (float(side[0]) for side in (step.mean, step.low, step.high))
                inside = low <= surplus[target] <= high
                # blind, the step that is printed is the predicted one
                error = float(np.expm1((mean if number else 0.0) - surplus[target]))
                found.append((error, inside, float(np.exp(high - low))))
    return found


def left_out(
    every: Sequence[LearnRow], wanted: Sequence[LearnRow], number: int, priors: Sequence[Prior]
) -> list[Trial]:
    folds = folds_of(every, FOLDS)
    return [
        trial
        for fold, prior in enumerate(priors)
        for trial in trials([row for row in wanted if folds[row.publisher] == fold], prior, number)
    ]


def priors_without(rows: Sequence[LearnRow], every: Sequence[LearnRow]) -> list[Prior]:
    """Fitted without each fold of publishers."""
    folds = folds_of(every, FOLDS)
    return [fitted_prior([row for row in rows if folds[row.publisher] != fold]) for fold in range(FOLDS)]


def figures(rows: Sequence[LearnRow]) -> dict[str, float]:
    known, unknown = ([row for row in rows if row.seen is wanted] for wanted in (True, False))
    fitted = {row.source for row in known}
    sets = {"": [row for row in unknown if row.source not in fitted],
            "_unfitted": [row for row in unknown if row.source in fitted]}  # fmt: skip
    found: dict[str, float] = {}
    priors, folds = priors_without(unknown, rows), folds_of(rows, FOLDS)
    for ending, wanted in sets.items():
        for number in SHOTS:
            found |= _summary(left_out(rows, wanted, number, priors), f"_k{number}{ending}")
    shares = [seen_shares([row for row in known if folds[row.publisher] != fold], prior)
              for fold, prior in enumerate(priors)]  # fmt: skip
    own = [prior.scaled(share) for prior, share in zip(priors, shares, strict=True)]
    errors = {}
    for number in SHOTS:
        found |= _summary(left_out(rows, known, number, own), f"_k{number}_known")
        errors[number] = found[f"mape_k{number}_known"]
    found["worse_than_blind"] = max(errors[number] - errors[0] for number in SHOTS[1:])
    found["coverage_changes"] = round(coverage_of_changes(unknown, priors, folds), 3)
    found["cpu_s_100"] = _seconds_for_100(unknown, priors[0])
    return found


def coverage_of_changes(rows: Sequence[LearnRow], priors: Sequence[Prior], folds: Mapping[str, int]) -> float:
    """Blind, over pairs of one group drawn by chance."""
    inside, draw = [], np.random.default_rng(0)
    for group in groups(rows):
        causes, surplus = arrays(group)
        blind = Posterior(priors[folds[group[0].publisher]], causes[:0], surplus[:0], [])
        for _ in range(min(MOST_TARGETS, len(group)) if len(group) >= LEAST else 0):
            one, other = draw.permutation(len(group))[:2]
            reach = float(blind.change(causes[one], causes[other][None, :], "")[0])
            inside.append(abs(surplus[other] - surplus[one]) <= reach)
    return float(np.mean(inside))


def _summary(found: Sequence[Trial], ending: str) -> dict[str, float]:
    errors, inside, widths = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    return {
        f"mape{ending}": round(float(np.abs(errors).mean()), 4),
        f"coverage{ending}": round(float(inside.mean()), 3),
        f"width{ending}": round(float(widths.mean()), 3),
    }


def _seconds_for_100(rows: Sequence[LearnRow], prior: Prior) -> float:
    some = list(rows)[:100]
    begun = time.process_time()
    causes, surplus = arrays(some)
    Posterior(prior, causes, surplus, [str(row.group) for row in some]).at(causes, str(some[0].group))
    return round(time.process_time() - begun, 4)


def seen_shares(known: Sequence[LearnRow], prior: Prior) -> SeenShares:
    """Those that leave the smallest error in the mean over sources, of those that make none of them worse."""
    best, least = SeenShares(min(SHARES), OWN), np.inf
    for share in (SeenShares(shared, OWN) for shared in SHARES):
        errors = _errors_by_source(known, prior.scaled(share))
        if len(errors) and (errors[:, 1:] - errors[:, :1]).max() <= WORSE and errors[:, 1:].mean() < least:
            best, least = share, float(errors[:, 1:].mean())
    return best


def _errors_by_source(known: Sequence[LearnRow], prior: Prior) -> Floats:
    """Mean errors of each source blind, after one and after three runs."""
    sources = {row.source: [other for other in known if other.source == row.source] for row in known}
    tried = [[trials(rows, prior, number, FEW_TARGETS) for number in (0, 1, 3)] for rows in sources.values()]
    return np.array([[np.mean([abs(error) for error, *_ in each]) for each in three] for three in tried if three[0]])


def write_prior(rows: Sequence[LearnRow]) -> None:
    known, unknown = ([row for row in rows if row.seen is wanted] for wanted in (True, False))
    prior = fitted_prior(unknown)
    fitted_on = f"{len(unknown):,} runs of {len({row.source for row in unknown})} sources, none seen by the constants"
    table = table_of(prior, fitted_on, seen_shares(known, prior))
    lines = [*HEAD, f'fitted_on = "{table.fitted_on}"', f"degrees = {table.degrees}", ""]
    lines += ["[seen]", f"shared = {table.seen.shared}", f"own = {table.seen.own}", "", "[causes]"]
    lines += [
        f'"{cause}" = {{ site = {spread.site}, job = {spread.job}, own = {spread.own}, mean = {spread.mean} }}'
        for cause, spread in table.causes.items()
    ]
    PRIOR.write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(found: Mapping[str, float]) -> None:
    """Mean error and width of the band against the number of runs, by what was known of the source."""
    names = {"": "sources never fitted", "_unfitted": "fitted sources, as if not", "_known": "fitted sources"}
    across = PlotAxis("runs learned from", low=0.0, high=float(SHOTS[-1]), ticks=tuple(map(float, SHOTS)))
    panels = []
    for key, title, up in (
        ("mape", "mean error", PlotAxis(low=0.0, high=0.2, text=lambda share: f"{share:.0%}")),
        ("width", "upper over lower end of the 80 % band", PlotAxis(low=1.0, high=2.4)),
    ):
        marks = [
            LineMark([(float(k), found[f"{key}_k{k}{ending}"]) for k in SHOTS], name, dots=True)
            for ending, name in names.items()
        ]
        panels.append(Panel(title, marks, across, up))
    chart = Chart("Predictions of runs left out, after some of their own source", panels, columns=2, panel_width=300.0,
                  legend="below")  # fmt: skip
    FIGURE.write_text(chart_svg(chart), encoding="utf-8")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fit", action="store_true")
    options.add_argument("--draw", action="store_true")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    rows = learn_rows()
    if asked.fit:
        write_prior(rows)
    found = figures(rows)
    if asked.draw:
        draw(found)
    if not asked.json:
        for name, value in found.items():
            print(f"{name:24} {value:g}")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
