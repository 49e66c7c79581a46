"""`shardwise fabric` as a user meets it."""

import json
import re
from contextlib import contextmanager
from html.parser import HTMLParser

import pytest

from shardwise.show.cli import main
from terminal import narrow_terminal, refused, shown  # noqa: F401

STEP = [
    "fabric",
    "llama-3-8b",
    "--on",
    "dgx-h100:64",
    "--tp",
    "2",
    "--pp",
    "2",
    "--seq",
    "4096",
    "--global-batch",
    "128",
]
ROCE = ["fabric", "llama-3-8b", "--on", "hgx-h100-roce:16", "--tp", "8", "--seq", "4096", "--global-batch", "32"]
GRAPH = """
gpus: [a0, a1, b0, b1]
nodes: [[a0, a1], [b0, b1]]
switches: [na, nb, leaf]
links:
  - {from: [a0, a1], to: na, bandwidth: 450 GB/s}
  - {from: [b0, b1], to: nb, bandwidth: 450 GB/s}
  - {from: [a0, a1, b0, b1], to: leaf, bandwidth: 400 Gbps}
"""
BAD = [
    (["fabric", "llama-3-8b"], "--on"),
    ([*STEP, "--rails", "optimized"], "did you mean 'optimised'"),
    ([*STEP, "--routing", "ecpm"], "did you mean 'ecmp'"),
    ([*STEP, "--connections", "0"], "connections"),
    ([*STEP, "--seed", "-1"], "seed"),
    ([*STEP, "--cross-rail", "leaf"], "cross_rail"),
    ([*STEP, "--html", "page.pdf"], ".html"),
    ([*STEP, "--within", "200"], "percentage"),
    ([*STEP, "--graph", "nowhere.yaml"], "graph: there is no file 'nowhere.yaml'"),
    ([*STEP, "--tp", "0"], "tp"),
    (["fabric", "llama-3-8b", "--on", "aws-p4d:64", "--rails", "only", "--tp", "2"], "one rail"),
    (["fabric", "llama-3-8b", "--on", "8xh100", "--tp", "2", "--within", "2"], "no network"),
    (["fabric", "lama-3-8b", "--on", "8xh100"], "did you mean"),
    ([*STEP, "--algorithm", "ring"], "write 'dp=two_level'"),
    ([*STEP, "--algorithm", "xp=ring"], "not a kind of traffic"),
    ([*STEP, "--algorithm", "dp=rnig"], "did you mean 'ring'"),
    ([*STEP, "--algorithm", "dp=pairwise"], "serves all_to_all, but dp sends"),
    (["fabric", "llama-3-8b", "--on", "aws-p4d:64", "--tp", "2", "--zero", "0", "--algorithm", "dp=sharp"], "SHARP"),
    ([*STEP, "--fail", "spine 9"], "not a link of this fabric"),
    ([*STEP, "--slow", "leaf 0.0"], "LINK=0.25"),
    ([*STEP, "--slow", "node 0 gpu 0 > leaf 0.0=2"], "share of its speed"),
    ([*STEP, "--mtu", "9000"], "add --packets"),
    ([*STEP, "--packets", "--mtu", "1400"], "write 1500, 4096 or 9000"),
    ([*STEP, "--packets", "--flow-control", "pfc"], "dgx-h100:64 is infiniband; leave it out"),
    ([*STEP, "--packets", "--marks", "1 MB,2 MB"], "a fabric with credits has none"),
    ([*ROCE, "--packets", "--marks", "2 MB,1 MB"], "the lower first"),
    ([*ROCE, "--packets", "--xon", "1 MB"], "write both"),
    ([*ROCE, "--packets", "--buffer", "64"], "buffer"),
    ([*ROCE, "--packets", "--lost", "0.7"], "a share from 0 to 0.5"),
    ([*ROCE, "--packets", "--draws", "0"], "from 1 to 64"),
    ([*ROCE, "--packets", "--figure", "queue.png"], ".svg"),
    ([*ROCE, "--hashes", "one"], "hashes: 'one' is unknown"),
    ([*ROCE, "--hashes", "same"], "add --routing ecmp"),
    (["fabric", "llama-3-8b", "--on", "8xh100", "--tp", "8", "--packets"], "no collective of this step"),
    ([*STEP, "--within", "2", "--prices", "nowhere.toml"], "prices: there is no file 'nowhere.toml'"),
]

