"""Linear speed-up: with n workers the error PSGD ends at is n times smaller."""

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.plugins.sync.psgd import PSGD


def run(quick: bool, tell: Tell) -> Result:
    from shardwise.plugins.sync._problems import LeastSquares, errors, mean

    sizes = (1, 4, 16, 64) if quick else (1, 4, 16, 64, 256)
    first, steps = (500, 3500) if quick else (1000, 6000)
    found = {}
    for done, n in enumerate(sizes):
        tell(done, len(sizes))
        problem = LeastSquares.of(n, 20, spread=0.0, noise=1.0)
        found[n] = mean(errors(problem, PSGD(via="sharded"), steps=steps, lr=0.05, first=first))
    gain = {n: found[1] / found[n] for n in sizes}
    within = 0.2 if quick else 0.1
    checks = [Check(f"n = {n}: speed-up {gain[n]:.1f} is n within {within:.0%}", abs(gain[n] / n - 1) < within)
              for n in sizes]  # fmt: skip
    return Result(
        title="error PSGD ends at, and how many times smaller than with one worker",
        heads=("workers", "error", "speed-up", "over n"),
        rows=tuple((n, found[n], f"{gain[n]:.1f}", f"{gain[n] / n:.2f}") for n in sizes),
        checks=tuple(checks),
        series=(ResultSeries("measured", tuple((float(n), gain[n]) for n in sizes)),
                ResultSeries("linear", tuple((float(n), float(n)) for n in sizes))),
        x_title="workers", y_title="speed-up", log_x=True, log_y=True,
        notes=(f"least squares, 20 parameters, noise 1, lr 0.05, mean of steps {first:,} to {steps:,}",),
    )  # fmt: skip


REPRODUCTION = Reproduction(
    name="speedup",
    question="Does PSGD with n workers end n times nearer to the minimum?",
    source="rate sigma / sqrt(n T): Dekel et al. 2012, arXiv:1012.1367",
    run=run,
)
