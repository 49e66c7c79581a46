"""Graphs against PSGD: how long until the error of decentralized SGD is that of PSGD (the transient)."""

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.plugins.sync._strategy import Strategy
from shardwise.plugins.sync.dsgd import DSGD
from shardwise.plugins.sync.gossip_pga import GossipPGA
from shardwise.plugins.sync.gradient_tracking import GradientTracking
from shardwise.plugins.sync.local_sgd import LocalSGD
from shardwise.plugins.sync.psgd import PSGD
from shardwise.plugins.topologies import topology

NEAR = 1.5
"""times PSGD's error that counts as over the transient"""


def _methods(quick: bool) -> dict[str, Strategy]:
    graphs = ("static_exp", "one_peer_exp", "ring") if quick else (
        "static_exp", "hypercube", "one_peer_exp", "base", "torus", "grid", "ring", "star",
    )  # fmt: skip
    found: dict[str, Strategy] = {name: DSGD(topology(name)) for name in graphs}
    found["gossip_pga ring, H 16"] = GossipPGA(topology("ring"), every=16)
    if not quick:
        found["local_sgd, every 16"] = LocalSGD(every=16)
        found["gradient_tracking ring"] = GradientTracking(topology("ring"))
        found["static_exp, overlapped"] = DSGD(topology("static_exp"), overlap=True)
    return found


def run(quick: bool, tell: Tell) -> Result:
    from shardwise.plugins.sync._problems import LeastSquares, errors, mean

    n, stages, length = (16, 6, 500) if quick else (64, 10, 1000)
    problem = LeastSquares.of(n, 10, spread=1.0, noise=1.0)

    def by_stage(strategy: Strategy) -> list[float]:
        found = errors(problem, strategy, steps=stages * length, lr=lambda t: 0.1 * 0.5 ** (t // length))
        return [mean(found[s * length + length // 2 : (s + 1) * length]) for s in range(stages)]

    base, methods, ratio = by_stage(PSGD(via="sharded")), _methods(quick), {}
    for done, (name, strategy) in enumerate(methods.items()):
        tell(done, len(methods))
        ratio[name] = [a / b for a, b in zip(by_stage(strategy), base, strict=True)]
    over = {name: next((s for s in range(stages) if all(r < NEAR for r in values[s:])), stages)
            for name, values in ratio.items()}  # fmt: skip
    shown = sorted({0, stages // 3, 2 * stages // 3, stages - 1})
    return Result(
        title=f"error over that of PSGD, {n} workers with unequal data; the step size halves every {length:,} steps",
        heads=("method", *(f"stage {s + 1}" for s in shown), "transient"),
        rows=tuple(
            (name, *(f"{values[s]:.3g}" for s in shown),
             f"{over[name] * length:,}" if over[name] < stages else f">{stages * length:,}")
            for name, values in sorted(ratio.items(), key=lambda item: (over[item[0]], item[1][0]))
        ),
        checks=_checks(ratio, over),
        series=tuple(ResultSeries(name, tuple(((s + 1.0) * length, r) for s, r in enumerate(values)))
                     for name, values in ratio.items()),
        x_title="steps", y_title="error / error of PSGD", log_x=False, log_y=True,
        notes=(f"transient: steps until the ratio stays below {NEAR}",
               "least squares, 10 parameters, spread 1, noise 1, second half of each stage"),
    )  # fmt: skip


def _checks(ratio: dict[str, list[float]], over: dict[str, int]) -> tuple[Check, ...]:
    last = {name: values[-1] for name, values in ratio.items()}
    checks = [
        Check("static exponential is over its transient before the ring", over["static_exp"] < over["ring"]),
        Check("one-peer exponential is, too", over["one_peer_exp"] < over["ring"]),
        Check("one-peer starts farther from PSGD than static", ratio["one_peer_exp"][0] > ratio["static_exp"][0]),
        Check("global averaging every 16th step shortens the ring's", last["gossip_pga ring, H 16"] < last["ring"]),
        Check("static exponential ends within 15 % of PSGD", last["static_exp"] < 1.15),
    ]
    if "gradient_tracking ring" in ratio:
        checks += [
            Check("gradient tracking makes the ring usable", last["gradient_tracking ring"] < 0.5 * last["ring"]),
            Check("overlapping costs: a later transient or a larger error at the start",
                  ratio["static_exp, overlapped"][0] > ratio["static_exp"][0]),
        ]  # fmt: skip
    return tuple(checks)


REPRODUCTION = Reproduction(
    name="topologies",
    question="Which graphs reach PSGD's error, and after how many steps?",
    source="Ying, Yuan et al. 2021, arXiv:2110.13363; Chen, Yuan et al. 2021, arXiv:2105.09080",
    run=run,
)
