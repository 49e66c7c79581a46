"""Local SGD: workers drift apart with the steps between averagings and with unequal data; the mean pays for it."""

from itertools import pairwise
from typing import TYPE_CHECKING

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.plugins.sync.local_sgd import LocalSGD

if TYPE_CHECKING:
    from shardwise.plugins.sync._problems import LeastSquares


def _drift_and_error(problem: "LeastSquares", every: int, steps: int) -> tuple[float, float]:
    """Both over the second half: the drift one step before the workers average, the error right after."""
    import torch

    from shardwise.plugins.sync._simulate import descend

    apart: list[float] = []
    ends: list[float] = []

    def watch(x: torch.Tensor, t: int) -> None:
        if t >= steps // 2 and (t + 2) % every == 0:
            apart.append(float(((x - x.mean(0)) ** 2).sum(1).mean()))
        if t >= steps // 2 and (t + 1) % every == 0:
            ends.append(problem.error(x))

    start = torch.zeros(problem.slope.shape)
    descend(LocalSGD(every, via="sharded"), start, problem.gradients(), steps=steps, lr=0.05, watch=watch)
    return sum(apart) / len(apart), sum(ends) / len(ends)


def run(quick: bool, tell: Tell) -> Result:
    from shardwise.plugins.sync._problems import LeastSquares

    steps, every = (1536, (1, 4, 16)) if quick else (6144, (1, 4, 16, 64))
    drift: dict[tuple[float, int], float] = {}
    error: dict[tuple[float, int], float] = {}
    spreads = (0.0, 1.0, 3.0)
    for done, spread in enumerate(spreads):
        tell(done, len(spreads))
        problem = LeastSquares.of(16, 20, spread=spread, noise=0.3)
        for tau in every:
            drift[spread, tau], error[spread, tau] = _drift_and_error(problem, tau, steps)
    last = every[-1]
    return Result(
        title="16 workers: drift before averaging / error of the mean",
        heads=("spread of the data", *(f"every {tau}" for tau in every)),
        rows=tuple((f"{s:g}", *(f"{drift[s, tau]:.2g} / {error[s, tau]:.2g}" if tau > 1 else f"- / {error[s, tau]:.2g}"
                                for tau in every)) for s in spreads),
        checks=(
            Check("with equal data the error does not depend on it", error[0.0, last] < 1.5 * error[0.0, 1]),
            Check("with unequal data the error grows", error[3.0, last] > 3.0 * error[3.0, 1]),
            Check("drift grows with the steps between averagings",
                  all(drift[3.0, a] < drift[3.0, b] for a, b in pairwise(every[1:]))),
            Check("drift grows with the square of the spread, 9 times within a third",
                  6.0 < drift[3.0, last] / drift[1.0, last] < 12.0),
        ),
        series=tuple(
            ResultSeries(f"spread {s:g}", tuple((float(tau), error[s, tau]) for tau in every)) for s in spreads
        ),
        x_title="steps between averagings", y_title="error of the mean", log_x=True, log_y=True,
        notes=("least squares, 20 parameters, noise 0.3, lr 0.05, second half of the run",),
    )  # fmt: skip


REPRODUCTION = Reproduction(
    name="local_drift",
    question="How far do workers drift when they average rarely?",
    source="Stich 2019, arXiv:1805.09767; Khaled et al. 2020, arXiv:1909.04746",
    run=run,
)
