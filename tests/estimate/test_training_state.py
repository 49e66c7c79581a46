"""Training state: which bytes, how many, on how many GPUs."""

import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, optimizer_of, precision_of
from shardwise.spec.load import gpu_of
from shardwise.step.estimate.state import lasting_state, state_of


def test_the_chapters_700_gb_take_nine_h100():
    state = lasting_state(model_of("llama-3-70b"))
    assert state.total == pytest.approx(700e9, rel=0.01)
    assert sum(state.bytes_per_parameter.values()) == 10
    assert state.gpus_for(gpu_of("h100")) == 9


def test_a_recipe_counts_all_it_keeps():
    model = model_of("llama-3-70b")
    whole = state_of(model, Job(seq=1, global_batch=1))
    assert whole.bytes_per_parameter == {"weights": 2, "gradients": 4, "copy": 4, "moments": 8, "cast": 0}
    assert whole.gpus_for(gpu_of("h100")) == 15
    pure = Job(seq=1, global_batch=1, precision=precision_of("bf16-pure"), optimizer=optimizer_of("sgd"))
    assert state_of(model, pure).total == 4 * state_of(model, pure).parameters
