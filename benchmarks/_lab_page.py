"""Tables of docs/lab.md from what was just measured, each between marks of its own."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from shardwise.units import time_text
from shardwise_lab.demos import DEMOS
from shardwise_lab.demos._contract import Setting
from shardwise_lab.facts import DemoResult, LabRow, Measured
from shardwise_lab.page import comparison_rows

PAGE = Path(__file__).parents[1] / "docs" / "lab.md"
LONG = 1 << 20


def mape(rows: Sequence[LabRow]) -> float:
    return mean(abs(row.error) for row in rows)


def long_rings(rows: Sequence[LabRow]) -> list[LabRow]:
    return [row for row in rows if row.ring and row.bytes >= LONG]


def blind_mape(rows: Sequence[LabRow]) -> float:
    return mean(abs(row.blind_s / row.measured_s - 1) for row in rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *rows))


def fabrics_table(found: Sequence[tuple[str, Measured]]) -> str:
    every = [row for _, run in found for row in run.rows]

    def cells(name: str, rows: Sequence[LabRow]) -> list[str]:
        return [name, str(len(rows)), f"{mape(rows):.1%}", f"{mape(long_rings(rows)):.1%}",
                f"{max(row.bytes_error for row in rows):.1%}", f"{blind_mape(rows):.0%}"]  # fmt: skip

    heads = ("fabric", "points", "all", "rings from 1 MB", "bytes of a port, at most", "blind model")
    parts = [cells(name, run.rows) for name, run in found]
    return table(heads, [*parts, cells("all", every)])


def jobs_table(rows: Sequence[LabRow]) -> str:
    return table(
        ("training", "measured", "predicted", "error", "bytes off by"),
        [(f"`{row.op.removesuffix(' step')}`", time_text(row.measured_s), time_text(row.predicted_s),
          f"{row.error:+.0%}", f"{row.bytes_error:.1%}" if row.bytes_error else "too few") for row in rows],
    )  # fmt: skip


def played_demos() -> list[DemoResult]:
    """All of them, each from its own calibration; one that this machine cannot play is said."""
    found = []
    for name, demo in DEMOS.items():
        try:
            found.append(demo.played(Setting(realtime=True)))
        except ValueError as error:
            print(f"{name}: {error}", flush=True)
            continue
        for what, measured, predicted in comparison_rows(found[-1].comparisons):
            print(f"{name:11} {what:88} {measured:>10} predicted {predicted:>10}", flush=True)
    return found


def demos_table(found: Sequence[DemoResult]) -> str:
    rows = []
    for result in found:
        for place, cells in enumerate(comparison_rows(result.comparisons)):
            rows.append((f"`{result.demo}`" if not place else "", *cells))
    return table(("", "", "measured", "predicted"), rows)


def written(name: str, text: str) -> None:
    """Between `<!-- NAME -->` and `<!-- end -->` of the page."""
    page = PAGE.read_text(encoding="utf-8")
    fresh, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda found: found[1] + text + found[2], page, flags=re.DOTALL
    )
    if not count:
        raise ValueError(f"docs/lab.md has no mark <!-- {name} -->")
    PAGE.write_text(fresh, encoding="utf-8")