pytestmark = pytest.mark.usefixtures("narrow_terminal")


@pytest.mark.parametrize(("arguments", "cure"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_bad_input_is_one_line_and_exit_2(arguments, cure, capsys):
    refused(capsys, arguments, cure)


@pytest.mark.parametrize("more", [["--sheet"], ["--routing", "ecmp", "--connections", "2"],
                                  ["--zero", "3", "--no-sp"], ["--cp", "4", "--zero", "0"]])  # fmt: skip
def test_pages_are_80_columns_wide(more, capsys):
    text = shown(capsys, [*STEP, *more])
    assert max(map(len, text.splitlines())) <= 80
    for part in ("who sends to whom", "bottleneck", "burst", "phases of a step", "placements, the planned one first"):
        assert part in text


def test_without_policy_flags_the_planner_chooses(capsys):
    found = json.loads(shown(capsys, ["fabric", "llama-3-8b", "--on", "dgx-h100:64", "--json"]))
    assert found["policy_origin"] == "recommended"
    assert "state one with --tp" in found["notes"][0]
    assert found["policy"]["dp"] * found["policy"]["tp"] * found["policy"]["pp"] * found["policy"]["cp"] == 64


def test_json(capsys):
    found = json.loads(shown(capsys, [*STEP, "--json"]))
    assert {"links", "matrix_bytes", "bottleneck", "requirement", "tiers", "phases", "orders", "burst"} <= set(found)
    assert found["tier"] == "flow level"
    assert found["what_if"] is None
    blocks = len(found["blocks"])
    assert all(len(table) == blocks == len(table[0]) for table in found["matrix_bytes"].values())
    # what goes into the links is what the matrix says
    sent = sum(sum(map(sum, table)) for table in found["matrix_bytes"].values())
    out = sum(link["step_bytes"] * link["count"] for link in found["links"] if link["tier"] in ("nvlink", "card-leaf"))
    assert out / 2 == pytest.approx(sent, rel=1e-3)
    busiest = max(found["links"], key=lambda link: link["share"])
    assert found["bottleneck"]["share"] == pytest.approx(busiest["share"])
    assert found["orders"][0]["times_planned"] == 1.0
    assert len(found["tiers"][0]["series"]) == 240
    assert found["requirement"]["tiers"][0]["oversubscription"].keys() == {"1%", "5%", "10%"}


def test_series_hold_the_bytes_of_the_step(capsys):
    found = json.loads(shown(capsys, [*STEP, "--json"]))
    for tier in found["tiers"]:
        mean = sum(tier["mean_series"]) / len(tier["mean_series"])
        # each part tells its highest tenth, so the mean of the parts is no less than that of the step
        assert mean >= tier["mean_share"] * 0.999
        assert tier["busiest"]["peak_share"] >= tier["busiest"]["share"]
        assert max(tier["series"]) <= tier["busiest"]["peak_share"] * 1.001 <= 1.001


def test_the_step_at_flow_level_stands_beside_the_closed_form(capsys):
    found = json.loads(shown(capsys, [*STEP, "--json"]))
    assert found["step_s"] >= found["unshared_s"] * (1 - 1e-6)
    assert found["unshared_s"] == pytest.approx(found["simulated_s"], rel=0.02)
    assert found["closed_form_step_s"] == pytest.approx(found["simulated_s"], rel=0.1)
    text = shown(capsys, STEP)
    assert "at flow level" in text
    assert "closed form" in text
    for axis, others in found["slowed_s"].items():
        assert axis in found["matrix_bytes"]
        assert all(seconds > 0 for seconds in others.values())


def test_a_named_algorithm_and_a_slow_link(capsys):
    plain = json.loads(shown(capsys, [*STEP, "--zero", "0", "--json"]))
    named = json.loads(shown(capsys, [*STEP, "--zero", "0", "--algorithm", "dp=sharp", "--json"]))
    assert {call["algorithm"] for call in named["calls"] if call["axis"] == "dp"} == {"sharp"}
    assert named["communication_s"]["dp"] < plain["communication_s"]["dp"]
    slow = json.loads(shown(capsys, [*STEP, "--slow", "node 0 gpu 0 > leaf 0.0=0.25", "--json"]))
    assert slow["bottleneck"]["link"] == "node 0 gpu 0 > leaf 0.0"
    assert slow["step_s"] > plain["step_s"]


def test_a_hidden_gradient_burst_is_found(capsys):
    found = json.loads(shown(capsys, ["fabric", "llama-3.2-1b", "--on", "dgx-h100:64", "--zero", "0", "--seq", "4096",
                                      "--global-batch", "512", "--json"]))  # fmt: skip
    burst = found["burst"]
    assert burst["start_s"] > 0.5 * found["step_s"]
    assert burst["peak_share"] > 5 * burst["mean_share"]
    phases = {phase["phase"]: phase for phase in found["phases"]}
    assert phases["forward"]["network"] == "quiet"
    assert phases["gradient synchronisation"]["network_share"] > 5 * phases["backward"]["network_share"]


def test_what_ifs_and_fabrics(capsys):
    words = ["fabric", "llama-3-8b", "--on", "dgx-h100:64", "--tp", "2", "--what-if", "--within", "5",
             "--keep-policy"]  # fmt: skip
    found = json.loads(shown(capsys, [*words, "--json"]))
    names = [row["name"] for row in found["what_if"]]
    assert {"wire", "credits", "slow link", "two jobs", "over 4:1"} <= set(names)
    for row in found["what_if"]:
        assert row["step_s"] >= found["step_s"] * (1 - 1e-3)
        assert row["answered"] == "joint loop"
        assert (row["step_p95_s"] or row["step_s"]) >= row["step_s"] * 0.999
    costs = [each["usd_per_gpu"] for each in found["fabrics"]]
    assert costs == sorted(costs)
    assert all(sum(each["bill"].values()) == pytest.approx(each["usd_per_gpu"]) for each in found["fabrics"])
    assert found["price_sources"]
    best = max(each["mfu"] for each in found["fabrics"])
    for each in found["cheapest"]:
        assert each["mfu"] >= 0.95 * best
        assert each["joint_step_s"] == pytest.approx(each["step_s"], rel=0.05)
        assert not any(
            other["usd_per_gpu"] < each["usd_per_gpu"] and other["mfu"] >= 0.95 * best
            for other in found["fabrics"] if other["domain_gpus"] == each["domain_gpus"]
        )  # fmt: skip
    text = shown(capsys, words)
    assert max(map(len, text.splitlines())) <= 80
    assert "cheapest within 5.0%" in text


def test_every_fabric_gets_a_policy_that_suits_it(capsys):
    """A small model over eight GPUs a replica: the planner knows better, and says so on every fabric."""
    words = ["fabric", "llama-3.2-1b", "--on", "dgx-h100:16", "--tp", "8", "--seq", "2048", "--global-batch", "64",
             "--within", "5", "--json"]  # fmt: skip
    planned, kept = (json.loads(shown(capsys, [*words, *more]))["fabrics"] for more in ([], ["--keep-policy"]))
    assert {each["policy"]["tp"] for each in kept} == {8}
    assert all(each["policy"]["tp"] < 8 for each in planned)
    assert max(each["mfu"] for each in planned) > 1.2 * max(each["mfu"] for each in kept)


def test_a_fabric_from_a_file(tmp_path, capsys):
    path = tmp_path / "fabric.yaml"
    path.write_text(GRAPH)
    words = ["fabric", "llama-3-8b", "--on", "2x2xh100", "--tp", "2", "--zero", "3", "--graph", str(path)]
    found = json.loads(shown(capsys, [*words, "--json"]))
    assert found["bottleneck"]["link"].split(" > ")[0] in ("a0", "a1", "b0", "b1", "na", "nb", "leaf")
    assert max(map(len, shown(capsys, [*words, "--what-if"]).splitlines())) <= 80
    page = tmp_path / "page.html"
    assert main([*words, "--html", str(page)]) == 0
    capsys.readouterr()
    assert "from a file" in page.read_text()
    assert main([*words[:3], "dgx-h100:64", *words[4:]]) == 2
    assert "needs 64" in capsys.readouterr().err


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(tmp_path, capsys):
    path = tmp_path / "page.html"
    assert main([*STEP, "--html", str(path), "--what-if", "--within", "2", "--keep-policy"]) == 0
    assert "open in a browser" in capsys.readouterr().err
    text = path.read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert {"svg", "table", "polygon", "circle"} <= tags.seen
    assert "script" not in tags.seen
    assert re.findall(r'(?:src|href)="', text) == []
    for part in (
        "coloured by load",
        "who sends to whom",
        "load over one step",
        "what if",
        "requirements of each tier",
        "cheapest",
    ):
        assert part in text


def test_what_cannot_run_is_exit_1_with_a_cure(capsys):
    line = ["fabric", "llama-3-70b", "--on", "dgx-h100:64", "--tp", "3"]
    assert json.loads(shown(capsys, [*line, "--json"], 1))["cure"].startswith("shardwise ")


def test_what_does_not_fit_is_exit_1(capsys):
    line = ["fabric", "llama-3-70b", "--on", "dgx-h100:64", "--tp", "2", "--micro", "8"]
    assert json.loads(shown(capsys, [*line, "--json"], 1))["fits"] is False
    assert "does not fit" in shown(capsys, line, 1)


def test_one_gpu_sends_nothing(capsys):
    line = ["fabric", "llama-3.2-1b", "--on", "1xh100", "--seq", "2048", "--global-batch", "8"]
    assert "sends nothing" in shown(capsys, [*line, "--what-if", "--sheet"])
    found = json.loads(shown(capsys, [*line, "--json"]))
    assert found["bottleneck"] is None
    assert found["tiers"] == []


def test_nothing_that_fits_is_said(capsys):
    told = shown(capsys, ["fabric", "llama-3.1-405b", "--on", "8xh100"], 1)
    assert "none fits" in told.splitlines()[1]


def test_what_is_done_is_said_on_a_terminal(monkeypatch, capsys):
    said = []

    @contextmanager
    def listening():
        yield said.append

    monkeypatch.setattr("shardwise.show.cli.fabric_step.spoken", listening)
    shown(capsys, ["fabric", "llama-3-8b", "--on", "dgx-h100:64", "--tp", "8", "--pp", "2"])
    assert said[0] == "simulating a step on 64 GPUs"
    assert "pricing the step with ranks packed, tp > dp > pp" in said
    assert said[-1] == "running all traffic on the links at once"


class TestPackets:
    def test_packets_of_an_ethernet_fabric_are_told_with_what_to_set(self, capsys, tmp_path):
        picture = tmp_path / "queue.svg"
        asked = [*ROCE, "--packets", "--draws", "2", "--retransmit", "go-back-n", "--figure", str(picture), "--json"]
        assert main(asked) == 0
        found = json.loads(capsys.readouterr().out)["packets"]
        assert found["link_layer"] == "ethernet"
        assert found["rules"]["layer"] == "pfc"
        assert found["advice"]["enough"]
        assert found["advice"]["mark_high_bytes"] > found["advice"]["mark_low_bytes"] > 0
        for call in found["calls"]:
            assert call["transfer_p50_s"] <= call["transfer_p99_s"] <= call["transfer_p999_s"]
            assert max(call["hottest"]["queue_bytes"]) == call["hottest"]["deepest_bytes"] > 0
            assert call["drops"] == 0
        losses = {each["retransmit"]: each for each in found["losses"]}
        assert losses["go-back-n"]["each_s"] > losses["selective"]["each_s"]
        for each in losses.values():
            assert list(each["step_s"].values()) == sorted(each["step_s"].values())
            assert each["usd_per_day"]["1e-04"] > each["usd_per_day"]["1e-06"] > 0
        assert picture.read_text().startswith("<svg")

    def test_infiniband_is_told_about_credits_at_80_columns(self, capsys):
        assert main([*STEP[:3], "dgx-h100:16", *STEP[4:6], "--packets", "--draws", "1"]) == 0
        told = capsys.readouterr().out
        packets = told[told.index("packets of the busiest collectives") :]
        assert "credits" in packets
        assert "headroom" not in packets
        assert "PFC" not in packets
        assert max(map(len, packets.splitlines())) <= 80
