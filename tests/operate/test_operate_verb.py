"""`shardwise operate` from the command line."""

import json

import pytest

from shardwise.show.cli import main

RUN = ["operate", "llama-3-8b", "--on", "4x8xh100", "--tokens", "100G"]


def _answer(capsys, *more):
    assert main([*RUN, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_days_grow_with_failures_and_the_parts_add_up(capsys):
    ideal = _answer(capsys, "--failures", "off")
    usual = _answer(capsys)
    often = _answer(capsys, "--failures", "2 h")
    assert ideal["seconds"] == pytest.approx(ideal["ideal_s"], rel=1e-6)
    assert ideal["seconds"] < usual["seconds"] < often["seconds"]
    assert sum(often["shares"].values()) == pytest.approx(1.0)
    assert often["goodput"] == pytest.approx(often["ideal_s"] / often["seconds"])
    assert often["seconds_p10"] <= often["seconds_p50"] <= often["seconds_p90"]


def test_checkpoint_holds_twelve_bytes_a_parameter(capsys):
    assert _answer(capsys)["checkpoint_bytes"] == 8_030_261_248 * 12


def test_a_checkpoint_of_adapters_holds_the_adapters_and_a_restart_reads_the_rest_too(capsys):
    whole, adapters = _answer(capsys), _answer(capsys, "--tune", "lora,rank=16,targets=all")
    assert adapters["checkpoint_bytes"] == 41_943_040 * 12
    assert adapters["load_s"] / whole["load_s"] == pytest.approx(
        (41_943_040 * 12 + 8_030_261_248 * 2) / (8_030_261_248 * 12)
    )


def test_a_measured_step_is_taken(capsys):
    found = _answer(capsys, "--step", "10 s", "--failures", "off", "--global-batch", "256", "--seq", "8192")
    assert found["ideal_s"] == pytest.approx(100e9 / (256 * 8192) * 10)


def test_the_batch_and_the_days_are_those_of_size(capsys):
    run = ["llama-3-8b", "--on", "dgx-h100:88", "--tokens", "1T", "--json"]
    assert main(["size", *run]) == 0
    sized = next(size for size in json.loads(capsys.readouterr().out)["sizes"] if size["gpus"] == 88)
    assert main(["operate", *run, "--runs", "20"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["global_sequences"] == 528, "512 divide by no 11 nodes"
    assert found["step_s"] == pytest.approx(sized["step_s"], rel=1e-6)


def test_spares_are_drawn(capsys):
    none, some = (_answer(capsys, "--failures", "5 h", "--spares", str(n)) for n in (0, 8))
    assert none["tier"] == "sampled"
    assert none["seconds"] > some["seconds"]
    assert none["shares"]["waiting"] > some["shares"]["waiting"]


@pytest.mark.parametrize("arguments", [RUN, [*RUN, "--failures", "off"], [*RUN, "--save", "memory", "--spares", "2"]])
def test_page_fits_80_columns(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(("more", "told"), [
    (["--failures", "often"], "failures: "), (["--detect", "soon"], "detect: 'soon'"), (["--runs", "0"], "runs: 0"),
    (["--spares", "-1"], "spares: -1"),
    (["--save", "tape"], "save: 'tape'"), (["--interval", "1 s"], "takes to land"),
    (["--storage", "0 GB/s"], "storage: '0 GB/s'"), (["--shape", "9"], "shape: 9"), (["--seed", "-3"], "seed: -3"),
    (["--failures", "1 s"], "leaves no time"), (["--step", "0 s"], "step: '0 s'"),
])  # fmt: skip
def test_bad_input_is_named(more, told, capsys):
    assert main([*RUN, *more]) == 2
    assert told in capsys.readouterr().err
