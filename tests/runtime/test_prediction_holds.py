"""What a run sends and keeps is what the planner says: messages equal, memory by kind within 2 %."""

import pytest

torch = pytest.importorskip("torch")
from msgspec.structs import replace  # noqa: E402
from test_equal_to_one_process import CUTS  # noqa: E402
from training import MODELS, task_of  # noqa: E402

from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.record import timeline_of  # noqa: E402
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings  # noqa: E402
from shardwise.run.runtime.verify import recorded_step, verified  # noqa: E402
from shardwise.spec.job import optimizer_of  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

POLICIES = {
    2: [
        ("llama", Policy(dp=2, zero=0)),
        ("llama", Policy(dp=2, zero=1)),
        ("gpt", Policy(dp=2, zero=2)),
        ("llama", Policy(dp=2, zero=3)),
        ("gpt", Policy(dp=2, zero=3)),
        ("gpt", Policy(tp=2, sp=False)),
        ("llama", Policy(tp=2)),
        ("gpt", Policy(pp=2)),
        ("llama", Policy(pp=2, vpp=2, schedule="interleaved")),
        ("llama", Policy(pp=2, schedule="gpipe")),
        ("llama", Policy(pp=2, schedule="overlapped")),
        ("llama", Policy(pp=2, vpp=2, schedule="looped_bfs")),
        ("llama", Policy(pp=2, schedule="zero_bubble_h1")),
        ("gpt", Policy(pp=2, schedule="zero_bubble_h1", recompute="full")),
        ("llama", Policy(pp=2, vpp=2, schedule="interleaved_zero_bubble")),
        ("llama", Policy(pp=2, vpp=2, schedule="zb_v")),
        ("llama", Policy(pp=2, vpp=2, schedule="zb_v", recompute="full")),
        ("llama", Policy(pp=2, vpp=2, schedule="dualpipe_v")),
        ("llama", Policy(cp=2)),
        ("llama", Policy(tp=2, recompute="full")),
        ("llama", Policy(attention="plain", dp=2)),
        ("gpt", Policy(pp=2, vpp=2, schedule="zb_v")),
        ("llama", Policy(pp=2, schedule="dualpipe")),
        ("gpt", Policy(pp=2, schedule="dualpipe", recompute="full")),
        ("odd", Policy(dp=2, zero=3)),
        ("gpt", Policy(dp=2, zero=1, offload="optimizer")),
        ("mla", Policy(tp=2)),
        ("mla", Policy(tp=2, sp=False)),
        ("mla", Policy(cp=2)),
        ("mla", Policy(pp=2, schedule="zero_bubble_h1")),
        ("mqa", Policy(tp=2)),
        ("moe", Policy(dp=2, ep=2)),
    ],
    4: [
        ("llama", Policy(dp=4, zero=3, shard_group=2)),
        ("llama", Policy(dp=4, zero=1, shard_group=2)),
        ("gpt", Policy(dp=2, tp=2, zero=3)),
        ("llama", Policy(pp=2, dp=2, zero=3)),
        ("gpt", Policy(pp=2, tp=2)),
        ("llama", Policy(pp=2, tp=2, schedule="zero_bubble_h1")),
        ("llama", Policy(cp=2, tp=2, recompute="full", recompute_layers=1)),
        ("moe", Policy(dp=2, tp=2, ep=4)),
        ("moe", Policy(dp=2, tp=2, ep=2, etp=2)),
        ("moe", Policy(dp=4, ep=2, zero=3, shard_group=2)),
        ("moe", Policy(dp=2, tp=2, etp=1)),
        ("gpt", Policy(pp=2, dp=2, zero=2)),
        ("gpt", Policy(pp=2, vpp=2, schedule="zb_v", dp=2, zero=3)),
        ("odd", Policy(dp=2, tp=2, zero=3)),
        ("odd", Policy(dp=4, zero=3, shard_group=2)),
        ("moe", Policy(pp=2, dp=2, ep=2, zero=1)),
    ],
}


def order_of(name: str, policy: Policy, cuts: dict | None = None, optimizer: str = "adamw") -> TrainingOrder:
    model = MODELS[name]
    # a router that learns gives some experts more than predicted; that is tried by one process' losses
    task = task_of(model, policy, cuts=cuts, even_routing=any(kind.experts for kind in model.kinds))
    task = replace(task, job=replace(task.job, optimizer=optimizer_of(optimizer)))
    return TrainingOrder(task=task, settings=TrainingSettings(steps=1, optimizer=OptimizerSettings(name=optimizer)))


WHOLE = {
    2: [("llama", Policy(dp=2, zero=0)), ("gpt", Policy(pp=2)), ("moe", Policy(dp=2, ep=2, zero=0))],
    4: [("llama", Policy(dp=2, cp=2, zero=0)), ("gpt", Policy(pp=2, vpp=2, schedule="interleaved", dp=2, zero=0))],
}
"""where every rank has whole matrices"""
CUTS = {
    2: CUTS,
    4: [
        (Policy(dp=2, tp=2, zero=3), {"embedding": "broadcast"}),
        (Policy(pp=2, tp=2), {"embedding": "broadcast", "attention_split": "gather-qk"}),
        (Policy(cp=2, tp=2, recompute="full"), {"context_parallel": "ulysses"}),
    ],
}


@pytest.fixture(scope="module", params=POLICIES)
def recorded(request):
    orders = [order_of(*case) for case in POLICIES[request.param]]
    orders += [order_of("llama", policy, cuts) for policy, cuts in CUTS[request.param]]
    orders += [order_of(*case, optimizer="muon") for case in WHOLE[request.param]]
    found = forked(request.param, lambda _: [recorded_step(order, torch.device("cpu")) for order in orders])[0]
    return [(order, *recording) for order, recording in zip(orders, found, strict=True)]


def test_messages_are_equal(recorded) -> None:
    for order, recordings, loss in recorded:
        result = verified(order.task, recordings, loss)
        assert [row for row in result.messages if not row.equal] == [], order.task.policy
        assert sum(row.measured_count for row in result.messages) > 0


def test_memory_by_kind(recorded) -> None:
    for order, recordings, loss in recorded:
        result = verified(order.task, recordings, loss)
        for row in result.memory:
            assert abs(row.error) <= 0.02, (order.task.policy, row)


def test_messages_leave_before_the_backward_ends() -> None:
    """With small buckets the first reduction starts while the last micro-batch's backward still runs."""
    order = order_of("llama", Policy(dp=2, zero=0))
    task = replace(order.task, stack=order.task.stack.changed(bucket_bytes=8_000.0))
    order = replace(order, task=task)
    recordings, loss = forked(2, lambda _: recorded_step(order, torch.device("cpu")))[0]
    result = verified(task, recordings, loss)
    assert result.messages_equal
    assert result.messages[0].measured_count > 20
    for recording in recordings:
        first = min(e.start_s for e in recording.events if e.axis == "dp")
        assert first < max(d.end_s for d in recording.done)


def test_timeline_has_every_rank(recorded) -> None:
    for order, recordings, _ in recorded:
        timeline = timeline_of(recordings)
        assert timeline.ranks == order.task.policy.gpus
        assert (timeline.spans.end_s >= timeline.spans.start_s).all()
        assert timeline.busy_s().min() > 0


def test_another_policy_does_not_match(recorded) -> None:
    order, recordings, loss = recorded[0]
    other = replace(order.task, policy=replace(order.task.policy, micro_batch=2, recompute="full"))
    assert not verified(other, recordings, loss).holds
