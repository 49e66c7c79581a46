"""Attacks on the mean, and which aggregation withstands them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.plugins.sync._robust import Robust
from shardwise.plugins.sync.centered_clipping import CenteredClipping
from shardwise.plugins.sync.geometric_median import GeometricMedian
from shardwise.plugins.sync.krum import Krum
from shardwise.plugins.sync.median import Median
from shardwise.plugins.sync.multi_krum import MultiKrum
from shardwise.plugins.sync.trimmed_mean import TrimmedMean

if TYPE_CHECKING:
    from torch import Tensor

N, LIARS = 20, 4
KINDS = (Krum, MultiKrum, Median, TrimmedMean, GeometricMedian, CenteredClipping)


def lie(attack: str, honest: "Tensor") -> "Tensor":
    """What the last workers send instead of their own row; they know what the honest ones send."""
    import torch

    good, mean = honest[:-LIARS], honest[:-LIARS].mean(dim=0)
    if attack == "sign flip":
        lies = -honest[-LIARS:] * 5.0
    elif attack == "infinite":
        lies = torch.full_like(honest[-LIARS:], float("inf"))
    elif attack == "a little":  # just inside the spread of the honest: arXiv:1902.06156
        lies = (mean - 1.0 * good.std(dim=0)).expand(LIARS, -1)
    else:
        lies = honest[-LIARS:]
    return torch.cat([good, lies])


def _liar(kind: type[Robust], attack: str, momentum: float, radius: float) -> Robust:
    @dataclass(frozen=True)
    class WithLiars(kind):  # type: ignore[misc,valid-type]
        def sent(self, momentum: "Tensor") -> "Tensor":
            return lie(attack, momentum)

    more = {"radius": radius} if issubclass(kind, CenteredClipping) else {}
    found: Robust = WithLiars(byzantine=0 if kind is MeanOfAll else LIARS, momentum=momentum, **more)
    return found


@dataclass(frozen=True)
class MeanOfAll(TrimmedMean):
    """Nothing trimmed."""


def run(quick: bool, tell: Tell) -> Result:
    from shardwise.plugins.sync._problems import LeastSquares, errors, mean

    steps = 240 if quick else 2000
    problem = LeastSquares.of(N, 10, spread=0.0, noise=1.0)
    attacks = ("none", "sign flip", "a little", "infinite")
    kinds: tuple[type[Robust], ...] = (MeanOfAll, *KINDS)
    found: dict[tuple[str, str], float] = {}
    for done, kind in enumerate(kinds):
        tell(done, len(kinds))
        name = "mean" if kind is MeanOfAll else kind.name
        for attack in attacks:
            strategy = _liar(kind, attack, 0.9, radius=1.0)
            ends = errors(problem, strategy, steps=steps, lr=0.05, first=2 * steps // 3, of_mean=True)
            found[name, attack] = mean(ends)

    def without_momentum(kind: type[Robust], attack: str) -> float:
        ends = errors(problem, _liar(kind, attack, 0.0, 1.0), steps=steps, lr=0.05, first=2 * steps // 3, of_mean=True)
        return mean(ends)

    plain = without_momentum(TrimmedMean, "a little")
    alone, together = without_momentum(Krum, "none"), without_momentum(MeanOfAll, "none")
    names = [name for name, attack in found if attack == "none"]
    limit = 30.0 * found["mean", "none"]
    return Result(
        title=f"error under attack, {LIARS} of {N} workers lie",
        heads=("aggregation", *attacks),
        rows=tuple((name, *(found[name, attack] for attack in attacks)) for name in names),
        checks=(
            Check("the mean is lost to flipped signs", not found["mean", "sign flip"] < limit),
            Check("and to one infinite number", not found["mean", "infinite"] < limit),
            *(Check(f"{name} withstands flipped signs", found[name, "sign flip"] < limit) for name in names[1:]),
            *(Check(f"{name} withstands infinite numbers", found[name, "infinite"] < limit)
              for name in names[1:]),
            Check("momentum at the workers leaves a small lie less room",
                  found["trimmed_mean", "a little"] < 0.5 * plain),
            Check("Krum, which keeps one worker's gradient, pays where nobody lies: 2.5 times the mean's error or "
                  "more, without momentum", alone > 2.5 * together),
        ),
        series=tuple(ResultSeries(name, tuple((float(i), found[name, a]) for i, a in enumerate(attacks)
                                        if found[name, a] < 1e6)) for name in names),
        x_title="attack: none, sign flip, a little, infinite", y_title="error", log_x=False, log_y=True,
        notes=(f"least squares, 10 parameters, noise 1, lr 0.05, worker momentum 0.9, {steps:,} steps",
               f"trimmed mean under 'a little' without momentum: {plain:.3g}",
               f"no attack, no momentum: Krum {alone:.3g}, mean {together:.3g}; momentum averages the noise that one "
               "worker's gradient has"),
    )  # fmt: skip


REPRODUCTION = Reproduction(
    name="byzantine",
    question="Which aggregation withstands workers that lie?",
    source="Blanchard et al. 2017, arXiv:1703.02757; Karimireddy et al. 2021, arXiv:2012.10333",
    run=run,
)
