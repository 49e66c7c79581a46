"""Days and dollars of one run are the same whichever verb is asked, with failures and without."""

import json

import pytest

from shardwise.show.cli import main

JOB = ["--tokens", "1T", "--seq", "8192", "--global-batch", "512"]
ON = ["--on", "8x8xh100"]


def _answer(capsys, *words):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _of_policy(policy):
    names = {"tp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "zero": "zero", "vpp": "vpp", "micro_batch": "micro"}
    flags = [word for field, flag in names.items() for word in (f"--{flag}", str(policy[field]))]
    return [*flags, *(["--shard-group", str(policy["shard_group"])] if policy["shard_group"] else [])]


@pytest.mark.parametrize("failures", ["llama-3", "12/512x30d", "off"])
def test_plan_size_estimate_and_operate_agree(capsys, failures):
    asked = [*ON, *JOB, "--failures", failures]
    recommended = _answer(capsys, "plan", "llama-3-8b", *asked)["recommended"]
    days = recommended["run"]["seconds"]
    assert _answer(capsys, "size", "llama-3-8b", *asked)["sizes"][-1]["seconds"] == pytest.approx(days)
    policy = _of_policy(recommended["policy"])
    assert _answer(capsys, "estimate", "llama-3-8b", *asked, *policy)["money"]["run"]["seconds"] == pytest.approx(days)
    operated = _answer(capsys, "operate", "llama-3-8b", *asked)
    assert operated["seconds"] == pytest.approx(days)
    assert recommended["run"]["useful_share"] == pytest.approx(operated["ideal_s"] / operated["seconds"])


def test_failures_make_a_run_longer_and_dearer_and_a_billion_tokens_no_different(capsys):
    asked = ["plan", "llama-3-8b", *ON, *JOB]
    often, never = (_answer(capsys, *asked, "--failures", rate)["recommended"] for rate in ("opt-175b", "off"))
    assert often["run"]["seconds"] > never["run"]["seconds"]
    assert often["run"]["usd"][0] > never["run"]["usd"][0]
    assert often["billion_tokens"] == never["billion_tokens"]


def test_days_over_data_of_many_lengths_count_the_tokens_of_the_data(capsys):
    asked = ["plan", "llama-3-8b", *ON, *JOB, "--lengths", "lognormal,mean=600,sigma=1", "--packing", "off"]
    found = _answer(capsys, *asked, "--failures", "off")["recommended"]
    assert found["run"]["seconds"] == pytest.approx(1e12 / (found["tokens_per_s_per_gpu"] * 64))


def test_a_deadline_is_held_with_failures(capsys):
    asked = ["size", "llama-3-8b", "--on", "dgx-h100:512", *JOB]
    shortest = min(size["seconds"] for size in _answer(capsys, *asked, "--failures", "off")["sizes"]) / 86400
    just, more = (f"{shortest * room:.5f} d" for room in (1.0005, 1.002))
    days = _answer(capsys, *asked, "--within", just, "--failures", "off")["smallest_in_time"]
    assert _answer(capsys, *asked, "--within", more, "--failures", "off")["smallest_in_time"] == days
    longest = main([*asked, "--within", just, "--failures", "opt-175b", "--json"])
    assert longest == 1
    assert json.loads(capsys.readouterr().out)["smallest_in_time"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["size", "llama-3-8b", "--failures", "3 h"], "'12/512x30d'"),
        (["plan", "llama-3-8b", *ON, "--failures", "lama"], "did you mean 'llama-3'?"),
        (["estimate", "llama-3-8b", *ON, "--failures", "0/3x2d"], "out of range"),
    ],
)
def test_a_rate_that_cannot_be_read_is_refused(capsys, words, says):
    assert main(words) == 2
    assert says in capsys.readouterr().err
