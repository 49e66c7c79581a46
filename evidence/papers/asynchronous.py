"""Asynchronous updates: with slow workers and unequal data there is a bias that no learning rate removes."""

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.plugins.sync._strategy import Strategy
from shardwise.plugins.sync.async_sgd import AsyncSGD
from shardwise.plugins.sync.bounded_staleness import BoundedStaleness
from shardwise.plugins.sync.fedbuff import FedBuff
from shardwise.plugins.sync.psgd import PSGD


def run(quick: bool, tell: Tell) -> Result:
    from shardwise.plugins.sync._problems import LeastSquares, errors

    steps, n = (1000, 16) if quick else (6000, 16)
    problem = LeastSquares.of(n, 10, spread=1.0, noise=0.1)
    slow = (20, 1, 1, 1)  # a quarter of the workers is 20 times slower
    methods: dict[str, Strategy] = {
        "psgd": PSGD(via="sharded"), "bounded_staleness, 4 steps": BoundedStaleness(delay=4, via="sharded"),
        "async_sgd, equal speeds": AsyncSGD(), "async_sgd, a quarter 20 x slower": AsyncSGD(periods=slow),
        "fedbuff, a quarter 20 x slower": FedBuff(buffer=n, periods=slow),
    }  # fmt: skip
    rates = (0.04, 0.01)
    floor: dict[tuple[str, float], float] = {}
    lines = []
    for done, (name, strategy) in enumerate(methods.items()):
        tell(done, len(methods))
        for rate in rates:
            found = errors(problem, strategy, steps=int(steps * rates[0] / rate), lr=rate)
            floor[name, rate] = sum(found[-200:]) / 200
            if rate == rates[0]:
                lines.append(ResultSeries(name, tuple((float(t), found[t]) for t in range(0, steps, steps // 100))))
    low, base = rates[1], floor["psgd", rates[1]]
    uneven, even = "async_sgd, a quarter 20 x slower", "async_sgd, equal speeds"
    return Result(
        title=f"error of {n} workers on unequal data at the end",
        heads=("method", *(f"lr {rate:g}" for rate in rates)),
        rows=tuple((name, *(floor[name, rate] for rate in rates)) for name in methods),
        checks=(
            Check("a bounded delay costs little", floor["bounded_staleness, 4 steps", low] < 1.5 * base),
            Check("asynchronous with equal speeds reaches PSGD's error", floor[even, low] < 2.0 * base),
            Check("unequal speeds end 10 times above PSGD or worse", floor[uneven, low] > 10.0 * base),
            Check("and a smaller step does not help", floor[uneven, low] > 0.5 * floor[uneven, rates[0]]),
        ),
        series=tuple(lines),
        x_title="steps", y_title="error", log_x=False, log_y=True,
        notes=("least squares, 10 parameters, spread 1, noise 0.1; workers on a common clock",),
    )  # fmt: skip


REPRODUCTION = Reproduction(
    name="asynchronous",
    question="What do slow workers cost when nobody waits for them?",
    source="Mishchenko et al. 2022, arXiv:2206.07638; Nguyen et al. 2022, arXiv:2106.06639",
    run=run,
)
