"""A lab run as one HTML file: what was measured over what was predicted, as table and as load over time."""

from collections.abc import Sequence
from html import escape

from shardwise.report.charts import Chart, LineMark, Panel, PlotAxis, RuleMark, chart_svg
from shardwise.report.result_page import MORE, html_list, html_table
from shardwise.report.terminal import size_text
from shardwise.report.timeline_page import MARK, STYLE
from shardwise.units import time_text
from shardwise_lab.facts import LabComparison, Measured, PortLoad

HEADS = ("collective", "size", "measured", "predicted", "error", "blind", "bytes off", "queue")
HEADS_NOTE = (
    "blind: error of a model that knows NICs and no switches; bytes off: of the port that is furthest off; queue: the "
    "longest"
)
MOST_LOADS = 8


def case_rows(run: Measured) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for row in run.rows:
        queues = [port.queue_bytes for port in row.ports if port.queue_bytes is not None]
        found.append((
            row.op + " (disturbed)" * row.disturbed, size_text(row.bytes),
            time_text(row.measured_s), time_text(row.predicted_s), f"{row.error:+.1%}",
            f"{row.blind_s / row.measured_s - 1:+.0%}", f"{row.bytes_error:.1%}" if row.bytes_error else "-",
            size_text(max(queues)) if queues else "-",
        ))  # fmt: skip
    return found


AXIS_HEADS = ("training", "axis", "messages a step", "measured", "predicted", "error")


def axis_rows(run: Measured) -> list[tuple[str, ...]]:
    """Of trainings of the runtime: time in messages by kind of parallelism."""
    return [
        (row.op, axis.axis, f"{axis.calls:,.4g}", time_text(axis.measured_s), time_text(axis.predicted_s),
         f"{axis.predicted_s / axis.measured_s - 1:+.1%}" if axis.measured_s else "-")
        for row in run.rows for axis in row.axes
    ]  # fmt: skip


UNEVEN = 0.1
"""by which ranks of a case differ before it is said"""


def rank_heads(run: Measured) -> tuple[str, ...]:
    ranks = max(len(row.rank_s) for row in run.rows)
    return ("done after", *(f"rank {rank}" for rank in range(ranks)))


def rank_rows(run: Measured) -> list[tuple[str, ...]]:
    """Of each case: what its ranks took, and below it what was predicted."""
    found: list[tuple[str, ...]] = []
    for row in run.rows:
        empty = [""] * (len(rank_heads(run)) - 1 - len(row.rank_s))
        for name, times in ((f"{row.op} {size_text(row.bytes)}", row.rank_s), ("predicted", row.predicted_rank_s)):
            found.append((name, *map(time_text, times), *empty))
    return found


def rank_notes(run: Measured) -> list[str]:
    """Cases whose ranks were not done together."""
    found = []
    for row in run.rows:
        first, last = min(row.rank_s), max(row.rank_s)
        if last > (1 + UNEVEN) * first:
            found.append(
                f"{row.op} {size_text(row.bytes)}: rank {row.rank_s.index(first)} is done after {time_text(first)}, "
                f"rank {row.rank_s.index(last)} after {time_text(last)}; --json has all"
            )
    return found


def comparison_rows(comparisons: Sequence[LabComparison]) -> list[tuple[str, str, str]]:
    return [
        (each.what, value_text(each.measured, each.unit),
         "-" if each.predicted is None else value_text(each.predicted, each.unit))
        for each in comparisons
    ]  # fmt: skip


def value_text(value: float, unit: str) -> str:
    if unit == "s":
        return time_text(value)
    if unit == "bytes":
        return size_text(value)
    if unit == "x":
        return f"{value:.2f} x"
    return f"{value:.0%}" if unit == "share" else f"{value:,.0f}"


def port_rows(run: Measured) -> list[tuple[str, str, str, str]]:
    return [
        (port.link, size_text(port.measured_bytes), "-" if port.queue_bytes is None else size_text(port.queue_bytes),
         f"{run.drops.get(port.link, 0):,}")
        for port in sorted(run.ports, key=lambda port: -port.measured_bytes)
    ]  # fmt: skip


def counts_text(run: Measured) -> str:
    late = f"{run.ticks_missed} of {run.ticks + run.ticks_missed} ticks missed"
    return (
        f"{sum(run.drops.values()):,} packets dropped, {run.retransmits:,} sent again, {run.timeouts:,} time-outs, "
        f"{run.marks_received:,} marked; a core was waited for {run.cpu_pressure:.0%} of the time, {late}"
    )


def scale_text(run: Measured) -> str:
    return (
        f"{run.gpus} GPUs, a NIC at {run.card_bytes_per_s * 8 / 1e6:,.4g} Mbit/s: every rate 1/{run.dilation:,.0f} of "
        "the cluster's; ratios and bytes carry over, milliseconds do not"
    )


def load_chart(load: PortLoad) -> Chart:
    x = PlotAxis("seconds")
    at = [load.bin_s * number for number in range(len(load.measured_bytes_per_s))]
    lines = [
        LineMark(list(zip(at, [rate * 8 / 1e6 for rate in rates], strict=True)), name, stairs=True, width=1.5)
        for name, rates in (("measured", load.measured_bytes_per_s), ("predicted", load.predicted_bytes_per_s))
        if rates
    ]
    rule = RuleMark("line rate", y=load.capacity_bytes_per_s * 8 / 1e6)
    panels = [Panel(f"{load.link}, Mbit/s", [*lines, rule], x)]
    if any(load.queue_bytes):
        kilobytes = list(zip(at, [size / 1e3 for size in load.queue_bytes], strict=True))
        panels.append(Panel("queue in front of it, kB", [LineMark(kilobytes, "queue", stairs=True, width=1.5)], x))
    return Chart(f"{load.what}, bins of {load.bin_s * 1e3:g} ms", panels, panel_height=130.0, legend="below")


def lab_page(
    title: str, runs: Sequence[Measured], explained: Sequence[str] = (), comparisons: Sequence[LabComparison] = ()
) -> str:
    sections = []
    if comparisons:
        table = html_table(("", "measured", "predicted"), comparison_rows(comparisons))
        sections.append(("What was found", html_list(explained) + table))
    for run in runs:
        words = html_list([scale_text(run), counts_text(run), *[HEADS_NOTE] * bool(run.rows)])
        body = words + (html_table(HEADS, case_rows(run), words=1) if run.rows else "")
        body += html_table(AXIS_HEADS, axis_rows(run), words=2) if axis_rows(run) else ""
        body += html_table(rank_heads(run), rank_rows(run), words=1) if run.rows else ""
        body += "".join(chart_svg(load_chart(load)) for load in run.loads[:MOST_LOADS])
        body += html_table(("port", "bytes", "longest queue", "dropped"), port_rows(run))
        sections.append((f"On {run.fabric}", body))
    inner = "\n".join(f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"/>{MARK}<title>{escape(title)}</title>'
        f"<style>{STYLE}{MORE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n{inner}\n</body>\n</html>\n"
    )
