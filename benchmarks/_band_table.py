"""The shipped table of bands (catalog/bands.toml), and how it does on sources it was not taken from."""

from collections import defaultdict
from collections.abc import Iterable
from math import log

import numpy as np

from _accuracy_csv import FOLDER, TABLES, Cell, Table
from _accuracy_data import ROOT, Floats, has_truth, measured_rows
from _accuracy_tables import markdown, percent
from _band_fit import DIGITS, Bands, Coverage, bands_from, coverage, left_out_coverage
from _band_rows import (
    FOUND,
    MORE,
    Residual,
    cases_of,
    compared_names,
    fitted_table,
    publisher_of,
    taught_rows,
    without_its_source,
)
from shardwise.measured.validate.interpret import MeasuredCase
from shardwise.measured.validate.predict import predict, predict_cases
from shardwise.measured.validate.table import read_table
from shardwise.step.estimate import band
from shardwise.step.estimate.band import HELD, MISSING, Fitted

BANDS = ROOT / "src" / "shardwise" / "catalog" / "bands.toml"
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""where the distribution of peaks is kept"""
WORDS = {
    "base": "nothing is missing",
    "alike": "no run under the program's name was fitted",
    "unseen": "none was ever compared (on top of that)",
    "unknown": "the software is not known (on top of that)",
    "site": "runs of the program were fitted, none of those who measured this one",
    "chip": "no kernel rates and no runs of the GPU",
    "scale": "more GPUs than any run of the program",
    "experts": "an expert model, none among the program's runs",
    "router": "experts taken as evenly loaded, which nothing forces",
}


def write_bands() -> None:
    """Only from the large tables: the one that ships has too few sources to leave any out."""
    if not has_truth():
        return
    bands = bands_from(taught_rows())
    lines = [
        "# Written by benchmarks/accuracy.py from measured runs and evidence/accuracy/left_out.json, not by hand.",
        "# Logarithm of measured over predicted step time: a tenth of runs lies below the low end, a tenth above the",
        "# high one. The base holds where nothing is missing; with the parts of what is, the root of the squares does.",
    ]
    lines += ["", "# Added to the prediction of programs whose runs were compared and not fitted."]
    lines += ["[middle]", f"alike = {bands.middle:.{DIGITS}f}"]
    for side, numbers in (("low", bands.low), ("high", bands.high)):
        lines += ["", f"[{side}]", *(f"{key} = {value:.{DIGITS}f}" for key, value in numbers.items())]
    lines += [
        "",
        "# Logarithm of measured over predicted peak memory, a source weighing as the root of its runs: by shipped",
    ]
    lines += ["# constants, and by constants that had not seen the source.", "[peak]", f"share_below = {list(SHARES)}"]
    cases = [case for case in cases_of(measured_rows()) if case.measured.number("peak_mem_gb")]
    lines.append(f"seen = {_peaks(cases)}")
    lines.append(f"left_out = {_peaks([without_its_source(case) or case for case in cases])}")
    lines += ["", "# Pieces of `software` texts of all runs that predictions were held against.", "[compared]"]
    lines.append(f"named = {_quoted(sorted(compared_names()))}")
    BANDS.write_text("\n".join(lines + _fitted(fitted_table())) + "\n")
    for read in (band._table, band._fitted, band._compared, band._untuned_share):
        read.cache_clear()  # the page that is written next shows these bands


def _fitted(table: Fitted) -> list[str]:
    lines = ["", "# The runs that the constants of each stack were fitted on."]
    for name, runs in sorted(table.items()):
        lines += ["", f'[fitted."{name}"]', f"runs = {runs.runs}", f"gpus = {runs.gpus}", f"on = {_quoted(runs.on)}"]
        lines += [f"experts = {str(runs.experts).lower()}", f"named = {_quoted(runs.named)}"]
    return lines


def _quoted(words: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def _peaks(cases: list[MeasuredCase]) -> list[float]:
    """A source weighs as the root of its runs: one run says little, and a thousand of one study are no thousand
    sources."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for found in predict_cases(cases):
        truth = found.measured.number("peak_mem_gb")
        if found.peak_bytes and truth:
            by_source[publisher_of(found.measured.word("source"))].append(log(truth * 2**30 / found.peak_bytes))
    values = np.concatenate([np.array(group) for group in by_source.values()])
    weights = np.concatenate([np.full(len(group), len(group) ** -0.5) for group in by_source.values()])
    return [round(float(value), 3) for value in _weighted_quantiles(values, weights)]


def _weighted_quantiles(values: Floats, weights: Floats) -> Floats:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return np.asarray(np.interp(SHARES, (reached - weights[order] / 2) / reached[-1], values[order]))


