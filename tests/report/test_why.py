"""Differences between two policies, verdicts, and the figure."""

from xml.etree import ElementTree

import pytest

from shardwise.arch import model_of
from shardwise.report import report_of
from shardwise.report.figure import Figure, Panel, svg_of
from shardwise.report.why import because, waterfall, why_not, why_slower
from shardwise.software import stack_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy

GIVEN = (model_of("llama-3-8b"), cluster_of("dgx-h100:16"), Job(seq=8192, global_batch=64))
SVG = "{http://www.w3.org/2000/svg}"


def report(**fields):
    return report_of(*GIVEN, Policy(**fields), stack_of("megatron-core"))


def test_the_parts_add_up_to_the_difference():
    fast, slow = report(dp=8, tp=2), report(dp=4, tp=4, recompute="full")
    found = waterfall(fast, slow)
    assert sum(item.seconds for item in found) == pytest.approx(slow.step_s - fast.step_s)
    assert [item.seconds for item in found] == sorted((item.seconds for item in found), reverse=True)
    assert found[0].part == "recompute"
    assert "recompute +" in because(found, fast.step_s)
    assert why_slower(fast, fast) == "as fast"
    assert why_slower(fast, slow).startswith(f"step {slow.step_s / fast.step_s - 1:+.1%}: ")


def test_verdicts():
    fast, slow = report(dp=8, tp=2), report(dp=4, tp=4, recompute="full")
    room = max(fast.peak_bytes, slow.peak_bytes)
    assert why_not(fast, slow, room).verdict == "slower"
    assert why_not(slow, fast, room).verdict == "it wins"
    over = why_not(fast, slow, slow.peak_bytes - 3 * 2**30)
    assert over.verdict == "out of memory"
    assert over.why == f"out of memory by 3.0 GiB on stage {slow.fullest_stage}: {slow.largest_kind}"
    assert over.over_bytes == pytest.approx(3 * 2**30)


def figure(points, mark=None):
    return Figure(title="a < b", x_title="GPUs", x_text=lambda v: f"{v:g}", mark=mark,
                  panels=(Panel("step", (points,), log=True), Panel("MFU", (points,), log=False)))  # fmt: skip


@pytest.mark.parametrize(
    "points", [((1.0, 5.0),), ((1.0, 5.0), (2.0, 4.9)), tuple((2.0**i, 3.0**i) for i in range(20))]
)
def test_a_figure_is_xml_with_every_point_inside(points):
    root = ElementTree.fromstring(svg_of(figure(points, mark=(points[-1][0], "knee"))))
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == 2 * len(points)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < float(c.attrib["cx"]) < width and 0 < float(c.attrib["cy"]) < height for c in circles)
    texts = [t.text for t in root.findall(f"{SVG}text")]
    assert "a < b" in texts
    assert "knee" in texts
    assert f"{points[-1][0]:g}" in texts


def test_a_figure_of_nothing_says_so():
    assert "nothing fits" in svg_of(figure(()))
