"""Any rank of a world of any size, in one process: the real program's messages and memory, and the predicted ones."""

import pytest

torch = pytest.importorskip("torch")
from msgspec.structs import replace  # noqa: E402
from training import MODELS, task_of  # noqa: E402

from shardwise.run.runtime.fake import fake_recordings  # noqa: E402
from shardwise.run.runtime.parallel.comm import CONTROL  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.record import Recording  # noqa: E402
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings  # noqa: E402
from shardwise.run.runtime.verify import fake_verify, recorded_step  # noqa: E402
from shardwise.spec.arch import model_of  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

SAME = {
    "zero 3 x tp": ("gpt", Policy(dp=2, tp=2, zero=3)),
    "folded stages x zero 2": ("gpt", Policy(pp=2, vpp=2, schedule="zb_v", dp=2, zero=2)),
    "ring x tp": ("llama", Policy(cp=2, tp=2, recompute="full")),
    "ep x etp": ("moe", Policy(dp=2, tp=2, ep=2, etp=2)),
}


def order_of(model, policy: Policy, batch: int = 4) -> TrainingOrder:
    task = task_of(model, policy, even_routing=any(kind.experts for kind in model.kinds))
    return TrainingOrder(
        task=replace(task, job=replace(task.job, global_batch=batch)), settings=TrainingSettings(steps=2)
    )


def sent(recording: Recording) -> list[tuple]:
    """In the order in which they were begun."""
    events = sorted((e for e in recording.events if e.axis != CONTROL), key=lambda e: e.start_s)
    return [(e.axis, e.op, e.phase, e.bytes, e.dtype, e.ranks) for e in events]


def test_fake_ranks_do_what_real_ones_do() -> None:
    """Every message in its order: axis, operation, phase, bytes, dtype, group; and every kind of memory."""
    orders = [order_of(MODELS[name], policy) for name, policy in SAME.values()]
    real = forked(4, lambda _: [recorded_step(order, torch.device("cpu"))[0] for order in orders])[0]
    for case, order, recordings in zip(SAME, orders, real, strict=True):
        for one, other in zip(recordings[::3], fake_recordings(order, [0, 3]), strict=True):
            assert one.rank == other.rank
            assert sent(one) == sent(other), (case, one.rank)
            assert one.memory_bytes == other.memory_bytes, (case, one.rank)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("gpt", Policy(dp=64, tp=4, pp=2, cp=2, zero=1)),
        ("moe", Policy(dp=64, tp=4, pp=2, cp=2, ep=8, zero=1)),
        ("moe", Policy(dp=128, tp=4, pp=2, ep=2, etp=4, zero=2)),
        ("odd", Policy(dp=512, tp=2, zero=3, shard_group=16)),
        ("few heads", Policy(dp=256, tp=4, zero=0)),
    ],
)
def test_any_rank_of_a_thousand(name: str, policy: Policy) -> None:
    assert policy.gpus == 1024
    order = order_of(MODELS[name], policy, 2 * policy.dp)
    for ranks in (None, [1023]):
        result, recordings = fake_verify(order, ranks)
        assert [row for row in result.messages if not row.equal] == []
        assert {r.stage for r in recordings} == (set(range(policy.pp)) if ranks is None else {policy.pp - 1})
        assert result.memory_error <= 0.02


def test_a_large_model_needs_no_memory() -> None:
    """One of 16,384 ranks of a 70B model: no number of it is ever stored."""
    policy = Policy(dp=256, tp=8, pp=8, zero=1)
    order = order_of(model_of("llama-3-70b"), policy, policy.dp)
    result, _ = fake_verify(order, [policy.gpus - 1])
    assert result.holds
    assert max(row.measured_bytes for row in result.memory) > 4e9


def test_a_rank_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="rank: 4 is not among 4 ranks; write 0 to 3"):
        fake_recordings(order_of(MODELS["llama"], Policy(dp=4)), [4])
