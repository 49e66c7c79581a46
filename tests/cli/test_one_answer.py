"""One question has one answer, whichever verb is asked."""

import json
from typing import Any

import pytest

from shardwise.arch import model_names, model_of
from shardwise.spec.job import MOST_ASSUMED, usual_sequence
from terminal import narrow_terminal, shown  # noqa: F401

ONE_NODE = ["--on", "8xa100"]
SEQUENCE_TOKENS = {
    "llama-65b": 2048, "opt-175b": 2048, "gpt-3-175b": 2048, "bloom-176b": 2048, "llama-2-70b": 4096,
    "llama-3.1-405b": MOST_ASSUMED, "llama-4-maverick": MOST_ASSUMED, "mnist-mlp": 1,
}  # fmt: skip


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capsys, [*words, "--json"]))
    return found


@pytest.mark.parametrize("model", SEQUENCE_TOKENS)
def test_a_sequence_nobody_states_is_the_model_s_own(model: str) -> None:
    assert usual_sequence(model_of(model)) == SEQUENCE_TOKENS[model]


def test_every_model_of_the_catalog_trained_on_text_states_its_positions() -> None:
    silent = [name for name in model_names() if not model_of(name).context and model_of(name).inputs == "tokens"]
    assert silent == []


def test_every_verb_takes_the_same_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    policy = [*ONE_NODE, "--tp", "2", "--global-batch", "64"]
    answers = {
        "plan": told(["plan", "llama-7b", *ONE_NODE, "--top", "1"], capsys),
        "estimate": told(["estimate", "llama-7b", *policy], capsys),
        "simulate": told(["simulate", "llama-7b", *policy], capsys),
        "mfu": told(["mfu", "llama-7b", "--on", "a100", "--tps", "380"], capsys),
        "max": told(["max", "batch", "llama-7b", *ONE_NODE], capsys),
        "cuts": told(["cuts", "llama-7b", *ONE_NODE], capsys),
    }
    assert {verb: found["seq_tokens"] for verb, found in answers.items()} == dict.fromkeys(answers, 2048)
    for verb, found in answers.items():
        assert any("2,048 assumed, llama-7b's own positions" in note for note in found["notes"]), verb


def test_longer_positions_than_models_are_trained_at_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(["mfu", "llama-3.1-405b", "--on", "h100", "--tps", "40"], capsys)
    assert found["seq_tokens"] == MOST_ASSUMED
    assert "llama-3.1-405b's positions reach 131,072" in found["notes"][0]
