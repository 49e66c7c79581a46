"""bf16 without FSDP: sums and masters in fp32, or all in 16 bits; the optimizer's single pass against torch's."""

import pytest

torch = pytest.importorskip("torch")
from training import GPT, LLAMA, task_of, train  # noqa: E402

from shardwise.run.runtime.train.adam import PIECE, FlatAdam  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings, checked  # noqa: E402
from shardwise.run.runtime.verify import recorded_step, verified  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

STEPS = 6
CASES = [
    ("bf16", LLAMA, Policy(dp=2, zero=0)),
    ("bf16", GPT, Policy(dp=2, zero=1)),
    ("bf16", LLAMA, Policy(dp=2, zero=2)),
    ("bf16", LLAMA, Policy(pp=2, schedule="zero_bubble_h1")),
    ("bf16-pure", LLAMA, Policy(dp=2, zero=1)),
]


@pytest.fixture(scope="module")
def in_fp32():
    return {model.name: train(task_of(model, Policy()), STEPS).losses for model in (LLAMA, GPT)}


@pytest.mark.parametrize(("precision", "model", "policy"), CASES)
def test_losses_follow_fp32_and_the_prediction_holds(in_fp32, precision, model, policy) -> None:
    task = task_of(model, policy, precision)

    def rank(_: int):
        losses = train(task, STEPS).losses
        return losses, recorded_step(TrainingOrder(task=task, settings=TrainingSettings(steps=1)), torch.device("cpu"))

    losses, (recordings, loss) = forked(policy.gpus, rank)[0]
    assert losses == pytest.approx(in_fp32[model.name], rel=5e-3)
    result = verified(task, recordings, loss)
    assert result.messages_equal
    assert result.memory_error <= 0.02


@pytest.mark.parametrize(
    ("precision", "policy", "word"),
    [("bf16", Policy(dp=2, zero=3), "zero 3"), ("fsdp-mixed", Policy(dp=2, zero=1), "FSDP"), ("fp8", Policy(), "fp8")],
)
def test_refuses_a_precision_with_what_to_write(precision, policy, word) -> None:
    with pytest.raises(ValueError, match=word):
        checked(task_of(LLAMA, policy, precision))


@pytest.mark.parametrize("decoupled", [True, False])
def test_one_pass_of_adam_is_torchs(decoupled: bool) -> None:
    start = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    ours, theirs, rounded = start.clone(), start.clone().requires_grad_(), torch.zeros(1000, dtype=torch.bfloat16)
    options = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    mine = FlatAdam([ours], {ours: rounded}, decoupled=decoupled, **options)
    reference = (torch.optim.AdamW if decoupled else torch.optim.Adam)([theirs], **options)
    for step in range(5):
        gradient = torch.randn(1000, generator=torch.Generator().manual_seed(step + 1))
        ours.grad, theirs.grad, mine.shrink = gradient * 4.0, gradient.clone(), torch.tensor(4.0)
        mine.step()
        reference.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(rounded, ours.to(torch.bfloat16))
    assert PIECE * 4 < 2**31
