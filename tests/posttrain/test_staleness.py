"""Ages of answers: exact where nothing is random, as Little's law has it, never beyond what was started."""

import json
from math import inf

import numpy as np
import pytest

from shardwise.show.cli import main
from shardwise.step.posttrain.staleness import simulated

EVEN = np.full(20_000, 100)


def test_a_fast_engine_waits_for_the_bound() -> None:
    """All answers are ready a whole lag before their update."""
    for lag in (1, 2, 4):
        found = simulated(EVEN, 1e-6, 64, 64, lag, update_s=10.0, steps=20)
        assert found.step_s == pytest.approx(10.0, rel=1e-3)
        assert found.shares[lag] == pytest.approx(1.0)
        assert (found.dropped, found.spanning) == (0.0, 0.0)


def test_a_slow_engine_sets_the_pace() -> None:
    """64 answers of 100 tokens by 16 slots: four rounds of a second each."""
    found = simulated(EVEN, 0.01, 16, 64, 1, update_s=0.5, steps=20)
    assert found.step_s == pytest.approx(4.0)
    assert found.mean < 1.0


def test_ages_agree_with_littles_law() -> None:
    """What is started and not yet trained, over what is trained in a step, is how long an answer stays."""
    lengths = np.random.default_rng(3).integers(50, 400, 40_000)
    found = simulated(lengths, 0.01, 256, 128, 2, update_s=1.5, steps=60)
    assert sum(found.shares) == pytest.approx(1.0)
    assert 0.5 < found.mean <= 3.0
    assert found.spanning > 0.3


def test_long_answers_are_dropped() -> None:
    lengths = np.where(np.arange(20_000) % 50 == 0, 4000, 100)
    found = simulated(lengths, 0.01, 128, 64, 1, update_s=1.0, steps=40)
    assert 0.0 < found.dropped < 0.1
    assert len(found.shares) > 2


def test_nothing_ends_where_nothing_is_left_to_start() -> None:
    found = simulated(np.full(10, 5), 1.0, 4, 64, 1, update_s=1.0, steps=10)
    assert (found.step_s, found.dropped) == (inf, 0.0)


def test_the_verb_tells_ages_of_a_lag_only(capsys) -> None:
    words = ["posttrain", "llama-3.1-8b", "--on", "8xh100", "--prompts", "32", "--group", "8", "--lengths", "600,2048"]
    main([*words, "--layout", "split", "--lag", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    aged = found["staleness"]
    assert sum(aged["shares"]) == pytest.approx(1.0, abs=1e-3)
    assert aged["mean_age"] == pytest.approx(sum(age * share for age, share in enumerate(aged["shares"])), abs=1e-2)
    assert 0 <= aged["dropped_share"] <= 1
    main([*words, "--layout", "colocated", "--json"])
    assert json.loads(capsys.readouterr().out)["staleness"] is None
