"""`validate`: predictions held against measured runs, by source."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET

from shardwise.answers.answer import Answer, Cell, Notes, Part, Table
from shardwise.measured.validate.interpret import READ_OTHERWISE

HEADS = ["source", "n", "MAPE", "med.", "bias", "band", "rank", "regr.", "mem."]
LEARNED_HEADS = ["source", "n", "MAPE", "bias", "band", "width", "regr."]
UNKNOWN = re.compile(r"software '.*' is not known; taken as [^;]+")
Scores = Mapping[str, Any]
"""name of a measure -> its value; none: it cannot be taken"""


class ValidateAnswer(Answer, frozen=True, kw_only=True):
    """The document is a fixed contract with other programs: two keys, and no notes."""

    only_shown: ClassVar[tuple[str, ...]] = ("table",)

    rows: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Scores]
    table: Any = UNSET
    """name of the file"""

    def data(self) -> dict[str, Any]:
        return {"rows": self.rows, "summary": self.summary}

    def parts(self) -> Iterator[Part]:
        yield from self._learned() if "k" in self.summary["all"] else self._blind()

    def _learned(self) -> Iterator[Part]:
        every = self.summary["all"]
        ordered = sorted(self.summary.items(), key=lambda item: (item[0] == "all", -item[1]["n"]))
        rows: list[list[Cell]] = [
            [name, found["n"], f"{found['mape']:.1%}", f"{found['bias']:+.1%}", f"{found['coverage']:.1%}",
             f"{found['width']:.2f}", None if found["regret"] is None else f"{found['regret']:.3f}"]
            for name, found in ordered
        ]  # fmt: skip
        yield Table(f"predictions of {self.table}, each after {every['k']} other runs", LEARNED_HEADS, rows)
        yield Notes([
            "n: runs with so many others of their source, model and GPU; band: measured steps inside the 80 % band",
            "width: upper over lower end of the band; regr.: measured throughput of the row predicted best over the "
            "best",
        ])  # fmt: skip

    def _blind(self) -> Iterator[Part]:
        summary = self.summary
        sources = sorted((s for s in summary if s not in ("all", "unfiltered")), key=lambda s: -summary[s]["n"])
        whole = ["unfiltered"] if summary["unfiltered"]["n"] != summary["all"]["n"] else []
        rows = [[name, *_cells(summary[name])] for name in (*sources, "all", *whole)]
        yield Table(f"predictions against {self.table}", HEADS, rows, bars=HEADS[2:4])
        notes = [
            *_over_all(summary["all"]),
            "MAPE, med., bias: mean size, median size and mean of the step-time error, %; band: measured steps inside "
            "the 80 % band, %; mem.: mean size of the peak's error, %",
            "rank: Spearman's coefficient of throughput; regr.: measured throughput of the row "
            "predicted best over the best measured (1.00 is perfect)",
        ]
        if whole:
            notes.append("unfiltered also counts rows whose source contradicts itself and runs below 5 % of peak")
        accuracy = summary["all"].get("fit_balanced_accuracy")
        if accuracy is not None:
            notes.insert(0, f"fit or not, balanced accuracy over failed rows and rows that ran: {accuracy:.3f}")
        reread = Counter(row["source"] for row in self.rows if READ_OTHERWISE in row["why"])
        notes += [
            f"{source}: {count:,} of its rows counted without the recomputation they state, which their times rule out "
            "(docs/decisions/0019)"
            for source, count in reread.items()
        ]
        yield Notes([*notes, *_unknown_programs(self.rows)])


ANSWERS = (ValidateAnswer,)


def validate_answer(name: str, document: Mapping[str, Any]) -> ValidateAnswer:
    """`name`: of the file; `document`: rows and summary, as the contract has them."""
    return ValidateAnswer(rows=document["rows"], summary=document["summary"], table=name)


def _unknown_programs(rows: Sequence[Scores]) -> list[str]:
    """Each text of software that names no program known here, and what its rows were taken as."""
    said = Counter(found[0] for row in rows if (found := UNKNOWN.search(row["why"])))
    return [f"{note} ({count:,} {'row' if count == 1 else 'rows'})" for note, count in said.most_common()]


def _over_all(found: Scores) -> list[str]:
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


def _cells(found: Scores) -> list[Cell]:
    def percent(key: str, sign: str = "") -> str | None:
        return None if found[key] is None else f"{100 * found[key]:{sign}.1f}"

    def plain(key: str) -> str | None:
        return None if found[key] is None else f"{found[key]:.2f}"

    return [
        found["n"], percent("mape"), percent("median_ape"), percent("bias", "+"), percent("coverage"),
        plain("spearman"), plain("regret"), percent("memory_mape"),
    ]  # fmt: skip
