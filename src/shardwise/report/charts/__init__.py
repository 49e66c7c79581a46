"""Figures as SVG, the only place that writes it: described in numbers and words."""

from shardwise.report.charts.amounts import AmountBars, AmountRow, amounts_svg
from shardwise.report.charts.bars import Bar, PartsBar, ShareBars, bars_svg, parts_svg
from shardwise.report.charts.heat import HeatMap, HeatMaps, heat_svg
from shardwise.report.charts.lane_paths import LaneSpans
from shardwise.report.charts.lanes import LaneChart, LaneKind, LaneRow, LevelCurve, LevelPanel, lanes_svg
from shardwise.report.charts.plot import (
    BandMark,
    Chart,
    ColumnsMark,
    DotsMark,
    LineMark,
    Mark,
    Panel,
    PlotAxis,
    Points,
    RuleMark,
    ShadeMark,
)
from shardwise.report.charts.plot_svg import chart_svg
from shardwise.report.charts.tiers import TierBox, TierChart, TierLine, TierRow, tiers_svg

__all__ = [
    "AmountBars",
    "AmountRow",
    "BandMark",
    "Bar",
    "Chart",
    "ColumnsMark",
    "DotsMark",
    "HeatMap",
    "HeatMaps",
    "LaneChart",
    "LaneKind",
    "LaneRow",
    "LaneSpans",
    "LevelCurve",
    "LevelPanel",
    "LineMark",
    "Mark",
    "Panel",
    "PartsBar",
    "PlotAxis",
    "Points",
    "RuleMark",
    "ShadeMark",
    "ShareBars",
    "TierBox",
    "TierChart",
    "TierLine",
    "TierRow",
    "amounts_svg",
    "bars_svg",
    "chart_svg",
    "heat_svg",
    "lanes_svg",
    "parts_svg",
    "tiers_svg",
]
