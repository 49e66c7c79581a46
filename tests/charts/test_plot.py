"""Charts of panels: well formed, complete in themselves, every point where its axes say."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.report.charts import (
    BandMark,
    Chart,
    ColumnsMark,
    DotsMark,
    LineMark,
    Panel,
    PlotAxis,
    RuleMark,
    ShadeMark,
    chart_svg,
)
from shardwise.report.charts.ink import ALARM
from shardwise.report.charts.scale import Scale, apart

SVG = "{http://www.w3.org/2000/svg}"


def two_panels(points, marks=(), **more):
    across = PlotAxis("GPUs", log=True, text=lambda v: f"{v:g}", ticks=tuple(x for x, _ in points))
    panels = [
        Panel("step", [LineMark(points, dots=True), *marks], across, PlotAxis(log=True)),
        Panel("MFU", [LineMark(points, dots=True), *marks], across),
    ]
    return Chart("a < b", panels, **more)


def root_of(chart):
    return ElementTree.fromstring(chart_svg(chart))


def texts_of(root):
    return [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "points", [((1.0, 5.0),), ((1.0, 5.0), (2.0, 4.9)), tuple((2.0**i, 3.0**i) for i in range(20))]
)
def test_every_point_is_inside(points):
    root = root_of(two_panels(points, [RuleMark("knee", x=points[-1][0])]))
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == 2 * len(points)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < float(c.attrib["cx"]) < width and 0 < float(c.attrib["cy"]) < height for c in circles)
    assert {"a < b", "knee", f"{points[-1][0]:g}"} <= set(texts_of(root))


def test_nothing_to_draw_is_said():
    assert "nothing fits" in texts_of(root_of(two_panels((), empty="nothing fits")))


def test_a_file_is_complete_and_can_be_heard():
    svg = chart_svg(two_panels(((1.0, 5.0), (2.0, 4.9))))
    assert not re.search(r"<script|href|url\(|@import", svg)
    assert set(re.findall(r"https?://[^\"]*", svg)) == {"http://www.w3.org/2000/svg"}
    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title") == "a < b"
    assert root.findtext(f"{SVG}desc") == "step over GPUs; MFU over GPUs"


def test_the_same_chart_is_the_same_text():
    assert chart_svg(two_panels(((1.0, 5.0),))) == chart_svg(two_panels(((1.0, 5.0),)))


def test_panels_of_one_axis_share_its_ends_and_labels():
    shared, lines = PlotAxis("x"), [LineMark([(0.0, 1.0), (10.0, 2.0)]), LineMark([(5.0, 1.0), (20.0, 2.0)])]
    root = root_of(Chart("t", [Panel("a", lines[:1], shared), Panel("b", lines[1:], shared)]))
    first, second = (
        [float(s.split(",")[0]) for s in line.attrib["points"].split()] for line in root.iter(f"{SVG}polyline")
    )
    assert first[0] < second[0] < second[1]
    assert (second[1] - first[0]) == pytest.approx(2 * (first[1] - first[0]), abs=0.2)
    assert texts_of(root).count("x") == 1
    apart_ = root_of(Chart("t", [Panel("a", lines[:1], PlotAxis("x")), Panel("b", lines[1:], PlotAxis("x"))]))
    assert texts_of(apart_).count("x") == 2


def test_a_legend_names_lines_and_says_more():
    chart = two_panels(((1.0, 5.0),), [LineMark([(1.0, 2.0)], "dp: 3 s", "proven")], legend="right")
    texts = texts_of(root_of(chart))
    assert texts.index("dp: 3 s") + 1 == texts.index("proven")
    assert "dp: 3 s" not in texts_of(root_of(two_panels(((1.0, 5.0),), [LineMark([(1.0, 2.0)], "dp: 3 s")])))


def test_more_lines_than_colours_are_dashed():
    lines = [LineMark([(0.0, n), (1.0, n + 1)], f"line {n}") for n in range(30)]
    svg = chart_svg(Chart("t", [Panel("y", lines, PlotAxis())], legend="below"))
    looks = re.findall(r'<polyline[^>]*stroke="(#\w+)"[^>]*?(?:stroke-dasharray="([\d ]+)")?>', svg)
    assert len(set(looks)) == len(lines)


def test_bands_columns_and_shades_stay_in_the_panel():
    marks = [BandMark([(1.0, 0.1, 50.0), (4.0, 2.0, 3.0)], "#000000"), ColumnsMark([5.0, 0.0, 99.0], "#111111"),
             ShadeMark(2.0, 3.0, "#222222"), LineMark([(1.0, 1.0), (4.0, 8.0)])]  # fmt: skip
    axis = PlotAxis(log=True, low=1.0, high=10.0)
    root = root_of(Chart("t", [Panel("y", marks, PlotAxis(low=1.0, high=4.0), axis)], panel_height=100.0))
    grid = sorted({float(line.attrib["y1"]) for line in root.findall(f"{SVG}line")})
    top, foot = grid[0], grid[-1]
    heights = [float(s.split(",")[1]) for s in root.find(f"{SVG}polygon").attrib["points"].split()]
    assert min(heights) >= top
    assert max(heights) <= foot
    bars = [r for r in root.findall(f"{SVG}rect") if r.attrib["fill"] == "#111111"]
    assert len(bars) == 2
    assert float(bars[1].attrib["height"]) == pytest.approx(foot - top)


def test_marked_dots_have_a_ring_and_tell_what_they_are():
    dots = DotsMark([(1.0, 1.0), (2.0, 2.0)], "two", tips=["one", "other"], ringed=frozenset({1}))
    plain, ringed = root_of(Chart("t", [Panel("y", [dots], PlotAxis())])).findall(f"{SVG}circle")
    assert [each.findtext(f"{SVG}title") for each in (plain, ringed)] == ["one", "other"]
    assert "stroke" not in plain.attrib
    assert ringed.attrib["stroke"] == ALARM


@given(st.floats(1e-9, 1e9), st.floats(1.001, 1e9), st.booleans())
def test_ticks_are_round_few_and_inside(low, ratio, log):
    scale = Scale(low, low * ratio, 0.0, 100.0, log)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 11
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)
    if ratio > 10:
        assert all(float(f"{tick:.3g}") == pytest.approx(tick, rel=1e-9) for tick in ticks)


def test_labels_do_not_touch_and_the_last_stays():
    places = [(0.0, 20.0), (10.0, 20.0), (40.0, 20.0), (45.0, 20.0)]
    assert apart(places) == [1, 3]