def checks() -> dict[str, Coverage]:
    """The bands on the rows they were taken from, on each source by the others' bands, and on new sources."""
    rows, bands = taught_rows(), bands_from(taught_rows())

    def plain(row: Residual) -> bool:
        return not row.taken_away and not row.table

    found = {
        "sources with fitted runs": coverage(filter(plain, rows), lambda _: bands),
        "each of them by the bands of the others": left_out_coverage(rows, plain),
        "the same, its program never seen": left_out_coverage(rows, lambda row: row.taken_away == "alike"),
        "the same, its software unknown": left_out_coverage(rows, lambda row: row.taken_away == "unknown"),
    }
    for table in (*MORE, *FOUND):
        if any(row.table == table for row in rows):
            told = f"`{table}`, each source by the bands of the others"
            found[told] = left_out_coverage(rows, lambda row, table=table: row.table == table)
    return found


def band_section() -> tuple[str, list[Table]]:
    bands, found = bands_from(taught_rows()), checks()
    lines = [
        [name, f"{c.rows:,}", str(c.sources), percent(c.inside), percent(c.inside_sources), f"{c.width:.2f}",
         percent(c.error)]
        for name, c in found.items()
    ]  # fmt: skip
    head = ("rows", "runs", "sources", "inside", "mean over sources", "upper / lower end", "mean error")
    parts = "; ".join(
        f"{WORDS[key]} {np.expm1(bands.low[key]):+.0%} and {np.expm1(bands.high[key]):+.0%}" for key in MISSING
    )
    text = (
        f"## The band of a step time\n\n`estimate`, `plan`, `simulate` and `validate` print one band, meant to hold "
        f"{HELD:.0%} of measured steps, and what supports it. Its base, {np.expm1(bands.low['base']):+.0%} to "
        f"{np.expm1(bands.high['base']):+.0%}, is the spread of measured over predicted time of runs whose program was "
        "fitted, by constants that had not seen their source where others remain. Each support that a case lacks adds "
        f"to the low and the high end, as the root of the squares, since these errors have causes of their own: "
        f"{parts}. A part was found by taking that support away from every source that has it and predicting it again: "
        "fitted constants put back to those of the stack it is like (a program like no other then counts as unknown), "
        "software taken as unknown (but not Megatron-Core and what is like it, tuned on published runs), "
        "kernel rates of another GPU, constants of small runs for large ones, expert "
        "settings at their defaults. They come from quantile regression of squares in which sources weigh the same; "
        "with n sources the tail is taken (n + 1) / n further out, but for runs of others, which are taken as the base "
        "is: these are in the tables found later, and every plan of yours counts as one. Programs whose runs were "
        "compared and none fitted "
        f"are slower than predicted more often than not, so {np.expm1(bands.middle):.0%} are added to their step, the "
        "median over such sources; nothing where no run was ever compared: that would make the mean error of "
        f"{_worse_by_adding(bands.middle)} of the {len(FOUND)} tables above larger ([by source]({TABLES}/bands.csv)). "
        "Where a row states no network, its band also reaches to what the slow and the fast tenth of public clusters "
        "would make of the step.\n\n"
        f"{markdown(head, lines)}"
    )
    columns = ("rows", "runs", "sources", "inside", "inside_mean_over_sources", "upper_over_lower_end", "mean_error")
    cells: list[list[Cell]] = [[name.replace("`", ""), *c] for name, c in found.items()]
    about = f"how many measured steps lie inside the {HELD:.0%} band, by which runs"
    return text, [Table("band_coverage", about, columns, cells), _by_source(bands)]


def _worse_by_adding(middle: float) -> int:
    """Tables of programs nobody had compared that the addition would not help, as today's code predicts them."""
    worse = 0
    for name in FOUND:
        errors = [
            (p.error, bool(p.band and {"unseen", "unknown"} & set(p.band.missing)))
            for p in predict(read_table(FOLDER / name))
            if p.error is not None
        ]
        now = np.mean([abs(error) for error, _ in errors])
        then = np.mean([abs((1 + error) * np.exp(middle * unseen) - 1) for error, unseen in errors])
        worse += int(then > now)
    return worse


def _by_source(bands: Bands) -> Table:
    rows: list[list[Cell]] = []
    every = [r for r in taught_rows() if not r.taken_away]
    for source in sorted({row.source for row in every}):
        group = [row for row in every if row.source == source]
        found = coverage(group, lambda _: bands)
        missing = sorted({what for row in group for what in row.missing}, key=MISSING.index)
        middle = float(np.median([bands.left(row) for row in group]))
        rows.append([source, found.rows, found.inside, found.width, float(np.expm1(middle)), " ".join(missing)])
    about = "the same by source, with the median of measured over predicted time, less 1, and what some run lacks"
    return Table("bands", about, ("source", "runs", "inside", "upper_over_lower_end", "median", "missing"), rows)
