"""search as a user meets it."""

import json
import re
import shlex
from xml.etree import ElementTree

import pytest

from shardwise.cost.calibrate.profile import GemmConstants, Profile
from shardwise.cost.calibrate.profile_toml import to_toml
from shardwise.cost.curve import curve_of
from shardwise.plan.search.methods import methods
from shardwise.show.cli import main
from shardwise.spec.load import gpu_of

PROGRESS = re.compile(r", after \d+ s$")
"""a line that a search prints where it takes long, as it may on a busy machine"""
ONE = ["search", "llama-3-8b", "--on", "8xh100", "--pp", "8", "--seq", "8192", "--global-batch", "64"]
TWO = ["search", "llama-3-8b", "--on", "8xh100", "--mixed", "8xa100-80", "--pp", "4", "--tp", "2", "--stage-tp", "2,4",
       "--seq", "8192", "--global-batch", "64"]  # fmt: skip
RANKS = ["search", "llama-3-70b", "--on", "hgx-h100-roce:64", "--problem", "ranks", "--tp", "8", "--pp", "4", "--seq",
         "4096", "--global-batch", "64"]  # fmt: skip
EXPERTS = ["search", "mixtral-8x7b", "--on", "4x2xh100", "--problem", "experts", "--ep", "4", "--seq", "4096",
           "--global-batch", "64", "--sample", "50"]  # fmt: skip
CUTS = ["search", "llama-3-8b", "--on", "dgx-h100:64", "--problem", "cuts", "--tp", "8", "--block", "mlp", "--seq",
        "8192", "--global-batch", "64"]  # fmt: skip


def with_(arguments, *more):
    """The arguments with flags added, in place of the same ones where they are there already."""
    found = list(arguments)
    for flag, value in zip(more[::2], more[1::2], strict=True):
        if flag in found:
            found[found.index(flag) + 1] = value
        else:
            found += [flag, value]
    return found


BAD = [
    (with_(ONE, "--problem", "rank"), "did you mean 'ranks'"),
    (with_(ONE, "--replicas", "8"), "belongs to --problem experts"),
    (with_(RANKS, "--mixed", "8xa100-80"), "belongs to --problem stages"),
    (with_(RANKS, "--free-nodes", "0-x"), "free-nodes"),
    (with_(RANKS, "--free-nodes", "9-3"), "free-nodes"),
    (with_(RANKS, "--free-nodes", "0-3"), "at least that many"),
    (with_(RANKS, "--slow-nodes", "0", "--slow-speed", "2"), "slow-speed"),
    (with_(RANKS, "--method", "dp"), "dp does not work on this problem"),
    (with_(RANKS, "--dp", "4"), "write --dp 2"),
    (with_(EXPERTS, "--replicas", "3"), "replicas"),
    (with_(EXPERTS, "--skew", "9"), "skew"),
    (with_(EXPERTS, "--routing", "nowhere.csv"), "routing"),
    (with_(ONE, "--method", "dq"), "did you mean 'dp'"),
    (with_(ONE, "--budget", "0"), "budget"),
    (with_(ONE, "--seed", "-1"), "seed"),
    (with_(ONE, "--figure", "x.png"), ".svg"),
    (with_(ONE, "--stage-tp", "2,x"), "stage-tp"),
    (with_(ONE, "--stages-on", "4,4"), "stages-on"),
    (with_(ONE, "--dp", "2"), "leave --dp out"),
    (with_(ONE, "--method", "exhaustive"), "the budget is 20,000; write --method dp"),
    (with_(CUTS, "--block", "atention"), "did you mean 'attention'"),
    (with_(CUTS, "--ends", "rows"), "ends"),
    (with_(CUTS, "--tp", "1"), "write --tp 2"),
    (with_(CUTS, "--cp", "2"), "write --cp 1"),
    ([*with_(CUTS, "--tp", "16"), "--across-nodes"], "write fewer"),
    (with_(CUTS, "--accumulate", "0"), "accumulate"),
    (with_(CUTS, "--weights", "5"), "unit"),
    (with_(TWO, "--pp", "3"), "pp"),
    (with_(TWO, "--global-batch", "63"), "global-batch"),
]


def document(capsys, arguments, code=0):
    assert main([*arguments, "--json"]) == code
    found = capsys.readouterr()
    said = [line for line in found.err.splitlines() if not PROGRESS.search(line)]
    assert said == []
    return json.loads(found.out)


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input_is_one_line(capsys, arguments, words):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_one_method(capsys):
    found = document(capsys, ONE)
    assert list(found["methods"]) == ["dp"]
    assert found["methods"]["dp"]["proven"]
    assert sum(found["best"]["layers"]) == 32
    assert found["best"]["step_s"] == found["optimum_s"] < found["even"]["step_s"]


