"""Stages of your own layers, and what tensor parallelism cuts by your word: the same in closed form and in time."""

import json

import pytest

from shardwise.show.cli import main

CASE = ["llama-3-8b", "--on", "8xh100"]


def answer(capsys, *words: str) -> dict:
    assert main([*words, "--json"]) in (0, 1), "one stage may be too full"
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("layers", ["10,10,6,6", "4,4,4,20", "9,8,8,7"])
def test_stated_layers_take_as_long_in_closed_form_as_in_time(layers, capsys):
    words = [*CASE, "--pp", "4", "--stage-layers", layers]
    closed, timed = (answer(capsys, verb, *words)["step_s"] for verb in ("estimate", "simulate"))
    assert closed == pytest.approx(timed, rel=2e-3)


def test_the_programs_own_split_may_be_stated(capsys):
    words = ["simulate", *CASE, "--pp", "4"]
    own, stated, uneven = (answer(capsys, *words, *more)["step_s"] for more in (
        [], ["--stage-layers", "8,8,8,8"], ["--stage-layers", "4,4,4,20"]
    ))  # fmt: skip
    assert own == stated < uneven


@pytest.mark.parametrize("layers", ["8,8,8", "8,8,8,9", "8,8,16,0", "a,b", "8;8;8;8"])
def test_layers_that_are_no_split_are_refused(layers, capsys):
    assert main(["estimate", *CASE, "--pp", "4", "--stage-layers", layers]) == 2
    said = capsys.readouterr().err
    assert "stage-layers" in said
    assert "add up to 32" in said


def test_an_embedding_on_one_rank_costs_memory_there_and_a_broadcast(capsys):
    words = ["estimate", *CASE, "--tp", "8"]
    cut, whole, gathered = (answer(capsys, *words, *more) for more in (
        [], ["--embedding", "broadcast"], ["--attention-split", "gather-qk"]
    ))  # fmt: skip
    table = 128_256 * 4096
    assert whole["peak_bytes"] - cut["peak_bytes"] > 7 / 8 * table * 6
    assert whole["time_s"]["tp_comm"] > cut["time_s"]["tp_comm"]
    assert gathered["traffic_bytes"]["tp"]["node"] > 1.2 * cut["traffic_bytes"]["tp"]["node"]


def test_cuts_that_no_program_has_are_not_exported(capsys):
    assert main(["export", *CASE, "--tp", "8", "--to", "megatron", "--embedding", "broadcast"]) == 2
    assert "leave --embedding out" in capsys.readouterr().err
