"""What docs/accuracy.md begins with: programs on which nothing was fitted, how often the band held there, and what the
recommended policy reached on measured jobs."""

from collections import defaultdict
from functools import cache
from typing import NamedTuple

import numpy as np

import choice
from _accuracy_charts import bars, scatter
from _accuracy_csv import FIGURES, FOLDER, TABLES, Cell, Table
from _accuracy_data import SHIPPED, TRUTH
from _accuracy_tables import percent, source_of
from _band_rows import FOUND
from _band_rows import MORE as BEYOND
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.score import metrics, scored, summary
from shardwise.measured.validate.table import read_table

MORE = tuple(TRUTH / name for name in BEYOND)
COLOURED = 7
PREDICTED_FIRST = (*FOUND, "found_seventh.csv", "found_eighth.csv")
"""the last two teach no band: they tell how far the bands hold"""


def new_programs() -> tuple[str, list[Table]]:
    if not has_more():
        return "## Programs nobody fitted\n\nTheir tables are not here.\n", []
    found = _more()
    kept = [p for p in found if scored(p) and p.error is not None]
    by_source: dict[str, list[Prediction]] = defaultdict(list)
    for p in kept:
        by_source[source_of(p)].append(p)
    score, chosen = summary(found)["all"], choice.usual_figures()
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / "new_sources.svg").write_text(_scatter(by_source))
    (FIGURES / "coverage.svg").write_text(_coverage(by_source))
    (FIGURES / "choice.svg").write_text(_choice(chosen))
    text = (
        "## Programs nobody fitted\n\nWhat to expect of a program that appears nowhere here: seven times published "
        "runs of further sources were looked up, predicted and committed before any error was seen.\n\n"
        f"{_found()}\n"
        f"{_names()}, {len(found)} runs of {len({source_of(p) for p in found})} sources, are in no fit either, but "
        "how their programs work was read in their sources, some of it after their errors had been seen: mean error "
        f"**{percent(score['mape'])}** (**{percent(score['mape_sources'])}** in the mean over sources), bias "
        f"{percent(score['bias'])}; the 80 % band held **{percent(score['coverage'])}** of them "
        f"({percent(score['coverage_sources'])} over sources). On "
        f"{chosen['groups']} measured jobs the recommended policy reached {percent(_number(chosen, 'recommended'))} of "
        f"the best measured speed and the fastest by prediction {percent(_number(chosen, 'first'))} "
        f"({percent(_number(chosen, 'recommended_sources'))} against {percent(_number(chosen, 'first_sources'))} over "
        f"sources); {percent(_number(chosen, 'recommended', 'oom'))} and {percent(_number(chosen, 'first', 'oom'))} of "
        "these picks gave no result ([how it is chosen](space.md#which-of-them-to-take)).\n\n"
        "![programs nobody fitted: predicted against measured](accuracy/new_sources.svg)\n"
        "![how often the band held, by source](accuracy/coverage.svg)\n"
        "![measured speed of the recommended policy](accuracy/choice.svg)\n"
    )
    return text, [_table(by_source)]


def has_more() -> bool:
    return all(path.is_file() for path in MORE)


@cache
def _more() -> list[Prediction]:
    return [prediction for path in MORE for prediction in predict(read_table(path))]


