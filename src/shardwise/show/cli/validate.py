"""`shardwise validate`: predictions held against a table of measured runs."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.measured.validate import run
from shardwise.measured.validate.interpret import READ_OTHERWISE
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._options import ProfileFile, profile_or_none
from shardwise.show.cli._output import Cell, print_json, print_notes, print_table
from shardwise.spec.software import known_stack
from shardwise.whole_file import OutputFile

HEADS = ["source", "n", "MAPE", "med.", "bias", "band", "rank", "regr.", "mem."]
STDOUT = "-"
UNKNOWN = re.compile(r"software '.*' is not known; taken as [^;]+")
LEARNED_HEADS = ["source", "n", "MAPE", "bias", "band", "width", "regr."]
MOST_LEARNED = 1000
MARK = b'"rows"'
"""how the document begins"""


def validate(
    *,
    data: Annotated[Path, Parameter(help="CSV of measured runs (columns of steps.csv or h200_steps.csv).")],
    failed: Annotated[Path | None, Parameter(help="CSV of configurations that gave no result.")] = None,
    stack: Annotated[str, Parameter(help="auto: chosen from each row's software column; or a stack's name.")] = "auto",
    profile: ProfileFile = None,
    learn: Annotated[
        int | None, Parameter(help="Predict each row from so many others of its source, model and GPU.")
    ] = None,
    seed: Annotated[int, Parameter(help="Of the draw of these others.")] = 0,
    json: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Write every row and the summary to this file; '-' is stdout."),
    ] = None,
    overwrite: Overwrite = False,
) -> int:
    """Predictions against measured truth: errors, rank, regret and memory, by source."""
    if stack != "auto":
        known_stack(stack)
    _check_learn(learn, seed, failed)
    file = None if json in (None, STDOUT) else OutputFile(Path(json or ""), "json", MARK, overwrite)
    document = run.validate(data, failed=failed, stack=stack, profile=profile_or_none(profile), learn=learn, seed=seed)
    if json == STDOUT:
        print_json(document)
        return 0
    if file is not None:
        file.write(msgspec.json.encode(document))
    if learn is None:
        _show(data, document)
    else:
        _show_learned(data, document["summary"])
    return 0


def _check_learn(learn: int | None, seed: int, failed: Path | None) -> None:
    if learn is not None and not 0 <= learn <= MOST_LEARNED:
        raise ValueError(f"learn: {learn} runs; write 0 to {MOST_LEARNED}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed: {seed}; write a whole number of 0 or more")
    if learn is not None and failed is not None:
        raise ValueError("failed: runs that gave no result say nothing of step times; leave out --failed or --learn")


def _show_learned(data: Path, summary: dict[str, dict[str, Any]]) -> None:
    every = summary["all"]
    if not every["n"]:
        raise ValueError(
            f"learn: no group of {every['k'] + 1} runs of one source, model and GPU; write a smaller number"
        )
    rows: list[list[Cell]] = [
        [name, found["n"], f"{found['mape']:.1%}", f"{found['bias']:+.1%}", f"{found['coverage']:.1%}",
         f"{found['width']:.2f}", None if found["regret"] is None else f"{found['regret']:.3f}"]
        for name, found in sorted(summary.items(), key=lambda item: (item[0] == "all", -item[1]["n"]))
    ]  # fmt: skip
    print_table(f"predictions of {data.name}, each after {every['k']} other runs", LEARNED_HEADS, rows)
    print_notes([
        "n: runs with so many others of their source, model and GPU; band: measured steps inside the 80 % band",
        "width: upper over lower end of the band; regr.: measured throughput of the row predicted best over the best",
    ])  # fmt: skip


def _show(data: Path, document: dict[str, Any]) -> None:
    summary: dict[str, dict[str, Any]] = document["summary"]
    sources = sorted((s for s in summary if s not in ("all", "unfiltered")), key=lambda s: -summary[s]["n"])
    order = [*sources, "all", *(["unfiltered"] if summary["unfiltered"]["n"] != summary["all"]["n"] else [])]
    print_table(f"predictions against {data.name}", HEADS, ([name, *_cells(summary[name])] for name in order),
                bars=HEADS[2:4])  # fmt: skip
    notes = [
        *_over_all(summary["all"]),
        "MAPE, med., bias: mean size, median size and mean of the step-time error, %; band: measured steps inside the "
        "80 % band, %; mem.: mean size of the peak's error, %",
        "rank: Spearman's coefficient of throughput; regr.: measured throughput of the row "
        "predicted best over the best measured (1.00 is perfect)",
    ]
    if "unfiltered" in order:
        notes.append("unfiltered also counts rows whose source contradicts itself and runs below 5 % of peak")
    accuracy = summary["all"].get("fit_balanced_accuracy")
    if accuracy is not None:
        notes.insert(0, f"fit or not, balanced accuracy over failed rows and rows that ran: {accuracy:.3f}")
    reread = Counter(row["source"] for row in document["rows"] if READ_OTHERWISE in row["why"])
    notes += [
        f"{source}: {count:,} of its rows counted without the recomputation they state, which their times rule out "
        "(docs/decisions/0019)"
        for source, count in reread.items()
    ]
    print_notes([*notes, *_unknown_programs(document["rows"])])


def _unknown_programs(rows: list[dict[str, Any]]) -> list[str]:
    """Each text of software that names no program known here, and what its rows were taken as."""
    said = Counter(found[0] for row in rows if (found := UNKNOWN.search(row["why"])))
    return [f"{note} ({count:,} {'row' if count == 1 else 'rows'})" for note, count in said.most_common()]


def _over_all(found: dict[str, Any]) -> list[str]:
    """What the table has no column for."""
    notes = []
    if found["coverage"] is not None:
        notes.append(
            f"the 80 % band held {found['coverage']:.1%} of the steps, {found['coverage_sources']:.1%} in the mean "
            f"over sources; its upper end is {found['band_width']:.2f} times the lower"
        )
    if found["mape_sources"] is not None:
        notes.append(f"MAPE in the mean over sources: {found['mape_sources']:.1%}")
    if found["supported"] < found["n"]:
        notes.append(f"{found['n'] - found['supported']:,} of {found['n']:,} rows are not predicted: --json says why")
    return notes


def _cells(found: dict[str, Any]) -> list[Cell]:
    def percent(key: str, sign: str = "") -> str | None:
        return None if found[key] is None else f"{100 * found[key]:{sign}.1f}"

    def plain(key: str) -> str | None:
        return None if found[key] is None else f"{found[key]:.2f}"

    return [
        found["n"], percent("mape"), percent("median_ape"), percent("bias", "+"), percent("coverage"),
        plain("spearman"), plain("regret"), percent("memory_mape"),
    ]  # fmt: skip