def test_all_methods_on_two_kinds_of_gpu(capsys, tmp_path):
    figure = tmp_path / "search.svg"
    found = document(capsys, [*TWO, "--compare", "--budget", "3000", "--figure", str(figure)])
    assert set(found["methods"]) == set(methods()) - {"exhaustive"}
    assert any("exhaustive is left out" in note for note in found["notes"])
    for name, told in found["methods"].items():
        assert told["gap"] == pytest.approx(0, abs=1e-9) or not methods()[name].exact
        assert told["objective_s"] >= found["optimum_s"] * (1 - 1e-9)
    assert sorted(stage["on"] for stage in found["best"]["stages"]) == ["8xa100-80"] * 2 + ["8xh100"] * 2
    words = "".join(ElementTree.fromstring(figure.read_text()).itertext())
    assert all(name in words for name in (*found["methods"], "optimum"))


def test_tables_fit_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*TWO, "--compare", "--budget", "500"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "above optimum" in shown
    assert "not priced" in shown


def test_nothing_fits(capsys):
    found = document(capsys, ["search", "llama-3-70b", "--on", "8xh100", "--pp", "8", "--global-batch", "64"], code=1)
    assert not found["fits"]
    assert found["best"] is None
    assert found["methods"]["dp"]["proven"]


def test_rank_placement(capsys, tmp_path):
    figure = tmp_path / "ranks.svg"
    more = ["--free-nodes", "0-19,60-79", "--slow-nodes", "3", "--figure", str(figure)]
    found = document(capsys, [*RANKS, *more, "--budget", "300"])
    assert found["problem"] == "ranks"
    assert found["methods"]["rl"]["objective"] == found["methods"]["rl"]["objective_s"] == found["best"]["objective_s"]
    assert found["bound_s"] <= found["best"]["objective_s"] <= found["default"]["objective_s"]
    assert len(found["best"]["node_box"]) == found["nodes"] == 8
    assert sum(found["best"]["parts_s"].values()) == pytest.approx(found["best"]["objective_s"])
    assert "seconds" in "".join(ElementTree.fromstring(figure.read_text()).itertext())


def test_expert_placement_by_all_methods(capsys, tmp_path):
    routing = tmp_path / "routing.csv"
    routing.write_text("\n".join(f"{i % 8},{(i * i + 1 + i) % 8 if i % 8 != (i * i + 1 + i) % 8 else (i + 1) % 8}"
                                 for i in range(40)))  # fmt: skip
    found = document(capsys, [*EXPERTS, "--routing", str(routing), "--compare", "--budget", "3000"])
    assert set(found["methods"]) == set(methods())
    for told in found["methods"].values():
        assert told["objective"] == pytest.approx(found["optimum_s"], rel=1e-6)
        assert told["gap"] == pytest.approx(0, abs=1e-6)
        assert len(told["trace"]) == len(told["trace_s"])
    assert sorted(e for rank in found["best"]["rank_experts"] for e in rank) == list(range(8))
    assert found["best"]["imbalance"] <= found["best"]["in_order"]["imbalance"]


