"""Heat maps, tiers and bars; and that nothing else in the project writes SVG."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shardwise.report.charts import (
    Bar,
    HeatMap,
    HeatMaps,
    PartsBar,
    ShareBars,
    TierBox,
    TierChart,
    TierLine,
    TierRow,
    bars_svg,
    heat_svg,
    parts_svg,
    tiers_svg,
)
from shardwise.report.charts.ink import HEAT, PALE, between

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]


def test_every_colour_has_another_for_dark_pages():
    svg = parts_svg(PartsBar("memory", [("a", 10.0, "10 GiB"), ("b", 30.0, "30 GiB")], 80.0))
    style = re.search(r"<style>@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", svg)
    assert style is not None
    rules = set(re.findall(r'\[(fill|stroke)="(#\w+)"\]', style[1]))
    assert set(re.findall(r' (fill|stroke)="(#\w+)"', svg.replace(style[0], ""))) == rules
    assert '[fill="#fff"]{fill:#181c22}' in style[1]


def rects(svg):
    return ElementTree.fromstring(svg).findall(f"{SVG}rect")


def test_a_heat_map_darkens_with_the_logarithm():
    tips = [["a", "b"], ["c", "d"]]
    svg = heat_svg(HeatMaps("who", [HeatMap("tp 3 GB", [[1024.0, 32.0], [0.0, 1e-9]], "#4477aa", tips)], "rows send"))
    cells = [r for r in rects(svg) if r.findtext(f"{SVG}title")]
    assert [r.findtext(f"{SVG}title") for r in cells] == ["a", "b", "c", "d"]
    assert [float(r.attrib["fill-opacity"]) for r in cells] == [1.0, 0.5, 0.0, 0.06]


def test_tiers_are_coloured_by_load():
    rows = [
        TierRow("spine", "1", [TierBox(0.0, "spine 0")]),
        TierRow("leaf", "2", [TierBox(0.2, "x"), TierBox(0.1, "y")]),
    ]
    chart = TierChart("load", rows, [TierLine(0, 0, 1, 0.1, "10 %")], "busiest: a link", 0.2, ("idle", "20 % busy"))
    svg = tiers_svg(chart)
    colours = {r.findtext(f"{SVG}title"): r.attrib["fill"] for r in rects(svg)}
    assert [colours[name] for name in ("spine 0", "y", "x")] == [between(HEAT, share) for share in (0.0, 0.5, 1.0)]
    [line] = ElementTree.fromstring(svg).findall(f"{SVG}line")
    assert float(line.attrib["x1"]) == pytest.approx((float(line.attrib["x2"]) - 130) * 2 / 3 + 130, abs=1)


def test_nothing_sent_is_drawn_too():
    svg = tiers_svg(
        TierChart("load", [TierRow("leaf", "1", [TierBox(0.0, "x")])], [], "nothing is sent", 0.0, ("a", "b"))
    )
    assert "nothing is sent" in svg


def test_bars_are_as_long_as_their_shares():
    svg = bars_svg(ShareBars("t", [Bar("one", 0.5, "50 %"), Bar("long name", 1.2, "120 %")], "share"))
    whole = [float(r.attrib["width"]) for r in rects(svg)[1:] if r.attrib["fill"] == PALE]
    filled = [float(r.attrib["width"]) for r in rects(svg)[1:] if r.attrib["fill"] != PALE]
    assert filled == [whole[0] / 2, whole[1]]


def test_parts_fill_their_share_of_the_bar_and_are_named():
    svg = parts_svg(PartsBar("memory", [("a", 10.0, "10 GiB"), ("none", 0.0, "0"), ("b", 30.0, "30 GiB")], 80.0))
    told = [r for r in rects(svg) if r.findtext(f"{SVG}title")]
    assert [r.findtext(f"{SVG}title") for r in told] == ["a: 10 GiB", "b: 30 GiB"]
    assert [float(r.attrib["width"]) for r in told] == [80.0, 240.0]
    assert "none" not in svg


def test_a_bar_that_overflows_still_fits():
    svg = parts_svg(PartsBar("memory", [("a", 100.0, "100"), ("b", 100.0, "100")], 80.0))
    assert sum(float(r.attrib["width"]) for r in rects(svg) if r.findtext(f"{SVG}title")) == pytest.approx(640.0)


def test_only_this_room_writes_svg():
    tags = re.compile(r"<(?:svg|path|rect|circle|line|polyline|polygon|text|tspan|g)[ >]")
    elsewhere = [
        str(path.relative_to(ROOT))
        for folder in ("src", "lab", "benchmarks", "evidence", "docs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if tags.search(path.read_text(encoding="utf-8")) and "charts" not in path.parts
    ]
    assert elsewhere == []
