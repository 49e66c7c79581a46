"""One policy, one answer: what `sync cost`, `estimate`, `compare` and `plan` say of every strategy is the same."""

import json

import pytest

from shardwise.plugins.sync import strategies
from shardwise.show.cli import main

MODEL, ON = "gpt2", "2x8xa100-80"
ADAM = [name for name, kind in strategies().items() if kind().needs_optimizer() == "any" and name != "psgd"]
PLAIN = [name for name, kind in strategies().items() if kind().needs_optimizer() == "sgd"]
BLOCKS = 2e-4
"""share of a message that the last, part-filled block of a compressor may be"""
MORE = {"adamw": ["local_sgd,every=8", "mem_sgd,compressor=sign", "power_sgd,rank=2"],
        "sgd": ["async_sgd,periods=4,1,1,1"]}  # fmt: skip


def answer(capsys, *words: str):
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def costed(capsys, text: str):
    """`sync cost` takes settings apart."""
    name, *settings = text.replace(",1,1,1", ";1;1;1").split(",")
    words = [word for each in settings for word in ("--set", each.replace(";", ","))]
    return answer(capsys, "sync", "cost", name, "--model", MODEL, "--on", ON, *words)[1]


@pytest.mark.parametrize(("optimizer", "names"), [("adamw", ADAM), ("sgd", PLAIN)])
def test_every_strategy_is_told_alike(capsys, optimizer, names):
    texts = [*names, *MORE[optimizer]]
    job, whole = ["--optimizer", optimizer], ["tp=1", "pp=1", "cp=1", "zero=0"]
    fixed = [word for each in whole for word in ("--fix", each)]
    _, planned = answer(capsys, "plan", MODEL, "--on", ON, *job, *fixed, "--sync", ",".join(texts))
    by_plan = {entry["sync"]: entry for entry in planned["strategies"]}
    for text in texts:
        cost = costed(capsys, text)
        _, estimated = answer(capsys, "estimate", MODEL, "--on", ON, *job, "--zero", "0", "--sync", text)
        _, compared = answer(capsys, "compare", MODEL, "--on", ON, *job, "--policy", "ddp", "--sync", text)
        kept = estimated["stages"][0]["kinds_bytes"]
        assert cost["replica_bytes"] == pytest.approx(sum(kept[k] for k in ("parameters", "gradients", "optimizer")))
        for found in (estimated["sync"], compared["cases"][0]["sync"], by_plan[text]["report"]):
            assert found["workers"] == cost["workers"] == 16
            assert found["sent_bytes"] == pytest.approx(cost["sent_bytes"], rel=BLOCKS), text
            assert found["dense_sent_bytes"] == pytest.approx(cost["psgd_sent_bytes"])
            assert found["messages_s"] == pytest.approx(cost["communication_s"], rel=BLOCKS), text
            assert found["state_bytes"] == cost["state_bytes"] == kept["sync"], text
            assert found["extra_steps"] == by_plan[text]["extra_steps"]
            told = "unknown" if found["extra_steps"] is None else f"{found['extra_steps']:.0%}"
            assert told in cost["notes"][1], text
            assert found["extra_source"] in cost["notes"][1]


def test_the_check_can_fail(capsys):
    """Another setting of the same strategy sends otherwise."""
    assert costed(capsys, "local_sgd,every=8")["sent_bytes"] == 2 * costed(capsys, "local_sgd,every=16")["sent_bytes"]
