"""The queue in front of the hottest port over time, for each collective that was followed packet by packet."""

from shardwise.report.charts import Chart, LineMark, Mark, Panel, PlotAxis, RuleMark
from shardwise.report.charts.ink import ALARM, PALETTE
from shardwise.report.packet_report import PacketCall, PacketReport


def queue_chart(report: PacketReport) -> Chart:
    panels = [_panel(call) for call in report.calls]
    note = (
        f"longest queue in each part of the time, in the seed with the longest; {report.rules.layer}, {report.routing}"
    )
    return Chart("queue before the hottest port", panels, panel_width=880.0, panel_height=120.0, notes=[note])


def _panel(call: PacketCall) -> Panel:
    hot = call.hottest
    whole = hot.bin_s * len(hot.queue_bytes)
    deepest = max(hot.deepest_bytes, 1.0)
    points = [(number * hot.bin_s, value / 1e3) for number, value in enumerate(hot.queue_bytes)]
    marks: list[Mark] = [LineMark([*points, (whole, points[-1][1])], colour=PALETTE[0], width=1.4, stairs=True)]
    if hot.mark_low_bytes is not None and hot.mark_low_bytes < 3.0 * deepest:
        marks.append(RuleMark("marks from here", y=hot.mark_low_bytes / 1e3, colour=ALARM, dash="4 4"))
    if hot.limit_bytes is not None and hot.limit_bytes < 3.0 * deepest:
        marks.append(RuleMark("dropped beyond", y=hot.limit_bytes / 1e3, colour=ALARM))
    shown = max([deepest, *(mark.y * 1e3 for mark in marks if isinstance(mark, RuleMark) and mark.y is not None)])
    title = f"{call.op} over {call.ranks} ranks: {hot.link}, kB"
    time = PlotAxis(low=0.0, high=whole, text=lambda seconds: f"{seconds * 1e6:,.4g} us")
    return Panel(title, marks, time, PlotAxis(low=0.0, high=1.05 * shown / 1e3, text=lambda value: f"{value:,.4g}"))