def _found() -> str:
    """How runs that were found later were predicted then, and are by today's code."""
    head = "| predicted first | runs | sources | mean error | over sources | in the band of that day | today, seen |"
    lines = [head, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |", *map(_line, PREDICTED_FIRST)]
    return "\n".join(lines) + "\n"


def _names() -> str:
    return " and ".join(f"`{path.name}`" for path in MORE)


def _line(table: str) -> str:
    first = first_predicted(table)
    today = summary(predict(read_table(FOLDER / table)))["all"]["mape"]
    held = percent(first.inside) if first.inside else "-"
    return (
        f"| [{table}]({TABLES}/{table}) | {first.runs} | {first.sources} | **{percent(first.error)}** | "
        f"**{percent(first.error_sources)}** | {held} | {percent(today)} |"
    )


class FirstPredicted(NamedTuple):
    runs: int
    sources: int
    error: float
    error_sources: float
    inside: float
    """share in the band of that day; 0 where none was kept"""


def first_predicted(table: str) -> FirstPredicted:
    by_source: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for row in read_table(FOLDER / table):
        step, predicted = row.number("step_seconds"), row.number("predicted_step_s")
        if step and predicted:
            low, high = row.number("predicted_low_s") or 0.0, row.number("predicted_high_s") or 0.0
            by_source[row.word("source")].append((abs(predicted / step - 1.0), low <= step <= high))
    every = [found for group in by_source.values() for found in group]
    error, inside = (float(np.mean([found[i] for found in every])) for i in (0, 1))
    over = float(np.mean([np.mean([each for each, _ in group]) for group in by_source.values()]))
    return FirstPredicted(len(every), len(by_source), error, over, inside)


def readme_lines() -> str:
    """How right it is, for the README: of programs nobody fitted first, then of those it was fitted on."""
    new, fitted = (summary(found)["all"] for found in (_more(), predict(read_table(SHIPPED))))
    unseen = [first_predicted(table) for table in PREDICTED_FIRST]
    least, most = (percent(pick(found.error for found in unseen)) for pick in (min, max))
    return (
        f"On {new['n']} published runs whose programs nobody fitted, the step time is {percent(new['mape'])} off on "
        f"average, and {percent(new['coverage'])} of them lie in the 80 % band that every answer prints; on the "
        f"{fitted['n']} published runs that ship, on which constants were fitted, it is {percent(fitted['mape'])}. "
        f"Of programs that appear nowhere here expect more: {sum(found.runs for found in unseen)} runs of "
        f"{sum(found.sources for found in unseen)} further sources, looked up and predicted first, were {least} to "
        f"{most} off, table by table. "
        "Where that comes from, what it does not cover, and steps on one H200 that were predicted first and measured "
        "afterwards: [accuracy](docs/accuracy.md). Beside other tools on the same rows: "
        "[peers](benchmarks/peers.md). `shardwise validate --data FILE` does it for your runs.\n"
    )


def _number(figures: choice.Figures, which: str, what: str = "regret") -> float:
    value = figures[f"{what}_{which}"]
    return float(value) if isinstance(value, float | int) else float("nan")


def _scatter(by_source: dict[str, list[Prediction]]) -> str:
    points = {s: [(p.step_s / (1 + p.error), p.step_s) for p in g if p.step_s and p.error is not None]
              for s, g in by_source.items()}  # fmt: skip
    ordered = sorted(points.items(), key=lambda item: -len(item[1]))
    rest = [point for _, group in ordered[COLOURED:] for point in group]
    series = [*ordered[:COLOURED], (f"other: {len(ordered) - COLOURED} sources", rest)]
    return scatter(series, "Programs nobody fitted: step time", "measured, s", "predicted, s")


def _coverage(by_source: dict[str, list[Prediction]]) -> str:
    items = [(source, float(metrics(group)["coverage"] or 0.0), f"of {len(group)} runs")
             for source, group in sorted(by_source.items())]  # fmt: skip
    return bars(items, "Steps inside the 80 % band, programs nobody fitted", "share of the source's runs")


def _choice(figures: choice.Figures) -> str:
    sources = figures["by_source"]
    items = [(source, float(row[2]), f"(first: {row[1]:.1%}; {row[0]:.0f} jobs)")
             for source, row in (sources.items() if isinstance(sources, dict) else ())]  # fmt: skip
    return bars(items, "Measured speed of the recommended policy", "share of the best measured layout's speed")


def _table(by_source: dict[str, list[Prediction]]) -> Table:
    rows: list[list[Cell]] = []
    for source, group in sorted(by_source.items()):
        found = metrics(group)
        errors = np.array([p.error for p in group], dtype=np.float64)
        rows.append([source, ", ".join(sorted({p.stack for p in group})), len(group), found["mape"],
                     float(errors.mean()), found["coverage"], found["band_width"]])  # fmt: skip
    head = ("source", "stacks", "runs", "mean_error", "bias", "inside", "upper_over_lower_end")
    return Table(
        "new_sources", f"{_names().replace('`', '')} by source: programs on which nothing was fitted", head, rows
    )
