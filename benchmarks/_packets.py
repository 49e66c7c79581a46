"""What the packet engine claims, measured: events a processor second, distance to fluid rates, distance to the lab."""

import time
from typing import Any

import numpy as np

from shardwise.fabric import tree_of
from shardwise.fabric.calls import calls_of
from shardwise.fabric.packet_fabric import network_of, packet_fabric, packet_run, traffic_of
from shardwise.fabric.packet_rules import fitted, usual_rules
from shardwise.fabric.packets import COMPILED, PacketNetwork, PacketTransfers, Rules, simulated
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.requirement import card_rate
from shardwise.fabric.step import StepLoad, step_load
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of, driven_network
from shardwise_lab.demos import demo_named
from shardwise_lab.demos._contract import Setting
from shardwise_lab.facts import DemoResult, LabComparison

QUIET = (
    ("llama-3-8b", "dgx-h100:64", Policy(tp=4, pp=2, dp=8)),
    ("llama-3-8b", "dgx-h100:64", Policy(dp=64, zero=3)),
    ("mixtral-8x7b", "dgx-h100:64", Policy(tp=2, dp=32, ep=16)),
    ("llama-3-8b", "hgx-h100-roce:128", Policy(tp=8, dp=16)),
    ("llama-3-8b", "dgx-h100:512", Policy(tp=8, pp=4, dp=16, vpp=2, schedule="interleaved")),
    ("llama-3-8b", "ethernet-100g-a100:64", Policy(dp=64, zero=3)),
)
"""sprayed over fabrics on which nothing meets but neighbours"""
BUDGET = 60_000 if COMPILED else 8_000


def load_of(model: str, on: str, policy: Policy) -> StepLoad:
    cluster, stack = cluster_of(on), stack_of("megatron-core")
    case = case_of(model_of(model), cluster, Job(seq=4096, global_batch=512), stack)
    work = estimate(case, Policies.of([policy]), every_stage=True).work
    tree = tree_of(cluster)
    return step_load(Prices(tree, driven_network(cluster, stack), seats_of(policy, tree)), calls_of(work))


def flow_gap() -> dict[str, Any]:
    """The most that packets differ from max-min rates of the same bytes where nothing is congested."""
    worst, points = 0.0, 0
    for model, on, policy in QUIET:
        load = load_of(model, on, policy)
        network = network_of(packet_fabric(load.prices.fabric, 0))
        rules = fitted(usual_rules(cluster_of(on)), network, card_rate(load))
        seen = set()
        for p in load.priced:
            key = (p.call.op, p.call.ranks, p.call.group, p.algorithm)
            traffic = None if key in seen else traffic_of(load.prices, p.call, p.algorithm, rules, BUDGET)
            seen.add(key)
            if traffic is None:
                continue
            gap = abs(packet_run(traffic, rules).times - 1.0)
            points, worst = points + 1, max(worst, gap)
    return {"packet_flow_gap": worst, "packet_flow_points": points}


def speed() -> dict[str, Any]:
    """Events of a busy all-to-all on one switch: queues, marks, pauses and notifications."""
    ranks, size = 32, 400e3 if COMPILED else 40e3
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    links = np.array([[a, ranks + b] for a, b in pairs]).ravel()
    ends = [np.repeat([-1, 0], ranks), np.repeat([0, -1], ranks)]
    network = PacketNetwork(np.full(2 * ranks, 50e9), np.full(2 * ranks, 1e-6), ends[0], ends[1], 50e9)
    count = len(pairs)
    asked = PacketTransfers(
        np.full(count, size), np.arange(count), np.ones(count, dtype=np.int64), links, np.arange(count + 1) * 2
    )
    rules = Rules(headroom_bytes=120e3, mark_low_bytes=100e3, mark_high_bytes=400e3, buffer_bytes=8e6)
    simulated(network, asked, rules)  # compiles
    best = 0.0
    for seed in range(3):
        start = time.process_time()
        found = simulated(network, asked, rules, seed)
        best = max(best, found.events / (time.process_time() - start))
    return {"packet_events_per_cpu_s": best, "packet_engine": "compiled" if COMPILED else "interpreted"}


PLAYED = ("incast", "ecn", "ecmp")
"""demonstrations whose queues and times packets predict"""


def told(played: DemoResult) -> list[LabComparison]:
    """What a demonstration measured beside what packets say."""
    shown = [c for c in played.comparisons if c.predicted is not None and c.unit in ("s", "bytes", "share")]
    for c in shown:
        assert c.predicted is not None
        error = c.predicted / c.measured - 1.0
        print(f"  {played.demo:7} {c.what:60} {c.measured:12.4g} packets {c.predicted:12.4g}  {error:+7.1%}")
    return shown


def played() -> list[DemoResult]:
    found = []
    for name in PLAYED:
        try:
            found.append(demo_named(name).played(Setting(realtime=True)))
        except ValueError as error:
            print(f"{name}: {error}")
    return found


def demos(results: list[DemoResult]) -> dict[str, Any]:
    """Queue and completion of the demonstrations that packets are held against, and whether their order is right."""
    errors, ordered = [], True
    here = {result.demo: result for result in results if result.demo in PLAYED}
    for name, result in here.items():
        rows = told(result)
        errors += [abs((c.predicted or 0.0) / c.measured - 1.0) for c in rows]
        ordered &= _ordered(rows, 1 if name == "ecmp" else 2)
    found = {"packet_demo_error_max": max(errors, default=None), "packet_demo_points": len(errors)}
    return found | {"packet_demo_ordered": ordered, "packet_demo_missing": [n for n in PLAYED if n not in here]}


def _ordered(rows: list[LabComparison], kinds: int) -> bool:
    """Of each kind (time, queue): whatever was measured to be clearly longer is also predicted to be."""
    for kind in range(kinds):
        mine = rows[kind::kinds]
        for one in mine:
            for other in mine:
                clearly = one.measured > 1.1 * other.measured
                if clearly and not (one.predicted or 0.0) > (other.predicted or 0.0):
                    return False
    return True


def measure() -> dict[str, Any]:
    return speed() | flow_gap() | demos(played())
