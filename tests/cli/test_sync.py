"""`shardwise sync` as a user meets it."""

import json

import pytest

from shardwise.plugins.compressors import compressors
from shardwise.plugins.sync import strategies
from shardwise.plugins.topologies import topologies
from shardwise.show.cli import main

COST = ["sync", "cost", "mem_sgd", "--parameters", "25.5M", "--bandwidth", "25 Gbps"]


def told(capsys, *words: str):
    code = main(list(words))
    return code, capsys.readouterr()


def test_list_names_everything(capsys):
    code, out = told(capsys, "sync", "list")
    assert code == 0
    for name in [*strategies(), *topologies(), *compressors()]:
        assert name in out.out
    code, out = told(capsys, "sync", "list", "--json")
    data = json.loads(out.out)
    assert {entry["name"] for entry in data["strategies"]} == set(strategies())
    assert set(data) == {"strategies", "topologies", "compressors", "notes"}


def test_cost_and_its_settings(capsys):
    code, out = told(capsys, *COST, "--workers", "8", "--set", "compressor=top_k", "--set", "compressor.ratio=0.05",
                     "--json")  # fmt: skip
    assert code == 0
    data = json.loads(out.out)
    assert data["sent_bytes"] == 7 * 8 * 25.5e6 * 0.05
    assert data["state_bytes"] == 4 * 25.5e6
    assert data["psgd_sent_bytes"] == 2 * 7 / 8 * 4 * 25.5e6
    assert data["events"][0]["op"] == "all_gather"


def test_cost_says_when_compression_loses(capsys):
    _, many = told(capsys, *COST, "--workers", "1000")
    assert "slower than the dense all-reduce" in many.out
    _, few = told(capsys, *COST, "--workers", "8")
    assert "slower than the dense" not in few.out


def test_cost_of_a_model_on_a_cluster(capsys):
    words = ["sync", "cost", "hierarchical", "--model", "llama-3-8b", "--on", "dgx-h100:64"]
    code, out = told(capsys, *words, "--set", "outer=diloco", "--set", "outer.every=100", "--json")
    data = json.loads(out.out)
    assert data["workers"] == 64
    assert data["period_steps"] == 100
    assert data["parameters"] == 8_030_261_248
    # bf16 parameters, fp32 gradients, master copy and two moments: 18 bytes each, more than an H100 has
    assert data["replica_bytes"] == 18 * 8_030_261_248
    assert (code, data["fits"]) == (1, False)


def test_state_that_does_not_fit_is_said_in_gib(capsys):
    """Three fp32 rows of 70 billion numbers beside a model; 124 million fit."""
    code, out = told(capsys, "sync", "cost", "ef21_sgdm", "--model", "llama-3-70b", "--on", "dgx-h100:64")
    assert code == 1
    page = " ".join(out.out.split())
    assert f"{12 * 70_553_706_496 / 2**30:.1f} GiB of state per worker beside 1182.7 GiB" in page
    assert "does not fit in 79.6 GiB" in page
    assert "MiB" not in page
    code, out = told(capsys, "sync", "cost", "ef21_sgdm", "--model", "gpt2", "--on", "dgx-h100:64")
    assert code == 0
    assert "fits in 79.6 GiB" in " ".join(out.out.split())
    code, out = told(capsys, "sync", "cost", "ef21_sgdm", "--parameters", "70G", "--on", "dgx-h100:64", "--json")
    assert code == 1
    code, out = told(capsys, "sync", "cost", "ef21_sgdm", "--parameters", "70G", "--bandwidth", "1 Gbps", "--json")
    assert (code, json.loads(out.out)["fits"]) == (0, None)


@pytest.mark.parametrize("settings", [[], ["--set", "inner=power_sgd", "--set", "outer=psgd"]], ids=["alone", "inside"])
def test_factored_gradients_without_shapes_are_not_said_to_save(capsys, settings):
    name = "hierarchical" if settings else "power_sgd"
    _, flat = told(capsys, "sync", "cost", name, "--parameters", "124M", "--bandwidth", "25 Gbps", *settings)
    assert "has no shapes" in " ".join(flat.out.split())
    assert " x)" not in flat.out
    _, whole = told(capsys, "sync", "cost", name, "--model", "gpt2", "--bandwidth", "25 Gbps", *settings)
    assert "has no shapes" not in " ".join(whole.out.split())
    assert " x)" in whole.out