@pytest.mark.parametrize("arguments", [RANKS, EXPERTS])
def test_placements_fit_the_terminal(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*arguments, "--method", "zeroth", "--budget", "200"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "in order" in shown
    assert "above bound" in shown


SPLITS = [
    ONE,
    with_(ONE, "--headroom", "0.4"),
    ["search", "deepseek-v3", "--on", "h800:256", "--pp", "16", "--ep", "16", "--seq", "4096", "--global-batch", "256"],
    ["search", "llama-3-70b", "--on", "8xh100", "--pp", "8", "--global-batch", "64"],
]


@pytest.mark.parametrize("arguments", SPLITS)
def test_stages_and_search_give_the_same_answer(capsys, arguments):
    code = 1 if "llama-3-70b" in arguments else 0
    searched = document(capsys, arguments, code)
    split = document(capsys, ["search", "stages", *arguments[1:]], code)
    assert split["fits"] == searched["fits"] == (code == 0)
    assert split["proven"] == searched["methods"]["dp"]["proven"] is True
    assert split["even"]["closed_form_step_s"] == searched["even"]["step_s"]
    if code == 0:
        same = ("layers", "recomputed_layers", "stage_s", "peak_bytes")
        assert {key: split["best"][key] for key in same} == {key: searched["best"][key] for key in same}
        assert split["best"]["closed_form_step_s"] == searched["best"]["step_s"] == searched["optimum_s"]
        assert split["limit_bytes"] == searched["best"]["stages"][0]["limit_bytes"]


@pytest.mark.parametrize("ends", ["replicated", "tokens"])
@pytest.mark.parametrize(("place", "more"), [("NVLink", []), ("nodes", ["--across-nodes"])])
def test_cuts_and_search_give_the_same_answer(capsys, ends, place, more):
    searched = document(capsys, [*CUTS, "--ends", ends, *more])
    cut = document(
        capsys, ["search", "cuts", *CUTS[1:4], "--tp", "8", "--block", "mlp", "--tokens", "8192", "--ends", ends]
    )
    best = next(point for point in cut["points"] if f"optimum {place}" in point["names"])
    assert searched["methods"]["ip"]["proven"] is cut["proven"] is True
    assert searched["optimum_s"] == searched["best"]["objective_s"] == pytest.approx(best["at"][place]["time_s"])
    assert searched["best"]["cuts"] == best["cuts"]
    assert searched["best"]["weight_bytes"] == best["weight_bytes"]


def test_cuts_by_a_method_that_proves_nothing(capsys):
    found = document(capsys, ["search", "cuts", "llama-3-8b", "--block", "mlp", "--on", "8xh100", "--method", "zeroth"])
    assert not found["proven"]
    assert found["points"][0]["names"][0] == "best NVLink"
    exact = document(capsys, ["search", "cuts", "llama-3-8b", "--block", "mlp", "--on", "8xh100"])
    assert found["points"][0]["cuts"] == exact["points"][0]["cuts"]


@pytest.fixture
def twice_as_fast(tmp_path):
    path = tmp_path / "fast.toml"
    curve = curve_of(gpu_of("h100"))
    law = curve.gemm["bf16"]
    constants = GemmConstants(e_max=law.e_max, sustained=law.sustained, k0=law.k0, wave=law.wave,
                              memory_efficiency=law.memory_efficiency, power=law.power)  # fmt: skip
    path.write_text(to_toml(Profile(
        name="fast", device="h100", peak_flops={"bf16": 2.0 * law.peak}, gemm={"bf16": constants},
        memory_bandwidth=2.0 * curve.bandwidth,
    )))  # fmt: skip
    return ["--profile", str(path)]


@pytest.mark.parametrize("arguments", [ONE, CUTS, EXPERTS])
def test_faster_kernels_reach_every_search(capsys, twice_as_fast, arguments):
    plain, fast = (document(capsys, [*arguments, *more]) for more in ([], twice_as_fast))
    assert fast["optimum_s"] < 0.9 * plain["optimum_s"]
    if arguments is EXPERTS:
        half = plain["best"]["in_order"]["products_s"] / 2  # but for what a kernel takes at least
        assert fast["best"]["in_order"]["products_s"] == pytest.approx(half, rel=0.002)


def test_faster_kernels_leave_the_network_alone_but_not_the_step(capsys, twice_as_fast):
    plain, fast = (document(capsys, [*RANKS, "--budget", "1", *more]) for more in ([], twice_as_fast))
    assert fast["default"]["objective_s"] == plain["default"]["objective_s"]
    assert fast["estimate_step_s"] < 0.9 * plain["estimate_step_s"]


ADVISED = [
    with_(TWO, "--pp", "3"),
    with_(TWO, "--pp", "1"),
    with_(TWO, "--pp", "5"),
    with_(TWO, "--stages-on", "8,8"),
    with_(TWO, "--stages-on", "4"),
    with_(TWO, "--global-batch", "63"),
    [*TWO[:4], "--mixed", "4xa100-80", "--pp", "4", "--seq", "8192", "--global-batch", "64"],
    with_(ONE, "--stages-on", "4,4"),
    with_(ONE, "--stages-on", "4"),
    with_(ONE, "--method", "exhaustive"),
    with_(RANKS, "--method", "dp", "--budget", "200"),
    with_(RANKS, "--dp", "4", "--budget", "200"),
    with_(EXPERTS, "--ep", "3"),
    with_(CUTS, "--tp", "1"),
    with_(CUTS, "--cp", "2"),
    with_(CUTS, "--method", "dp"),
    ["search", "cuts", "llama-3-8b", "--on", "8xh100", "--block", "mlp", "--method", "dp"],
    ["search", "cuts", "llama-3-8b", "--on", "8xh100", "--method", "exhaustive", "--top", "0"],
    ["search", "cuts", "--chain", "4096,4096", "--on", "8xh100", "--tokens", "8191", "--ends", "tokens"],
]


@pytest.mark.parametrize("arguments", ADVISED, ids=" ".join)
def test_what_is_advised_works(capsys, arguments):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    advice = re.search(r"write ((?:--[a-z-]+ [^ ]+ ?)+)", error)
    assert advice is not None, error
    assert main(with_(arguments, *advice[1].split())) == 0, advice[1]


@pytest.mark.parametrize("more", [("--pp", "3"), ("--dp", "3"), ("--tp", "3")])
def test_the_policy_that_stages_advises_works(capsys, more):
    found = document(capsys, with_(["search", "stages", *ONE[1:]], *more), code=1)
    words = shlex.split(found["cure"])
    assert words[:3] == ["shardwise", "search", "stages"]
    assert main(words[1:]) == 0
