"""`shardwise validate`: predictions held against a table of measured runs."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.cli._files import Overwrite
from shardwise.cli._options import ProfileFile, profile_or_none
from shardwise.cli._output import Cell, print_json, print_notes, print_table
from shardwise.software import known_stack
from shardwise.validate import run
from shardwise.validate.interpret import READ_OTHERWISE
from shardwise.whole_file import OutputFile

HEADS = ["source", "n", "pred.", "MAPE", "med.", "bias", "rank", "regr.", "mem."]
STDOUT = "-"
MARK = b'"rows"'
"""how the document begins"""


def validate(
    *,
    data: Annotated[Path, Parameter(help="CSV of measured runs (columns of steps.csv or h200_steps.csv).")],
    failed: Annotated[Path | None, Parameter(help="CSV of configurations that gave no result.")] = None,
    stack: Annotated[str, Parameter(help="auto: chosen from each row's software column; or a stack's name.")] = "auto",
    profile: ProfileFile = None,
    json: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Write every row and the summary to this file; '-' is stdout."),
    ] = None,
    overwrite: Overwrite = False,
) -> int:
    """Predictions against measured truth: errors, rank, regret and memory, by source."""
    if stack != "auto":
        known_stack(stack)
    file = None if json in (None, STDOUT) else OutputFile(Path(json or ""), "json", MARK, overwrite)
    document = run.validate(data, failed=failed, stack=stack, profile=profile_or_none(profile))
    if json == STDOUT:
        print_json(document)
        return 0
    if file is not None:
        file.write(msgspec.json.encode(document))
    _show(data, document)
    return 0


def _show(data: Path, document: dict[str, Any]) -> None:
    summary: dict[str, dict[str, Any]] = document["summary"]
    sources = sorted((s for s in summary if s not in ("all", "unfiltered")), key=lambda s: -summary[s]["n"])
    order = [*sources, "all", *(["unfiltered"] if summary["unfiltered"]["n"] != summary["all"]["n"] else [])]
    print_table(f"predictions against {data.name}", HEADS, ([name, *_cells(summary[name])] for name in order),
                bars=HEADS[3:5])  # fmt: skip
    notes = [
        "MAPE, med., bias: mean size, median size and mean of the step-time error, %; mem.: mean size of the peak's, %",
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
    print_notes(notes)


def _cells(found: dict[str, Any]) -> list[Cell]:
    def percent(key: str, sign: str = "") -> str | None:
        return None if found[key] is None else f"{100 * found[key]:{sign}.1f}"

    def plain(key: str) -> str | None:
        return None if found[key] is None else f"{found[key]:.2f}"

    return [
        found["n"], found["supported"], percent("mape"), percent("median_ape"), percent("bias", "+"),
        plain("spearman"), plain("regret"), percent("memory_mape"),
    ]  # fmt: skip
