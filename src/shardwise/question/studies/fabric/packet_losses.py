"""What a lost packet costs: some are made to be lost in the busiest collective, and what they hold up is counted.

A loss that later packets reveal costs a round trip and what is sent twice; that is simulated. One at the end of a
message is revealed by nothing but a time-out; how many are is arithmetic. A collective waits for the transfer with the
most losses.
"""

from math import exp, log, sqrt

import numpy as np
from msgspec.structs import replace

from shardwise.fabric.packet_fabric import Traffic, packet_run, reorder_of
from shardwise.fabric.packets import COMPILED, RETRANSMITS, Rules
from shardwise.fabric.price import PricedCall
from shardwise.report.packet_report import LossCost
from shardwise.spec.cluster import Cluster
from shardwise.spec.hardware import price_of

RATES = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
WANTED = 40
"""losses to learn from"""
MOST_LOSS = 0.01
SEEDS = 4 if COMPILED else 1
MANY = 100.0
"""losses of a transfer on average from which their spread is taken for normal"""


def losses_of(
    busiest: list[tuple[PricedCall, Traffic]], rules: Rules, cluster: Cluster, step_s: float
) -> tuple[LossCost, ...]:
    found = []
    for how in RETRANSMITS:
        each_s, lost = _each(busiest[0][1], replace(rules, retransmit=how))
        tail = 1 if how == "go-back-n" else reorder_of(rules, busiest[0][1])
        gained = {f"{rate:.0e}": sum(_gained(p, t, rules, rate, each_s, tail) for p, t in busiest) for rate in RATES}
        _, traffic = busiest[0]
        packets = float(np.mean(traffic.bytes)) / traffic.share / rules.payload
        found.append(LossCost(
            retransmit=how, lost=lost, each_s=each_s, tail_share=min(tail / max(packets, 1.0), 1.0),
            timeout_s=rules.timeout_s, step_s=gained, usd_per_day=_dollars(gained, cluster, step_s),
        ))  # fmt: skip
    return tuple(found)


def _each(traffic: Traffic, rules: Rules) -> tuple[float, int]:
    """(seconds that a loss holds up its transfer, losses it was learnt from)."""
    clean = packet_run(traffic, replace(rules, loss=0.0))
    packets = float(np.ceil(traffic.bytes / rules.payload).sum())
    rate = min(WANTED / (packets * traffic.hops), MOST_LOSS)
    late, counted, lost = 0.0, 0, 0
    for seed in range(SEEDS):
        run = packet_run(traffic, replace(rules, loss=rate), seed)
        lost += run.outcome.lost
        by_time = run.outcome.timeouts > 0
        struck = (run.outcome.struck > 0) & ~by_time
        late += float((run.outcome.done_s[struck] - clean.outcome.done_s[struck]).sum())
        counted += int(run.outcome.struck[struck].sum())
    return max(late, 0.0) / max(counted, 1), lost


def _gained(p: PricedCall, traffic: Traffic, rules: Rules, rate: float, each_s: float, tail: int) -> float:
    """Seconds that a step gains by losses in all calls of the kind."""
    hops, flows = traffic.hops, traffic.whole
    packets = max(float(np.mean(traffic.bytes)) / traffic.share / rules.payload, 1.0)
    shown = _most(rate * hops * packets, flows) * each_s
    ends = _most(rate * hops * min(tail, packets), flows) * rules.timeout_s
    return (shown + ends) * p.call.count * p.share


def _most(mean: float, flows: int) -> float:
    """Losses of the transfer with the most, where each has so many on average (Poisson)."""
    if mean > MANY:
        return mean + sqrt(2.0 * mean * log(max(flows, 2)))
    total, term, below = 0.0, exp(-mean), 0.0
    for count in range(1, 10_000):
        below += term
        some = 1.0 - min(below, 1.0) ** flows
        if some < 1e-12 and count > mean:
            break
        total += some
        term *= mean / count
    return total


def _dollars(gained: dict[str, float], cluster: Cluster, step_s: float) -> dict[str, float] | None:
    try:
        rent = price_of(cluster.gpu.name).on_demand[1]
    except ValueError:
        return None
    day = cluster.gpus * rent * 24.0
    return {rate: day * seconds / (step_s + seconds) for rate, seconds in gained.items()}
