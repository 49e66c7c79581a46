"""The figures of a fabric study: the map, who sends to whom, loads over time, rates to expect, fabrics and money."""

from collections.abc import Sequence

from shardwise.fabric.benchmark import Benchmark
from shardwise.report.charts import (
    BandMark,
    Chart,
    ColumnsMark,
    DotsMark,
    HeatMap,
    HeatMaps,
    LineMark,
    Mark,
    Panel,
    PlotAxis,
    RuleMark,
    ShadeMark,
    TierBox,
    TierChart,
    TierLine,
    TierRow,
)
from shardwise.report.charts.ink import ALARM, INK, PALETTE, colour_of
from shardwise.report.fabric_report import FabricMap, FabricOption, FabricReport

COLOURS = {"tp": "#4477aa", "cp": "#66ccee", "ep": "#228833", "pp": "#ccbb44", "dp": "#aa3377"}
MEBIBYTE = 2.0**20


def map_chart(found: FabricMap) -> TierChart:
    rows = [
        TierRow(
            row.name,
            f"{len(row.shown)}" + (f" of {row.total:,}" if row.total > len(row.shown) else ""),
            [
                TierBox(share, f"{row.name} {box}: {share:.2%}")
                for box, share in zip(row.shown, row.shares, strict=True)
            ],
        )
        for row in found.rows
    ]
    lines = [TierLine(link.row, link.upper, link.lower, link.share, f"{link.share:.2%} of the step")
             for link in found.links]  # fmt: skip
    return TierChart("load of the fabric", rows, lines, found.busiest, 1.0, ("idle", "always full"))


def matrix_chart(report: FabricReport, sizes: dict[str, str]) -> HeatMaps:
    """One heat map per kind, rows send; `sizes`: the kinds' totals in words."""
    blocks = report.blocks
    maps = [
        HeatMap(
            f"{kind} {sizes[kind]}", table, COLOURS.get(kind, INK),
            [[f"{blocks[row]} to {blocks[column]}: {value / 1e9:,.3g} GB" for column, value in enumerate(values)]
             for row, values in enumerate(table)],
        )
        for kind, table in report.matrix_bytes.items()
    ]  # fmt: skip
    note = f"rows send, columns receive; {blocks[0]} top left, {blocks[-1]} bottom right; log scale"
    return HeatMaps("who sends to whom", maps, note)


def series_chart(report: FabricReport, step_text: str) -> Chart:
    """The busiest link of each tier over the step, from the top, and the burst of the gradients enlarged."""
    step = PlotAxis(low=0.0, high=report.step_s, text=_seconds)
    burst = report.burst
    panels = []
    for tier in reversed(report.tiers):
        panel = _loads(tier.tier, tier.series, step)
        mean = LineMark(_stairs(tier.mean_series, report.step_s), colour=ALARM, width=1.2, stairs=True)
        shade = [ShadeMark(burst.start_s, burst.end_s, ALARM)] if burst else []
        marks: list[Mark] = [*shade, *panel.marks, mean]
        panels.append(Panel(panel.title, marks, panel.x, panel.y))
    if burst:
        around = PlotAxis("", low=burst.from_s, high=burst.to_s, text=_seconds)
        panels.append(_loads("the burst", burst.series, around))
    note = (
        f"share of capacity, mean of each part of a step of {step_text}; filled: busiest link, "
        f"line: mean of the tier{', shaded: burst' if burst else ''}"
    )
    return Chart("load over one step", panels, panel_width=880.0, panel_height=84.0, notes=[note], heading=False)


def _loads(name: str, series: Sequence[float], axis: PlotAxis) -> Panel:
    high = max(1.0, *series)
    shares = PlotAxis(low=0.0, high=1.04 * high, text=lambda share: f"{share:.0%}", ticks=(0.0, 0.5, 1.0))
    marks: list[Mark] = [ColumnsMark(series, PALETTE[0], 0.75, gap=0.0), RuleMark("line rate", y=1.0, dash="4 4")]
    return Panel(f"{name}, highest {max(series):.0%}", marks, axis, shares)


def _stairs(values: Sequence[float], whole: float) -> list[tuple[float, float]]:
    """Equal parts of the whole, each from its start on."""
    return [*((number * whole / len(values), value) for number, value in enumerate(values)), (whole, values[-1])]


def _seconds(value: float) -> str:
    return f"{value:.4g} s"


def bus_chart(curves: Sequence[Benchmark]) -> Chart:
    """Bus bandwidth to expect against size, with its band, for each collective worth testing."""
    sizes = PlotAxis("size of the message", log=True, text=lambda size: f"{size / MEBIBYTE:,.0f} MiB",
                     ticks=tuple(each.bytes for each in curves[0].expected))  # fmt: skip
    rates = PlotAxis(text=lambda rate: f"{rate / 1e9:,.0f}")
    marks: list[BandMark | LineMark] = []
    for number, curve in enumerate(curves):
        band = [(e.bytes, e.low_bytes_per_s, e.high_bytes_per_s) for e in curve.expected]
        line = [(e.bytes, e.bus_bytes_per_s) for e in curve.expected]
        marks.append(BandMark(band, colour_of(number)))
        marks.append(LineMark(line, f"{curve.op} over {curve.ranks}", colour=colour_of(number)))
    panel = Panel("bus bandwidth as nccl-tests counts it, GB/s", marks, sizes, rates)
    return Chart("bus bandwidth to expect", [panel], panel_height=220.0, legend="right", heading=False)


def budget_chart(rows: Sequence[FabricOption], chosen: Sequence[FabricOption], within: float) -> Chart:
    """MFU against what a fabric costs: every fabric tried as a dot, the cheapest good ones marked."""
    best, least = max(row.mfu for row in rows), min(row.mfu for row in rows)
    dollars = PlotAxis("US dollars of network and NVLink per GPU", low=0.0,
                       high=1.05 * max(row.usd_per_gpu for row in rows), text=lambda usd: f"{usd:,.0f}")  # fmt: skip
    marks: list[DotsMark | RuleMark] = []
    for domain in sorted({row.domain_gpus for row in rows}):
        mine = [row for row in rows if row.domain_gpus == domain]
        marks.append(DotsMark([(row.usd_per_gpu, 100 * row.mfu) for row in mine], f"NVLink domain {domain}",
                              tips=[_option_text(row) for row in mine],
                              ringed=frozenset(i for i, row in enumerate(mine) if row in chosen)))  # fmt: skip
    marks.append(RuleMark(f"within {within:.1%} of the best", y=100 * best * (1 - within), colour=ALARM))
    shares = PlotAxis(low=95 * least, high=102 * best)
    return Chart("MFU against the cost of the fabric", [Panel("MFU, %", marks, dollars, shares)], panel_height=240.0,
                 legend="below", heading=False)  # fmt: skip


def _option_text(row: FabricOption) -> str:
    return (
        f"{row.card_bytes_per_s * 8 / 1e9:,.0f} Gb/s NICs, {row.oversubscription:g}:1, rails {row.rails}, "
        f"NVLink domain {row.domain_gpus}: {row.usd_per_gpu:,.0f} USD, MFU {row.mfu:.1%}"
    )
