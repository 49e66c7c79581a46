"""Every stack file states what it is, where it comes from, and settings that a policy can be priced with."""

import re

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import PARTS, stack_for, stack_names, stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

NAMES = stack_names()
SETTINGS = {name for struct in PARTS.values() for name in struct.__struct_fields__}
POLICIES = Policies.of(
    [Policy(dp=8, tp=4, pp=2), Policy(dp=64, zero=3), Policy(dp=64, recompute="full", attention="plain")]
)


@pytest.mark.parametrize("name", NAMES)
def test_states_its_origin(name):
    stack = stack_of(name)
    assert stack.name == name
    assert stack.summary
    assert stack.source
    assert re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", stack.date)
    assert set(stack.fitted) <= SETTINGS, "only settings can be fitted"
    assert stack.fitted_on or not stack.fitted, "a fit names its runs"


@pytest.mark.parametrize("name", NAMES)
def test_is_found_by_its_own_words(name):
    for piece in stack_of(name).matches:
        assert piece == piece.lower()
        assert stack_for(f"x {piece} y").name == name


def test_words_belong_to_one_stack():
    words = [piece for name in NAMES for piece in stack_of(name).matches]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("name", NAMES)
def test_shares_are_shares_and_precisions_are_known(name):
    stack = stack_of(name)
    shares = ("hidden_share", "overlap_ep", "selective_kept", "selective_repeat", "selective_attention")
    for share in (*shares, "tp_backward_hidden"):
        assert 0 <= stack.setting(share) <= 1, share
    assert stack.experts.overlap_ep_between_nodes == -1 or 0 <= stack.experts.overlap_ep_between_nodes <= 1
    for dtype in ("bf16", "fp16", "fp8", "nvfp4", "fp32"):
        assert precision_of(stack.precision_for(dtype).name) == stack.precision_for(dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_prices_policies(name, model):
    found = estimate(
        case_of(model_of(model), cluster_of("dgx-h100:64"), Job(seq=4096, global_batch=512), stack_of(name)), POLICIES
    )
    for value in (found.times.step_s, found.memory.peak):
        assert np.isfinite(value).all()
        assert (value > 0).all()
