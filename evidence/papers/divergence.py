"""Top-1 without error feedback diverges on three quadratics, by a factor that is known exactly."""

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.plugins.compressors import compressor
from shardwise.plugins.sync._strategy import Strategy
from shardwise.plugins.sync.double_squeeze import DoubleSqueeze
from shardwise.plugins.sync.ef21_sgd import EF21SGD
from shardwise.plugins.sync.mem_sgd import MemSGD
from shardwise.plugins.sync.neolithic import Neolithic
from shardwise.plugins.sync.psgd import PSGD
from shardwise.plugins.sync.qsgd import QSGD

LR = 0.01
STEPS = 400


def _sizes(strategy: Strategy) -> list[float]:
    """Distance from the minimum after each step.

    f_i = <a_i, x>^2 + |x|^2 / 4: from (1, 1, 1) the largest of each worker's gradient is -11/2, at its own coordinate.
    """
    import torch

    from shardwise.plugins.sync._simulate import descend

    rows = torch.tensor([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])
    sizes: list[float] = []

    def gradient(x: torch.Tensor, _: int) -> torch.Tensor:
        return 2 * (x * rows).sum(1, keepdim=True) * rows + x / 2

    descend(
        strategy, torch.ones(3, 3), gradient, steps=STEPS, lr=LR, watch=lambda x, _: sizes.append(float(x[0].norm()))
    )
    return sizes


def run(quick: bool, tell: Tell) -> Result:  # noqa: ARG001
    top = compressor("top_k", ratio=1 / 3)
    methods: dict[str, Strategy] = {
        "no feedback": QSGD(top, allow_biased=True), "psgd": PSGD(), "mem_sgd": MemSGD(top),
        "double_squeeze": DoubleSqueeze(top), "neolithic, R 2": Neolithic(top), "ef21_sgd": EF21SGD(top),
    }  # fmt: skip
    ends, lines = {}, []
    for name, strategy in methods.items():
        sizes = _sizes(strategy)
        ends[name] = sizes[-1]
        lines.append(ResultSeries(name, tuple((float(t), sizes[t]) for t in range(0, STEPS, 4))))
    known = 3**0.5 * (1 + 11 * LR / 6) ** STEPS
    return Result(
        title=f"distance from the minimum after {STEPS} steps from {3**0.5:.2f}",
        heads=("method", "distance"),
        rows=tuple((name, end) for name, end in ends.items()),
        checks=(
            Check(f"without feedback it grows as (1 + 11 lr / 6)^t, to {known:.4g}",
                  abs(ends["no feedback"] / known - 1) < 0.01),
            *(Check(f"{name} converges", ends[name] < 1.0) for name in ends if name != "no feedback"),
        ),
        series=tuple(lines),
        x_title="steps", y_title="distance", log_x=False, log_y=True,
        notes=(f"three workers, three parameters, Top-1, lr {LR}; nothing is random",),
    )  # fmt: skip


REPRODUCTION = Reproduction(
    name="divergence",
    question="Is error feedback needed?",
    source="Beznosikov et al. 2020, arXiv:2002.12410, example 1",
    run=run,
)
