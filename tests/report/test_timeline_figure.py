"""The figure of a step: complete, well formed, small, and true to the timeline."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from shardwise.report.charts.drawing import Drawing
from shardwise.report.charts.lane_paths import draw_lane, lane_pixels
from shardwise.report.timeline_figure import COLOURS, timeline_chart, timeline_figure, timeline_svg
from shardwise.report.timeline_page import timeline_page
from shardwise.show.cli import main
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.step.simulate import Straggler, simulate
from shardwise.step.simulate.outcome import ScheduleOutcome
from shardwise.step.simulate.timeline import KINDS, LANES, MemorySteps, Spans, Timeline
from shardwise.work.case import case_of

SVG = "{http://www.w3.org/2000/svg}"
PIXELS = 1000.0
POLICIES = [
    Policy(dp=8, pp=8),
    Policy(dp=8, tp=2, pp=4, vpp=4, schedule="interleaved", recompute="selective"),
    Policy(dp=16, pp=4, schedule="zero_bubble_h1"),
    Policy(dp=8, pp=8, schedule="dualpipe", recompute="full"),
    Policy(dp=64, zero=3, offload="activations"),
]
SIMULATE = ["simulate", "llama-3-8b", "--on", "dgx-h100:64", "--pp", "4", "--global-batch", "128"]


def timeline_of(policy, sequences=16, model="llama-3-8b", stragglers=()):
    job = Job(seq=2048, global_batch=policy.dp * sequences)
    stack = stack_of("megatron-core")
    return simulate(
        case_of(model_of(model), cluster_of("dgx-h100:64"), job, stack), policy, stragglers=stragglers
    ).timeline()


def ranks_of(svg):
    groups = [group for group in ElementTree.fromstring(svg).iter(f"{SVG}g") if "data-row" in group.attrib]
    return {int(group.attrib["data-row"]): group for group in groups}


def pixels_of(timeline):
    chart = timeline_chart(timeline, title="a step")
    return lane_pixels(chart.spans, chart.whole_s, PIXELS)


def paths_of(spans, top, height):
    drawing = Drawing(PIXELS, height, "a lane")
    draw_lane(drawing, spans, top, height, "stage 0", tuple((kind, COLOURS[kind]) for kind in KINDS))
    return [part for part in str(drawing).split("\n") if "<path" in part]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.schedule)
def test_every_rank_shows_every_kind_it_has(policy):
    timeline = timeline_of(policy, stragglers=[Straggler(stage=0, factor=1.3)])
    groups = ranks_of(timeline_svg(timeline, title="a step"))
    assert sorted(groups) == list(range(timeline.ranks))
    spans = timeline.spans
    for rank, group in groups.items():
        told = {path.findtext(f"{SVG}title").split(": ")[1].split(",")[0] for path in group.iter(f"{SVG}path")}
        assert told == {KINDS[kind] for kind in np.unique(spans.kind[spans.rank == rank])}


def test_nothing_comes_from_outside():
    svg = timeline_svg(timeline_of(POLICIES[0]), title="a step")
    assert not re.search(r"<script|href|url\(|@import", svg)
    assert set(re.findall(r"https?://[^\"]*", svg)) == {"http://www.w3.org/2000/svg"}


def test_the_title_is_escaped():
    title = '<b>"R&D"</b> & more'
    svg = timeline_svg(timeline_of(POLICIES[0]), title=title)
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert title in texts
    assert "<b>" not in svg
    assert "<b>" not in timeline_page(svg, [], title=title, shown="1f1b")


@pytest.mark.parametrize(("policy", "sequences"), [(Policy(dp=2, pp=32), 1024), (Policy(pp=64, dp=1), 300)])
def test_a_long_step_stays_small(policy, sequences):
    timeline = timeline_of(policy, sequences, "gpt-3-175b", [Straggler(stage=3, factor=1.2)])
    assert len(timeline.spans) > 30_000
    svg = timeline_svg(timeline, title="a long step")
    assert len(svg.encode()) < 1_500_000
    groups = ranks_of(svg)
    assert len(groups) == timeline.ranks
    assert all(group.findall(f".//{SVG}path") for group in groups.values())


def test_even_disorder_stays_small():
    ranks, each = 64, 4000
    count = ranks * each
    random = np.random.default_rng(0)
    rank, lane = np.repeat(np.arange(ranks), each), random.integers(0, 3, count)
    kind = np.where(lane == 0, random.integers(0, 4, count), 3 + lane)
    start, none = random.random(count), np.full(count, -1)
    end = np.minimum(start + random.exponential(2e-3, count), 1.0)
    spans = Spans(rank, lane, kind, none, none, start, end, np.zeros(count), none)
    memory = MemorySteps(rank, start, np.full(count, 3), random.normal(1e5, 1e8, count))
    timeline = Timeline(spans, memory, np.arange(ranks), np.ones(ranks, dtype=np.int64), 1.0)
    assert len(timeline_svg(timeline, title="noise").encode()) < 1_500_000


def test_wide_pieces_are_drawn_where_they_are():
    timeline = timeline_of(POLICIES[0])
    spans = pixels_of(timeline)
    mine = spans.where((spans.row == 0) & (spans.lane == 0) & (spans.kind == KINDS.index("forward")))
    assert not mine.narrow.any()
    [path] = paths_of(mine, 10.0, 20.0)
    found = [tuple(map(float, piece)) for piece in re.findall(r"M([\d.]+) 20h([\d.]+)", path)]
    true = timeline.spans
    rows = (true.rank == 0) & true.piped & (true.kind == KINDS.index("forward"))
    scale = PIXELS / timeline.step_s
    assert [x for x, _ in found] == pytest.approx((true.start_s[rows] * scale).tolist(), abs=0.06)
    assert [w for _, w in found] == pytest.approx(((true.end_s - true.start_s)[rows] * scale).tolist(), abs=0.8)


def test_narrow_pieces_keep_their_share_of_the_time():
    timeline = timeline_of(Policy(dp=16, pp=4), 600)
    spans = pixels_of(timeline)
    mine = spans.where((spans.row == 1) & (spans.lane == 0))
    assert mine.narrow.mean() > 0.9
    height = 1000.0
    for kind in ("forward", "backward"):
        paths = [path for path in paths_of(mine, 0.0, height) if f": {kind}," in path]
        areas = [float(w) * float(h) for w, h in re.findall(r"h([\d.]+)v([\d.]+)H", "".join(paths))]
        chosen = mine.kind == KINDS.index(kind)
        assert sum(areas) == pytest.approx(height * mine.width[chosen].sum(), rel=0.03)


def test_a_backward_starts_behind_its_recompute():
    timeline = timeline_of(POLICIES[3])
    spans = pixels_of(timeline)
    mine = spans.where((spans.row == 2) & (spans.lane == LANES.index("compute")))
    order = np.argsort(mine.left, kind="stable")
    left, right = mine.left[order], (mine.left + mine.width)[order]
    assert (mine.kind == KINDS.index("recompute")).any()
    assert (left[1:] >= right[:-1] - 1e-6).all()


def test_memory_shows_limit_and_peak():
    timeline = timeline_of(POLICIES[0])
    peaks = timeline.peaks()
    fullest = max(range(timeline.ranks), key=lambda rank: peaks[rank].bytes)
    largest = max(peaks[fullest].kinds, key=lambda kind: peaks[fullest].kinds[kind])
    roomy = timeline_svg(timeline, title="a step", limit_bytes=80 * 2.0**30)
    assert "limit 80.0 GiB" in roomy
    assert re.search(rf">stage {timeline.stage[fullest]}: [\d.]+ GiB, the largest part {largest}: [\d.]+<", roomy)
    assert "does not fit" in timeline_svg(timeline, title="a step", limit_bytes=2.0**30)
    assert "limit" not in timeline_svg(timeline, title="a step")


@pytest.mark.parametrize(("seconds", "unit"), [(3e-5, "µs"), (0.3, "ms"), (40.0, "s")])
def test_the_axis_has_a_unit_that_suits(seconds, unit):
    timeline = timeline_of(POLICIES[0])
    spans = timeline.spans
    factor = seconds / timeline.step_s
    faster = replace(
        timeline,
        spans=replace(spans, start_s=spans.start_s * factor, end_s=spans.end_s * factor),
        memory=replace(timeline.memory, time_s=timeline.memory.time_s * factor),
        step_s=seconds,
    )
    assert f"time, {unit}" in timeline_svg(faster, title="a step")


def test_a_timeline_without_memory_has_no_peak():
    timeline = timeline_of(POLICIES[0])
    memory = timeline.memory
    none = replace(memory, rank=memory.rank[:0], time_s=memory.time_s[:0], kind=memory.kind[:0], bytes=memory.bytes[:0])
    svg = timeline_svg(replace(timeline, memory=none), title="a step")
    assert len(ranks_of(svg)) == timeline.ranks
    assert "the largest part" not in svg


def test_every_kind_has_a_colour():
    assert set(COLOURS) == set(KINDS)
    # a whole backward and its input gradient may look alike, nothing else
    assert len(set(COLOURS.values())) == len(KINDS) - 1


def test_a_notebook_shows_it():
    timeline = timeline_of(POLICIES[0])
    assert timeline_figure(timeline, title="a step")._repr_html_() == timeline_svg(timeline, title="a step")


def test_the_page_compares_schedules():
    row = ScheduleOutcome(schedule="1f1b", vpp=1, step_s=1.5, bubble_share=0.25, idle_share=0.3,
                   peak_bytes=9 * 2.0**30, closed_form_s=1.4)  # fmt: skip
    none = ScheduleOutcome(schedule="none", vpp=1, step_s=None, bubble_share=None, idle_share=None, peak_bytes=None,
                    closed_form_s=None, why_not="it needs pp < 2")  # fmt: skip
    page = timeline_page("<svg/>", [row, none], title="t", shown="1f1b", limit_bytes=8 * 2.0**30)
    ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    assert '<tr class="shown"><td>1f1b</td><td>1</td><td>1.5 s</td><td>25.0%</td>' in page
    assert "does not fit" in page
    assert "none cannot run this: it needs pp &lt; 2" in page


@pytest.mark.parametrize("name", ["step.svg", "step.html"])
def test_the_verb_writes_it(name, tmp_path, capsys):
    path = tmp_path / name
    assert main([*SIMULATE, "--figure", str(path)]) == 0
    assert f"figure: {path}" in capsys.readouterr().out.replace("\n", "")
    text = path.read_text(encoding="utf-8")
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert "llama-3-8b on dgx-h100:64" in text
    assert ("zero_bubble_h1" in text) == name.endswith("html")
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("name", "told"), [("step.png", ".svg or .html"), ("no/such/step.svg", "cannot be written"),
                                            ("folder.svg", "is a folder")])  # fmt: skip
def test_a_bad_path_is_exit_2(name, told, tmp_path, capsys):
    (tmp_path / "folder.svg").mkdir()
    assert main([*SIMULATE, "--figure", str(tmp_path / name)]) == 2
    assert told in capsys.readouterr().err.replace("\n", " ")
