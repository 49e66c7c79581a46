"""An evaluation gives every layout the loss of one process, changes nothing, and leaves training as it was."""

from functools import cache
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from training import MODELS, RATE, batch_for, task_of  # noqa: E402

from shardwise.run.runtime.data.windows import Windows  # noqa: E402
from shardwise.run.runtime.parallel.vocabulary import loss_and_hits  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.evaluate import evaluate  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

CASES = {
    "dp": ("llama", Policy(dp=2, zero=1)),
    "zero 3": ("gpt", Policy(dp=2, zero=3)),
    "tp": ("llama", Policy(tp=2)),
    "pp": ("gpt", Policy(pp=2)),
    "pp, looped": ("llama", Policy(pp=2, vpp=2, schedule="interleaved")),
    "pp, folded": ("llama", Policy(pp=2, vpp=2, schedule="zb_v")),
    "cp": ("llama", Policy(cp=2)),
    "ep": ("moe", Policy(dp=2, ep=2)),
    "recompute": ("llama", Policy(tp=2, recompute="full")),
}
FOUR = {"pp x zero 3": ("llama", Policy(pp=2, dp=2, zero=3)), "pp x tp": ("gpt", Policy(pp=2, tp=2))}


def tried(name: str, policy: Policy) -> list[float]:
    """Losses of a step, an evaluation's loss and accuracy twice, and the loss of the step after it."""
    engine = TrainingEngine(task_of(MODELS[name], policy), torch.device("cpu"), OptimizerSettings())
    source = Windows(torch.randint(0, 128, (600,), generator=torch.manual_seed(3)).numpy(), 16, 0, name="noise")

    def step(index: int) -> float:
        part = engine.accumulate(batch_for(engine, index)).double() / engine.world.tp.size
        loss = float(engine.world.comm.all_reduce(part, engine.world.everyone))
        engine.update(RATE)
        return loss

    return [step(0), *evaluate(engine, source, 3), *evaluate(engine, source, 3), step(1)]


@cache
def alone(name: str) -> list[float]:
    return tried(name, Policy(zero=0))


@pytest.mark.parametrize(("ranks", "cases"), [(2, CASES), (4, FOUR)])
def test_every_layout_evaluates_alike(ranks: int, cases: dict) -> None:
    found = forked(ranks, lambda _: [tried(*case) for case in cases.values()])[0]
    for case, losses in zip(cases, found, strict=True):
        assert losses == pytest.approx(alone(cases[case][0]), abs=1e-5), case


def test_training_goes_on_as_if_nothing_had_been_evaluated() -> None:
    engine = TrainingEngine(task_of(MODELS["llama"], Policy(zero=0)), torch.device("cpu"), OptimizerSettings())
    losses = []
    for index in (0, 1):
        losses.append(float(engine.accumulate(batch_for(engine, index))))
        engine.update(RATE)
    before, loss, accuracy, again, accuracy_again, after = alone("llama")
    assert (before, after) == tuple(losses)
    assert (loss, accuracy) == (again, accuracy_again)


def test_accuracy_is_the_share_of_likeliest_targets() -> None:
    cut = SimpleNamespace(comm=SimpleNamespace(all_reduce=lambda x, *_: x), tp=SimpleNamespace(index=0))
    logits = torch.tensor([[[0.1, 2.0, 0.3]], [[5.0, 1.0, 0.0]], [[1.0, 0.0, 1.5]]])
    loss, hits = loss_and_hits(logits, torch.tensor([[1], [2], [2]]), cut).tolist()
    assert hits == 2
    wanted = torch.nn.functional.cross_entropy(logits.squeeze(1), torch.tensor([1, 2, 2]), reduction="sum")
    assert loss == pytest.approx(float(wanted))