def test_not_waiting_in_cost_and_in_simulation(capsys):
    """A quarter of the workers four times slower: 1.23 steps' time for a step, and psgd waits 4."""
    words = ["sync", "cost", "async_sgd", "--set", "periods=4,1,1,1", "--parameters", "1M", "--bandwidth", "400 Gbps"]
    data = json.loads(told(capsys, *words, "--workers", "16", "--compute", "1 s", "--json")[1].out)
    assert data["step_s"] == pytest.approx(16 / 13, rel=1e-3)
    assert data["simulated_step_s"] == pytest.approx(data["step_s"], rel=0.01)
    assert data["psgd_step_s"] == pytest.approx(4.0, rel=1e-3)
    shaky = json.loads(told(capsys, *words, "--workers", "16", "--compute", "1 s", "--jitter", "0.2", "--json")[1].out)
    assert shaky["step_s"] == data["step_s"]
    assert shaky["psgd_step_s"] > 1.3 * data["psgd_step_s"]
    pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")
    words = ["sync", "simulate", "async_sgd", "--set", "periods=4,1,1,1", "--workers", "16", "--steps", "400"]
    played = json.loads(told(capsys, *words, "--spread", "0", "--json")[1].out)
    assert played["worker_steps"] == pytest.approx(400 / data["step_s"], rel=1e-3)
    assert played["psgd_steps"] == pytest.approx(400 / data["psgd_step_s"], rel=1e-2)
    assert played["error"] < 0.2 * played["psgd_error"]


def test_simulate(capsys):
    pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")
    words = ["sync", "simulate", "dsgd", "--workers", "8", "--steps", "200", "--set", "topology=ring"]
    code, out = told(capsys, *words, "--json")
    assert code == 0
    data = json.loads(out.out)
    assert data["error"] > data["psgd_error"] > 0
    code, out = told(capsys, *words, "--lr", "50")
    assert code == 1
    assert "diverged" in out.out


BAD = [
    (["sync"], "ACTION"),
    (["sync", "lst"], "did you mean 'list'?"),
    (["sync", "cost"], "of what?"),
    (["sync", "cost", "psgd"], "--model NAME or --parameters"),
    (["sync", "cost", "psgd", "--parameters", "1M"], "--on CLUSTER or --bandwidth"),
    (["sync", "cost", "psgd", "--parameters", "1M", "--bandwidth", "5"], "bandwidth"),
    (["sync", "cost", "psdg", "--parameters", "1M", "--bandwidth", "1 Gbps"], "did you mean 'psgd'?"),
    ([*COST, "--set", "ratio"], "name=value"),
    ([*COST, "--set", "warmup=soon"], "warmup: 'soon' is not a whole number"),
    ([*COST, "--set", "fold_lr=maybe"], "true or false"),
    ([*COST, "--set", "compressor.rate=1"], "did you mean 'ratio'"),
    ([*COST, "--set", "warmup.x=1"], "has no settings of its own"),
    ([*COST, "--set", "nothing=1"], "no setting 'nothing'"),
    ([*COST, "--workers", "0"], "workers"),
    ([*COST, "--compute", "1"], "compute"),
    ([*COST, "--compute", "0 s"], "above 0"),
    ([*COST, "--jitter", "0.1"], "write --compute TIME too"),
    ([*COST, "--compute", "1 s", "--jitter", "-1"], "jitter"),
    ([*COST, "--on", "8xh100"], "--on CLUSTER or --bandwidth"),
    (["sync", "cost", "decentlam", "--set", "topology=static_exp", "--parameters", "1M", "--bandwidth", "1 Gbps"],
     "it diverges"),
    (["sync", "cost", "psgd", "--parameters", "1M", "--on", "8xh100", "--workers", "9"], "at most 8"),
    (["sync", "simulate", "psgd", "--steps", "0"], "steps"),
    (["sync", "simulate", "psgd", "--lr", "-1"], "lr"),
    (["sync", "reproduce", "talk_times"], "python -m evidence.papers"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "clue"), BAD, ids=[" ".join(words[1:4]) + clue for words, clue in BAD])
def test_bad_input_ends_with_2_and_one_line(capsys, words, clue):
    code, out = told(capsys, *words)
    assert code == 2
    assert out.out == ""
    assert clue in out.err
    assert out.err.count("\n") == 1
