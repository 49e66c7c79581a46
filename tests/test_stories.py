"""Two stories of the benchmark, whole: every command of a person agrees with the others."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from stories import STORIES, models_right, told_of


def test_there_are_enough():
    assert len(STORIES) >= 12
    assert len({story.name for story in STORIES}) == len(STORIES)


@pytest.mark.parametrize("name", ["fine-tuning with TRL", "a first run on one node"])
def test_nothing_contradicts(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = told_of(next(story for story in STORIES if story.name == name))
    assert not told.wrong
    assert 6 <= told.commands <= 12
    assert told.lines <= 35
    assert told.assumed


def test_models_have_the_sizes_that_were_published():
    models, right = models_right()
    assert models - right <= 2
