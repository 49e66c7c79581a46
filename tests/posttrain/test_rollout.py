"""Who decodes when: against a simulation that goes step by step, and lengths that have the mean they were asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.step.posttrain.rollout import capped_lengths, drawn, spans_of


def by_steps(lengths: list[int], running: int, prompt: int) -> tuple[int, int, int]:
    """Steps, tokens and cached tokens read, one engine step after the other."""
    queue, active = list(lengths), []
    steps = tokens = read = 0
    while queue or active:
        while queue and len(active) < running:
            active.append([0, queue.pop(0)])
        steps += 1
        tokens += len(active)
        read += sum(prompt + done for done, _ in active)
        active = [[done + 1, length] for done, length in active if done + 1 < length]
    return steps, tokens, read


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 12), st.integers(0, 50))
def test_spans_are_the_steps_of_an_engine(lengths, running, prompt):
    spans = spans_of(np.array(lengths), running, prompt)
    steps, tokens, read = by_steps(lengths, running, prompt)
    assert spans.steps.sum() == steps
    assert spans.tokens == pytest.approx(tokens)
    # the middle of a stretch of n steps lies half a token behind the mean of 0 .. n - 1
    assert (spans.steps * spans.batch) @ (spans.context - 0.5) == pytest.approx(read)


@pytest.mark.parametrize(("mean", "cap"), [(325, 1024), (3200, 4096), (12_700, 32_768)])
def test_capped_lengths_keep_the_mean(mean, cap):
    answers = drawn(capped_lengths(mean, cap), cap, 200_000)
    assert answers.mean() == pytest.approx(mean, rel=0.02)
    assert answers.max() == cap


def test_a_mean_beyond_the_cap_is_refused():
    with pytest.raises(ValueError, match="lengths: a mean of 5000 tokens under a cap of 4,096"):
        capped_lengths(5000, 4096)
