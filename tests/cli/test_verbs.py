"""Every verb in-process: good input, bad input, JSON, and nothing wider than the terminal."""

import json

import pytest

from shardwise.show.cli import main
from shardwise.show.cli._verbs import WORDS
from shardwise.spec.load import cluster_of

GOOD = [
    ["catalog", "models"],
    ["catalog", "models", "llama-65b"],
    ["catalog", "models", "deepseek-v3"],
    ["catalog", "models", "mnist-mlp"],
    ["catalog", "gpus"],
    ["catalog", "gpus", "h100"],
    ["catalog", "gpus", "V100"],
    ["catalog", "gpus", "b200"],
    ["catalog", "clusters"],
    ["catalog", "clusters", "dgx-h100:1024"],
    ["catalog", "clusters", "8xh100"],
    ["calc", "roofline", "h100"],
    ["calc", "roofline", "b200", "--dtype", "fp8", "--ffn", "16k", "--glu"],
    ["calc", "roofline", "dgx-h100:2048", "--inner", "64", "--experts", "256", "--active", "8", "--ffn", "16384"],
    ["calc", "roofline", "--on", "pcie-rtx4090"],
    ["calc", "mfu", "llama-65b", "--tps", "380", "--on", "a100-80"],
    [
        "calc",
        "mfu",
        "gpt-3-175b",
        "--on",
        "dgx-a100:1024",
        "--tokens",
        "300B",
        "--gpus",
        "1024",
        "--time",
        "35 d",
        "--recompute",
        "full",
    ],
    ["calc", "mfu", "deepseek-v3", "--tps", "1e3", "--on", "h800", "--dtype", "fp8"],
    ["calc", "batch", "--seq", "2048"],
    ["calc", "batch", "--global", "2048", "--seq", "4096", "--dp", "64", "--micro", "2"],
    ["calc", "batch", "--global", "8,388,608 tokens", "--seq", "4096", "--gpus", "1024", "--tp", "8", "--pp", "4"],
    ["calc", "batch", "--global", "8,388,608-tokens", "--seq", "4096", "--accumulation", "8", "--micro", "1"],
]

