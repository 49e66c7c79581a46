"""Figures as files: what a button saves opens by itself, as SVG with its own colours and as PNG."""

import struct
import xml.etree.ElementTree as ET

import pytest

from _chromium import missing, opened

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.xdist_group("page"),
    pytest.mark.slow,
]


def test_a_figure_is_saved_as_svg_and_png(page, address, tmp_path):
    opened(page, address, "#/policy?model=llama-3-8b&on=8xh100&zero=3")
    page.wait_for_selector(".plot svg.chart rect")
    figure = page.locator(".plot", has=page.get_by_role("img", name="Memory of a GPU by kind, for each stage")).first
    figure.hover()
    files = {}
    for kind in ("SVG", "PNG"):
        with page.expect_download() as got:
            figure.get_by_role("button", name=f"Save as {kind}").click()
        files[kind] = got.value
        files[kind].save_as(tmp_path / kind)
    assert files["SVG"].suggested_filename == "memory-of-a-gpu-by-kind-for-each-stage.svg"
    drawn = ET.parse(tmp_path / "SVG").getroot()
    bars = [each for each in drawn.iter() if each.tag.endswith("rect")]
    assert len(bars) > 3
    assert not [each for each in bars if "var(" in each.get("fill", "")], "colours need no style sheet"
    raw = (tmp_path / "PNG").read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", raw[16:24])
    assert width == pytest.approx(2 * float(drawn.get("width")), abs=2)
    assert height == pytest.approx(2 * float(drawn.get("height")), abs=2)


def test_a_timeline_is_saved_as_png(page, address, tmp_path):
    opened(page, address, "#/timeline?model=gpt2&on=8xh100&pp=2")
    with page.expect_download() as got:
        page.get_by_role("button", name="Save as PNG").click()
    got.value.save_as(tmp_path / "step.png")
    assert (tmp_path / "step.png").read_bytes()[:4] == b"\x89PNG"
