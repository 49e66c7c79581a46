"""The list of what is sent for parameters says the same for many policies at once and rank by rank."""

from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.fabric.calls import calls_of
from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import Job, optimizer_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.work import work_of
from shardwise.work.case import training_of

DENSE = model_from_shape("dense", 16, 512, 16, 4, 2048, True, 4096, tied=False)
TIED = replace(DENSE, tied=True)
EXPERTS = model_from_shape("experts", 16, 512, 16, 4, 2048, True, 4096, tied=False, experts=8, top_k=2, expert_ffn=512)
JOB = Job(seq=1024, global_batch=64)
CASES = [
    (DENSE, Policy(dp=8, zero=0)),
    (DENSE, Policy(dp=8, tp=2, zero=1)),
    (DENSE, Policy(dp=4, tp=8, pp=2, zero=2)),
    (DENSE, Policy(dp=8, zero=3)),
    (DENSE, Policy(dp=8, pp=2, zero=3, shard_group=4)),
    (DENSE, Policy(dp=8, zero=1, shard_group=2)),
    (DENSE, Policy(dp=2, pp=4, zero=1, schedule="dualpipe")),
    (DENSE, Policy(dp=2, pp=4, zero=2, schedule="dualpipe")),
    (TIED, Policy(dp=2, pp=4, zero=1)),
    (TIED, Policy(dp=2, pp=4, zero=2)),
    (TIED, Policy(dp=2, pp=4, vpp=2, zero=1, schedule="zb_v")),
    (EXPERTS, Policy(dp=8, ep=4, zero=1)),
    (EXPERTS, Policy(dp=8, tp=2, ep=4, zero=3)),
]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(("model", "policy"), CASES, ids=lambda v: str(v)[:40])
def test_one_list_for_many_policies_and_rank_by_rank(model, policy, optimizer):
    stack, job = stack_of("megatron-core"), replace(JOB, optimizer=optimizer_of(optimizer))
    others = [other for shape, other in CASES if shape is model]
    together = work_of(training_of(model, job, stack), Policies.of(others), every_stage=True)
    row = others.index(policy)
    listed = Counter()
    for message in together.parameter_messages:
        sent = message.bytes_of(together.elements(message.of))[row, : policy.pp] * message.count[row]
        if message.group == "ends":
            sent = sent[[0, -1]]
        listed[message.axis, message.op, message.phase] += float(sent.sum())
    alone = work_of(training_of(model, job, stack), Policies.of([policy]), every_stage=True)
    called = Counter()
    for call in calls_of(alone):
        if call.axis == "dp" or call.phase in ("step", "update"):
            called[call.axis, call.op, call.phase] += call.bytes * call.count
    assert {key for key, sent in listed.items() if sent} == set(called)
    for key, sent in called.items():
        # shares are filled up to whole elements
        assert listed[key] == pytest.approx(sent, rel=2e-3), key


def test_two_copies_of_a_model_add_up_their_gradients():
    """DualPipe: stage 0 with stage 3, stage 1 with stage 2, each once, after its replicas are summed."""
    work = work_of(
        training_of(DENSE, JOB, stack_of("megatron-core")),
        Policies.of([Policy(dp=2, pp=4, zero=0, schedule="dualpipe")]), every_stage=True,
    )  # fmt: skip
    found = [call for call in calls_of(work) if call.group == "mirror"]
    assert {(call.stage, call.stride // found[0].stride * 3) for call in found if call.stage == 0} == {(0, 3)}
    assert {call.stage for call in found} == {0, 1, 2, 3}
    sent = sum(call.bytes * call.count for call in found)
    assert sent == pytest.approx(float(np.sum(work.parameters[0])) * JOB.precision.grad_bytes)