BAD = [
    (["catalog", "models", "lama-65b"], "did you mean"),
    (["catalog", "models", "/no/such/config.json"], "config.json"),
    (["catalog", "gpus", "h1000"], "did you mean 'h100'?"),
    (["catalog", "clusters", "dgx-h100:many"], "many"),
    (["catalog", "clusters", "dgx-h100:99999999"], "at most"),
    (["catalog", "clusters", "--yaml"], "needs a name"),
    (["calc", "roofline", "hh100"], "neither a GPU nor a cluster; did you mean 'h100'?"),
    (["calc", "roofline", "dgx-h100:1024", "--inner", "2000"], "from 1 to 1024"),
    (["calc", "roofline", "dgx-h100:64", "--tp", "8", "--pp", "16"], "from 1 to 8"),
    (["calc", "roofline", "h100", "--tp", "0"], "1 or more"),
    (["calc", "roofline", "h100", "--experts", "2", "--active", "3"], "active"),
    (["calc", "roofline", "h100", "--dtype", "fp7"], "did you mean 'fp8'?"),
    (["calc", "roofline", "h100", "--ffn", "16 GB"], "unknown unit 'GB'"),
    (["calc", "roofline"], "--on"),
    (["calc", "mfu", "llama-65b", "--on", "a100-80"], "speed is missing"),
    (["calc", "mfu", "llama-65b", "--on", "a100-80", "--tps", "380000"], "check --tps"),
    (
        ["calc", "mfu", "gpt-3-175b", "--on", "a100-80", "--tokens", "300B", "--gpus", "8", "--time", "1 d"],
        "check --tokens, --gpus",
    ),
    (["compare", "gpt2-xl", "--on", "8xh100", "--policy", "tp=2,tp=4"], "tp is '2' and '4'"),
    (["compare", "gpt2-xl", "--on", "8xh100", "--policy", "best,zero=3,zero=2"], "zero is '3' and '2'"),
    (["compare", "gpt2-xl", "--on", "8xh100", "--policy", "fsdp,zero=2"], "zero is '3' and '2'"),
    (["plan", "gpt2-xl", "--on", "8xh100", "--sync", "local_sgd,every=4,every=8"], "every is '4' and '8'"),
    (["simulate", "gpt2-xl", "--on", "8xh100", "--pp", "2", "--straggler", "stage=1,factor=2,factor=3"], "2.0 and 3.0"),
    (["estimate", "gpt2-xl", "--on", "8xh100", "--lengths", "lognormal,mean=600,mean=3,sigma=1"], "600.0 and 3.0"),
    (["estimate", "gpt2-xl", "--on", "8xh100", "--freeze", "first=1,first=2"], "first is 1 and 2"),
    (["calc", "mfu", "llama-65b", "--on", "a100-80", "--tps", "0"], "above 0"),
    (["calc", "mfu", "llama-65b", "--on", "a100-80", "--tps", "nan"], "above 0"),
    (
        ["calc", "mfu", "llama-65b", "--on", "a100-80", "--tokens", "1T", "--gpus", "8", "--time", "35"],
        "has no unit; write '35 s'",
    ),
    (["calc", "mfu", "llama-65b", "--on", "a100-80", "--tps", "380", "--recompute", "ful"], "unknown"),
    (["calc", "mfu", "llama-65b", "--tps", "380"], "--on"),
    (["calc", "batch", "--global", "2048", "--seq", "4096", "--dp", "64", "--micro", "3"], "micro 2 or 4"),
    (["calc", "batch", "--global", "2048", "--seq", "4096", "--dp", "3", "--gpus", "64"], "write --dp 64"),
    (["calc", "batch", "--seq", "0"], "out of range"),
    (["calc", "batch", "--seq", "4096", "--micro", "two"], "--micro"),
    (["calc", "batch", "--seq", "4096", "--mikro", "2"], "Did you mean --micro?"),
    (
        ["calc", "batch", "--seq", "4096", "--micro-batch-size=2"],
        "--micro-batch-size is not an option here; write --micro",
    ),
    (["calc", "mfu", "llama-65b", "--on", "a100-80", "--days", "3"], "Unknown option: --days"),
    (["catalog", "models", "nope"], "are known, the nearest: "),
]


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("arguments", GOOD, ids=" ".join)
def test_good_input_prints_a_page_that_fits(arguments, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.strip()
    assert max(len(line) for line in shown.out.splitlines()) <= 80


@pytest.mark.parametrize("arguments", GOOD, ids=" ".join)
def test_json_is_json_and_nothing_else(arguments, capsys):
    assert main([*arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert isinstance(json.loads(shown.out), dict)


@pytest.mark.parametrize(
    ("arguments", "cure"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_is_one_line_and_exit_2(arguments, cure, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert cure in shown.err


@pytest.mark.parametrize("word", [f"{verb} {word}" for verb, words in WORDS.items() for word in words])
def test_help_of_a_second_word(word, capsys):
    assert main([*word.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def data_of(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_narrow_tables_cut_nothing_off(capsys):
    known = data_of(capsys, "catalog", "models")["models"]
    assert main(["catalog", "models"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    for model in known:
        assert lines[model["name"]].rstrip().endswith(f"{model['vocab']:,}")
    chips = data_of(capsys, "catalog", "gpus")["gpus"]
    assert main(["catalog", "gpus"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    for gpu in chips:
        price = gpu["usd_per_hour"]
        assert lines[gpu["name"]].rstrip().endswith(f"-{price[1]:.2f}" if price else "-")


def test_mfu_gives_every_convention(capsys):
    llama = data_of(capsys, "calc", "mfu", "llama-65b", "--tps", "380", "--on", "a100-80")["conventions"]
    assert list(llama) == ["6n_all", "6n_matmul", "full_square", "causal_half", "hardware", "executed", "8tp"]
    assert llama["6n_all"]["utilization"] == pytest.approx(0.475, abs=0.005)
    assert llama["8tp"]["utilization"] == pytest.approx(0.63, abs=0.01)


def test_mfu_from_a_whole_run_and_back(capsys):
    run = data_of(
        capsys, "calc", "mfu", "gpt-3-175b", "--on", "a100-80", "--tokens", "300B", "--gpus", "1024", "--time", "35 d"
    )
    assert run["conventions"]["8tp"]["utilization"] == pytest.approx(0.43, abs=0.005)
    assert run["run_s"] == pytest.approx(35 * 86400)
    speed = str(run["tokens_per_s_per_gpu"])
    back = data_of(
        capsys, "calc", "mfu", "gpt-3-175b", "--on", "a100-80", "--tokens", "300B", "--gpus", "1024", "--tps", speed
    )
    assert back["run_s"] == pytest.approx(35 * 86400)


def test_roofline_numbers_reach_the_user(capsys):
    found = data_of(capsys, "calc", "roofline", "dgx-h100:1024", "--inner", "256", "--ffn", "16k")
    assert round(found["critical_flop_per_byte"]) == 295
    assert [level["crossed"] for level in found["levels"]] == [False, False, True]
    assert round(found["levels"][-1]["dp_sharp_tokens"]) == 39
    assert int(found["tensor_parallel_bound_ways"]) == 8
    assert found["tensor_parallel_reached_ways"] < found["tensor_parallel_bound_ways"]
    assert 330e9 < found["reached_bytes_per_s"] < 400e9
    assert found["node_egress_bytes_per_s"] == 400e9


def test_axes_hide_gradients_each_in_its_way(capsys):
    """Eight stages in eight nodes: 2,472 / 8 = 309 tokens per GPU. Inside a node tensor parallelism gains nothing
    beyond it: the node's cards were all used before."""
    for words, tokens in ((["--pp", "8"], 309), (["--tp", "8"], 2472), (["--tp", "8", "--pp", "8"], 309)):
        found = data_of(capsys, "calc", "roofline", "dgx-h100:256", *words)
        assert found["levels"][-1]["fsdp_tokens"] == pytest.approx(tokens, rel=2e-3)
    experts = data_of(capsys, "calc", "roofline", "dgx-h100:2048", "--ep", "64", "--experts", "256", "--active", "8")
    assert experts["levels"][-1]["dp_sharp_tokens"] == pytest.approx(4944, rel=2e-3)


@pytest.mark.parametrize(
    ("arguments", "correction"),
    [
        (["catalog", "gpus", "b200"], "148 SMs; the table of 'How to think about GPUs' has '?' there"),
        (["calc", "roofline", "b100"], "by its own a b100 needs 1,000 tokens"),
        (["calc", "roofline", "dgx-b200:64"], "by its own a b200 needs 1,250 tokens and its bound is 7.4"),
        (["calc", "roofline", "gb200"], "by its own a gb200 needs 1,361 tokens and its bound is 6.9"),
        (["calc", "roofline", "8xh100"], "= 65 us"),
        (["calc", "mfu", "gpt-3-175b", "--tps", "96.9", "--on", "a100-80"], "gives 0.435"),
        (["catalog", "models", "gpt-3-175b"], "gives 0.435"),
        (["catalog", "gpus", "gb200"], "Blackwell"),
        (["catalog", "clusters", "dgx-h100:1024"], "51.2 TB/s"),
        (["calc", "roofline", "dgx-h100:1024"], "about 370 of its 450 GB/s"),
        (["calc", "roofline", "dgx-h100:1024"], "about 30 %"),
        (["calc", "roofline", "h100", "--ffn", "16k"], "8 ways, not 9"),
        (["calc", "mfu", "llama-65b", "--tps", "380", "--on", "a100-80"], "gives 0.63"),
        (["catalog", "models", "llama-65b"], "gives 0.63"),
    ],
)
def test_wrong_sources_are_corrected_where_a_user_meets_them(arguments, correction, capsys):
    assert correction in " ".join(data_of(capsys, *arguments, "--explain")["notes"])
    if "about" not in correction:  # what is measured is no erratum
        assert correction not in " ".join(data_of(capsys, *arguments)["notes"])


def test_yaml_is_a_cluster_again(tmp_path, capsys):
    assert main(["catalog", "clusters", "dgx-h100:1024", "--yaml"]) == 0
    path = tmp_path / "site.yaml"
    path.write_text(capsys.readouterr().out)
    assert cluster_of(str(path)).levels == cluster_of("dgx-h100:1024").levels
    assert main(["calc", "roofline", str(path)]) == 0


def test_batch_says_what_equals_what(capsys):
    found = data_of(
        capsys, "calc", "batch", "--global", "2048", "--seq", "4096", "--gpus", "1024", "--tp", "8", "--pp", "4"
    )
    assert (found["dp"], found["accumulation"], found["global_tokens"]) == (32, 64, 8_388_608)
    assert {"micro_sequences": 4, "accumulation": 16} in found["splits"]
    few = data_of(capsys, "calc", "batch", "--global", "32", "--seq", "4096", "--dp", "16", "--pp", "4")
    assert "cannot fill 4 pipeline stages" in few["notes"][0]
