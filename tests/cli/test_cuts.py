"""`shardwise search cuts`: what it prints, what it writes as JSON, what it refuses."""

import json

import pytest

from shardwise.show.cli import main
from terminal import narrow_terminal, shown

__all__ = ["narrow_terminal"]

CHAIN = ["search", "cuts", "--chain", "4096,16384,4096,4096", "--on", "dgx-h100:1024", "--tokens", "8192"]
LAYER = ["search", "cuts", "llama-3-8b", "--on", "dgx-h100:1024", "--tokens", "8k", "--seq", "1000", "--top", "0"]
BAD = [
    (["search", "cuts", "--on", "8xh100"], "what to cut"),
    ([*CHAIN, "--graph", "x.yaml"], "what to cut"),
    ([*CHAIN, "--block", "mlp"], "leave --block out"),
    (["search", "cuts", "llama-3-8b", "--on", "8xh100", "--block", "moe"], "write attention or mlp"),
    (["search", "cuts", "llama-3-8b", "--on", "8xh100", "--block", "atention"], "did you mean 'attention'"),
    (["search", "cuts", "mnist-mlp", "--on", "8xh100"], "write a language model"),
    (["search", "cuts", "--chain", "4096", "--on", "8xh100"], "chain"),
    (["search", "cuts", "--chain", "4096,x", "--on", "8xh100"], "chain"),
    (["search", "cuts", "--chain", "1,2,99999999", "--on", "8xh100"], "chain"),
    (["search", "cuts", "--graph", "no-such.yaml", "--on", "8xh100"], "graph: there is no file 'no-such.yaml'"),
    ([*CHAIN, "--tp", "1"], "tp: 1"),
    ([*CHAIN, "--tp", "2048"], "fewer"),
    ([*CHAIN, "--top", "-1"], "top"),
    ([*CHAIN, "--accumulate", "0"], "accumulate"),
    ([*CHAIN, "--seq", "5000"], "divisor"),
    ([*CHAIN[:-1], "0"], "tokens"),
    ([*CHAIN, "--ends", "rows"], "ends"),
    ([*CHAIN[:-1], "8191", "--ends", "tokens"], "write --ends replicated"),
    ([*CHAIN, "--method", "dq"], "did you mean 'dp'"),
    (["search", "cuts", "llama-3-8b", "--on", "8xh100", "--method", "dp"], "write --method ip"),
    (["search", "cuts", "llama-3-8b", "--on", "8xh100", "--method", "exhaustive"], "write --method ip"),
    ([*CHAIN, "--memory", "5"], "unit"),
    ([*CHAIN, "--precision", "bf17"], "precision"),
]


def document(capsys, arguments, code=0):
    return json.loads(shown(capsys, [*arguments, "--json"], code))


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input_is_one_line(capsys, arguments, words):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("narrow_terminal")
@pytest.mark.parametrize(
    "arguments", [CHAIN, LAYER, ["search", "cuts", "mixtral-8x7b", "--block", "moe", "--on", "8xh100", "--top", "4"]]
)
def test_tables_fit_the_terminal(capsys, arguments):
    text = shown(capsys, arguments)
    assert max(map(len, text.splitlines())) <= 80
    assert "optimum" in text
    assert "cut of every matrix" in text


def test_the_talks_partitions(capsys):
    found = document(capsys, CHAIN)
    assert found["method"] == "dp"
    assert found["places"] == {"NVLink": {"stride": 1}, "nodes": {"stride": 8}}
    named = {name: point for point in found["points"] for name in point["names"]}
    assert list(named["talk's Partition 1"]["cuts"].values()) == ["column", "row", "row"]
    assert list(named["talk's Partition 2"]["cuts"].values()) == ["column", "column", "row"]
    assert "Megatron column-row" in named
    for point in found["points"]:
        near, far = point["at"]["NVLink"], point["at"]["nodes"]
        assert near["time_s"] <= far["time_s"]
        spent = sum(near[f"{phase}_communication_s"] for phase in ("forward", "backward", "weights"))
        assert near["time_s"] == pytest.approx(near["compute_s"] + spent)
        assert near["sent_bytes"] == pytest.approx(sum(c["sent_bytes"] for c in near["collectives"]))
    assert found["points"][0]["names"][0] == "optimum NVLink"


def test_a_layer_names_both_ends_and_the_book(capsys):
    found = document(capsys, ["search", "cuts", "llama-3-8b", "--on", "dgx-h100:64"])
    names = {name for point in found["points"] for name in point["names"]}
    assert {"Megatron", "Megatron + SP", "book: Q, K gathered", "Ulysses", "no cut", "next 1"} <= names
    assert found["method"] == "ip"
    assert any("--tokens not given" in note for note in found["notes"])


def test_one_node_prices_no_other(capsys):
    found = document(capsys, ["search", "cuts", "llama-3-8b", "--block", "mlp", "--on", "8xh100"])
    assert list(found["places"]) == ["NVLink"]
    assert any("across nodes is not priced" in note for note in found["notes"])


def test_more_ranks_than_a_fast_domain_holds(capsys):
    found = document(capsys, ["search", "cuts", "llama-3-8b", "--block", "mlp", "--on", "dgx-h100:1024", "--tp", "16"])
    assert list(found["places"]) == ["packed", "nodes"]


def test_a_limit_that_nothing_meets(capsys):
    found = document(capsys, [*CHAIN, "--memory", "1 MB"], code=1)
    assert not found["fits"]
    assert "the least is 37.75 MB" in shown(capsys, [*CHAIN, "--memory", "1 MB"], code=1)


def test_a_graph_from_a_file(capsys, tmp_path):
    path = tmp_path / "g.yaml"
    path.write_text("inputs: {x: 1024}\nops:\n  - {name: w, op: matrix, from: x, out: 4096}\n"
                    "  - {name: s, op: activation, from: w}\n  - {name: u, op: matrix, from: s, out: 1024}\n"
                    "  - {name: y, op: add, from: [u, x]}\n")  # fmt: skip
    found = document(capsys, ["search", "cuts", "--graph", str(path), "--on", "8xh100", "--ends", "any"])
    assert found["points"][0]["cuts"].keys() == {"w", "u"}
    assert {"data parallel", "no cut"} <= {name for point in found["points"] for name in point["names"]}
