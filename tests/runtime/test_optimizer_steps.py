"""The optimizer on flat local tensors does what torch's does on whole parameters."""

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
from training import GPT, LLAMA, MOE, batch_for, task_of  # noqa: E402

from shardwise.run.runtime.parallel.held import held_by  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.task import checked  # noqa: E402
from shardwise.spec.job import optimizer_of  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

SETTINGS = {
    "adamw": OptimizerSettings(betas=(0.8, 0.9), epsilon=1e-6, weight_decay=0.2, clip=0.0),
    "adam": OptimizerSettings(name="adam", weight_decay=0.2, clip=0.0),
    "sgd-m": OptimizerSettings(name="sgd-m", momentum=0.8, nesterov=True, weight_decay=0.2, clip=0.0),
    "sgd": OptimizerSettings(name="sgd", weight_decay=0.2, clip=0.5),
    "adafactor": OptimizerSettings(name="adafactor", weight_decay=0.2, clip=0.0),
    "muon": OptimizerSettings(name="muon", momentum=0.95, nesterov=True, weight_decay=0.2, clip=0.0),
}
RATE, STEPS = 1e-2, 3


def ours(settings: OptimizerSettings, policy: Policy, model: Model = GPT) -> dict[str, torch.Tensor]:
    engine = TrainingEngine(task_of(model, policy), torch.device("cpu"), settings)
    for step in range(STEPS):
        engine.accumulate(batch_for(engine, step))
        engine.update(RATE)
    return {h.piece.name: h.parameter.detach().clone() for chunk in engine.chunks for h in held_by(chunk)}


def muon_beside_adamw(held, settings: OptimizerSettings, *, kept: bool) -> list[torch.optim.Optimizer]:
    """Tables and vectors are AdamW's."""
    matrices = [h.parameter for h in held if h.piece.kind == "matrix"]
    assert 0 < len(matrices) < len(held)
    others = [
        {"params": [h.parameter for h in held if h.piece.kind == kind], "weight_decay": 0.2 * (kind == "table" or kept)}
        for kind in ("table", "vector")
    ]
    return [
        torch.optim.Muon(
            matrices, lr=RATE, weight_decay=0.2, momentum=0.95, nesterov=True, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=RATE, betas=settings.betas, eps=settings.epsilon),
    ]


def torchs(settings: OptimizerSettings) -> dict[str, torch.Tensor]:
    """The same gradients, given to torch's optimizer parameter by parameter."""
    engine = TrainingEngine(task_of(GPT, Policy(zero=0)), torch.device("cpu"), settings)
    held = [h for chunk in engine.chunks for h in held_by(chunk)]
    kept = settings.decay_on == "all"
    groups = [
        {"params": [h.parameter for h in held if (len(h.piece.shape) > 1) == big], "weight_decay": 0.2 * (big or kept)}
        for big in (True, False)
    ]
    build = {
        "adamw": lambda: torch.optim.AdamW(groups, lr=RATE, betas=settings.betas, eps=settings.epsilon),
        "adam": lambda: torch.optim.Adam(groups, lr=RATE, betas=settings.betas, eps=settings.epsilon),
        "sgd-m": lambda: torch.optim.SGD(groups, lr=RATE, momentum=settings.momentum, nesterov=True),
        "adafactor": lambda: torch.optim.Adafactor(groups, lr=RATE),
        "sgd": lambda: torch.optim.SGD(groups, lr=RATE),
    }
    optimizers = muon_beside_adamw(held, settings, kept=kept) if settings.name == "muon" else [build[settings.name]()]
    for step in range(STEPS):
        engine.accumulate(batch_for(engine, step))
        if settings.clip:
            torch.nn.utils.clip_grad_norm_([h.parameter for h in held], settings.clip)
        for optimizer in optimizers:
            optimizer.step()
        for sync in engine.syncs:
            sync.clear()
    return {h.piece.name: h.parameter.detach() for h in held}


@pytest.mark.parametrize("decay_on", ["all", "matrices"])
@pytest.mark.parametrize("name", SETTINGS)
def test_one_process(name: str, decay_on: str) -> None:
    settings = replace(SETTINGS[name], decay_on=decay_on)
    found, expected = ours(settings, Policy(zero=0)), torchs(settings)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=1e-6, rtol=1e-5)


def test_what_does_not_decay_differs() -> None:
    some, none = (ours(OptimizerSettings(decay_on=on), Policy(zero=0)) for on in ("all", "matrices"))
    norms = [key for key in some if "norm" in key]
    assert norms
    assert not any(torch.equal(some[key], none[key]) for key in norms if key.endswith("norm.0.weight"))


def test_sharded_states_decay_alike() -> None:
    """ZeRO 1 and 2 cut parameters anywhere: matrices decay, norms do not, as on one process."""
    # a key's bias has no gradient but rounding, which Adam would make large
    settings = OptimizerSettings(name="sgd-m", decay_on="matrices")
    expected = ours(settings, Policy(zero=0))
    found = forked(2, lambda _: [ours(settings, Policy(dp=2, zero=zero)) for zero in (1, 2)])
    for whole in (one for rank in found for one in rank):
        for key, value in expected.items():
            torch.testing.assert_close(whole[key], value, atol=1e-6, rtol=1e-5)


def test_muon_on_two_replicas_and_whole_experts() -> None:
    """Without ZeRO every rank has whole matrices, experts one by one: as one process does."""
    settings = OptimizerSettings(name="muon", nesterov=True, weight_decay=0.2, clip=0.0)
    for model, policy in (
        (LLAMA, Policy(dp=2, zero=0)),
        (LLAMA, Policy(pp=2, zero=0)),
        (MOE, Policy(dp=2, ep=2, zero=0)),
    ):
        expected = ours(settings, Policy(zero=0), model)
        found = forked(2, lambda _, model=model, policy=policy: ours(settings, policy, model))
        for part in found:
            for key, value in part.items():
                halves = expected[key].chunk(len(expected[key]) // len(value))
                # Newton-Schulz in 16 bits rounds gradients that differ in their last bits; a step moves by 2e-3
                assert min(float((value - half).square().mean().sqrt()) for half in halves) < 4e-4


def test_owners_do_not_go_with_fsdp() -> None:
    """FSDP2 gives every rank rows of each matrix."""
    task = task_of(LLAMA, Policy(dp=2, zero=3, matrix_layout="owned"))
    for name in ("muon", "soap", "shampoo"):
        with pytest.raises(ValueError, match=r"matrix-layout: owned .*--matrix-layout all-to-all"):
            checked(replace(task, job=replace(task.job, optimizer=optimizer_of(name))))
