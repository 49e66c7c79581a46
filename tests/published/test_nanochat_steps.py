"""nanochat's first model on 8 A100: 21,400 steps of 524,288 tokens in 7 hours (huggingface.co/spaces/nanochat-students,
discussion 9 of its README). Nothing of the stack was fitted on it."""

import pytest

from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Attention, FeedForward, Layer, Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

LAYER = Layer(attention=Attention(heads=10, kv_heads=10, head_dim=128), feed_forward=FeedForward(width=5120, glu=False))
D20 = Model(name="d20", family="llama", hidden=1280, vocab=65_536, tied=False, kinds=(LAYER,), pattern=(0,) * 20)


def test_its_first_model_takes_seven_hours() -> None:
    stack = stack_of("torch-ddp@nanochat")
    job = Job(seq=2048, global_batch=256, precision=stack.precision_for("bf16"))
    policy = Policies.of([Policy(dp=8, zero=1, micro_batch=32)])
    step = float(estimate(case_of(D20, cluster_of("8xa100-80"), job, stack), policy).times.step_s[0])
    assert 21_400 * step == pytest.approx(7 * 3600, rel=0.05)
