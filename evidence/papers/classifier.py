"""Compressed SGD on a small neural network: the ordering of the CIFAR-10 table, on data any machine has."""

from typing import TYPE_CHECKING

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.plugins.compressors import compressor
from shardwise.plugins.sync._strategy import Strategy
from shardwise.plugins.sync.double_squeeze import DoubleSqueeze
from shardwise.plugins.sync.ef21_sgd import EF21SGD
from shardwise.plugins.sync.ef21_sgdm import EF21SGDM
from shardwise.plugins.sync.mem_sgd import MemSGD
from shardwise.plugins.sync.neolithic import Neolithic
from shardwise.plugins.sync.psgd import PSGD

if TYPE_CHECKING:
    from torch import Tensor

N, BATCH, CLASSES, PIXELS = 8, 4, 10, 64
TOP = compressor("top_k", ratio=0.01)
METHODS: dict[str, Strategy] = {
    "psgd": PSGD(via="sharded"), "mem_sgd": MemSGD(TOP), "double_squeeze": DoubleSqueeze(TOP),
    "neolithic, R 2": Neolithic(TOP), "ef21_sgd": EF21SGD(TOP), "ef21_sgdm": EF21SGDM(TOP),
}  # fmt: skip


def _data() -> "tuple[Tensor, Tensor, str]":
    """Images of 64 numbers, their digits, and where they are from."""
    import torch

    try:
        from sklearn.datasets import load_digits  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        draw = torch.Generator().manual_seed(0)
        middles = torch.randn(CLASSES, PIXELS, generator=draw)
        labels = torch.arange(1800) % CLASSES
        return middles[labels] + 2.0 * torch.randn(1800, PIXELS, generator=draw), labels, "ten normal clouds"
    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(found.data, dtype=torch.float32)[order] / 8.0 - 1.0
    return images, torch.tensor(found.target)[order], "scikit-learn's digits"


def _trained(strategy: Strategy, steps: int) -> tuple[list[float], float]:
    """(training loss of all samples at each tenth of the run, share of held-out samples told right)."""
    import torch
    from torch import nn

    from shardwise.plugins.sync._simulate import simulate

    images, labels, _ = _data()
    held = len(labels) // 5
    train, test = (images[held:], labels[held:]), (images[:held], labels[:held])

    def model_fn() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(PIXELS, 48), nn.ReLU(), nn.Linear(48, CLASSES))

    def batch_fn(worker: int, step: int) -> "tuple[Tensor, Tensor]":
        draw = torch.Generator().manual_seed(N * step + worker)
        rows = torch.randint(0, len(train[1]), (BATCH,), generator=draw)
        return train[0][rows], train[1][rows]

    def optimizer_fn(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    done = simulate(model_fn, optimizer_fn, strategy, n=N, steps=steps, batch_fn=batch_fn,
                    loss_fn=nn.functional.cross_entropy)  # fmt: skip
    tenth = steps // 10
    losses = [float(done.losses[i * tenth : (i + 1) * tenth].mean()) for i in range(10)]
    model = model_fn()
    told = torch.func.functional_call(model, done.parameters(), (test[0],)).argmax(dim=1)
    return losses, float((told == test[1]).float().mean())


def run(quick: bool, tell: Tell) -> Result:
    steps = 400 if quick else 1200
    losses: dict[str, list[float]] = {}
    right: dict[str, float] = {}
    for done, (name, strategy) in enumerate(METHODS.items()):
        tell(done, len(METHODS))
        losses[name], right[name] = _trained(strategy, steps)
    end = {name: values[-1] for name, values in losses.items()}
    near = [name for name in METHODS if name not in ("psgd", "ef21_sgd")]
    return Result(
        title=f"a network of 3,610 parameters on {_data()[2]}, {N} workers, Top-K of 1 %",
        heads=("method", "loss at the end", "held out, right"),
        rows=tuple((name, f"{end[name]:.4f}", f"{right[name]:.1%}") for name in METHODS),
        checks=(
            *(Check(f"{name} ends below EF21-SGD", end[name] < end["ef21_sgd"]) for name in ("psgd", *near)),
            Check("EF21-SGD ends 1.5 times above PSGD or worse", end["ef21_sgd"] > 1.5 * end["psgd"]),
            Check("EF21-SGD tells fewest right", min(right, key=lambda name: right[name]) == "ef21_sgd"),
        ),
        series=tuple(ResultSeries(name, tuple(((i + 1) * steps / 10, loss) for i, loss in enumerate(values)))
                     for name, values in losses.items()),
        x_title="steps", y_title="training loss", log_x=False, log_y=True,
        notes=(f"batch {BATCH} per worker, SGD with lr 0.1, {steps:,} steps, one seed",
               "CIFAR-10, ResNet-18: PSGD 93.99, MEM-SGD 94.35, Double-Squeeze 94.11, NEOLITHIC 94.63, EF21-SGD 87.37"),
    )  # fmt: skip


REPRODUCTION = Reproduction(
    name="classifier",
    question="Does the ordering of compressed methods hold on a network?",
    source="Huang, Chen, Yin and Yuan 2022, arXiv:2206.03665",
    run=run,
)
