"""The other direction: the same job on many fabrics, and the cheapest on which it is nearly as fast as on the best.

Fabrics are compared in dollars for each GPU (cards, switch ports, optics, NVLink domain) and in port ends of 400 Gb/s.
A policy that is best on one fabric may be bad on another, so the planner is asked again where fabrics differ most: on
the fastest and on the thinnest of each NVLink domain; every fabric then takes the best of those and of the job's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from msgspec.structs import replace

from shardwise.fabric.calls import PlacedMessage, calls_of
from shardwise.fabric.demand import demand_of
from shardwise.fabric.orders import axis_orders
from shardwise.fabric.part_prices import PartPrices, bill_of
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices, Quotes
from shardwise.fabric.step import StepLoad, step_load
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring
from shardwise.plan import scan
from shardwise.report.fabric_report import FabricOption
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import legal
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.mfu import headline
from shardwise.step.simulate import simulate
from shardwise.step.simulate.joint import joint_step
from shardwise.work.case import Case

PORT = 400e9 / 8
CARDS = (100e9 / 8, 200e9 / 8, 400e9 / 8, 800e9 / 8)
THINNER = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class FabricQuestion:
    case: Case
    policy: Policy
    prices: PartPrices
    keep_policy: bool = False


@dataclass(frozen=True)
class _PolicyCost:
    """A policy on the 1:1 fabric of a domain and a card."""

    policy: Policy
    step_s: float
    calls: list[PlacedMessage]
    collectives_s: float


def fabrics_of(ask: FabricQuestion) -> Iterator[FabricOption]:
    """Every fabric tried, with `below_best` still 0; see `ranked`."""
    flops = headline(ask.case.model, ask.case.job.seq)
    peak = ask.case.cluster.gpu.peak(ask.case.job.precision.compute)
    for domain in _domains(ask):
        policies = _policies(ask, domain)
        for card in CARDS:
            cluster = built(ask.case.cluster, card, 1.0, domain)
            plans = [_planned(ask, cluster, policy) for policy in policies if _legal(ask, cluster, policy)]
            for rails in _rails(cluster) if plans else ():
                for thinner in THINNER if len(cluster.levels) > 2 else THINNER[:1]:
                    thin, wiring = built(ask.case.cluster, card, thinner, domain), Wiring(rails=rails)
                    steps = [(_step(ask, thin, wiring, plan), number) for number, plan in enumerate(plans)]
                    step, best = min(steps)
                    rate = ask.case.job.step_tokens / step / ask.policy.gpus
                    tree = tree_of(thin, wiring)
                    bill = bill_of(tree, ask.prices)
                    yield FabricOption(
                        card_bytes_per_s=card, oversubscription=thinner, rails=rails, domain_gpus=domain,
                        ports_per_gpu=ports_per_gpu(tree), usd_per_gpu=bill.total, bill=bill,
                        policy=plans[best].policy, step_s=step, mfu=flops.utilization(rate, peak), below_best=0.0,
                    )  # fmt: skip


def ranked(found: list[FabricOption]) -> list[FabricOption]:
    """The cheapest first, each with what it loses to the best."""
    best = max(each.mfu for each in found)
    rows = [replace(each, below_best=1.0 - each.mfu / best) for each in found]
    return sorted(rows, key=lambda each: (each.usd_per_gpu, each.below_best))


def cheapest(rows: list[FabricOption], within: float) -> list[FabricOption]:
    """For each NVLink domain the first that loses no more than this share, the cheapest of all first."""
    chosen: dict[int, FabricOption] = {}
    for each in rows:
        if each.below_best <= within:
            chosen.setdefault(each.domain_gpus, each)
    return list(chosen.values())


def checked(ask: FabricQuestion, each: FabricOption) -> FabricOption:
    """With the step the joint loop gives on that fabric."""
    cluster = built(ask.case.cluster, each.card_bytes_per_s, each.oversubscription, each.domain_gpus)
    found = simulate(ask.case.on(cluster), each.policy)
    loads = _loads(ask, cluster, Wiring(rails=each.rails), each.policy, calls_of(found.closed.work))
    load = min(loads, key=lambda load: sum(load.communication_s().values()))
    return replace(each, joint_step_s=joint_step(found, demand_of(load)).step_s)


def built(cluster: Cluster, card: float, oversubscription: float, domain: int) -> Cluster:
    """The cluster with other cards, thinner upper levels and another NVLink domain; units keep their GPUs."""
    node, *network = cluster.levels
    levels = [replace(node, degree=domain)]
    for place, level in enumerate(network):
        degree = ceil(level.degree * node.degree / domain) if place == 0 else level.degree
        thin = oversubscription if place > 0 else 1.0
        rails = min(level.rails, domain)
        levels.append(replace(level, degree=degree, bandwidth=card, oversubscription=thin, rails=rails))
    return replace(cluster, levels=tuple(levels))


def ports_per_gpu(tree: Tree) -> float:
    """Port ends of 400 Gb/s for each GPU; an up and a down link are one cable."""
    outside = tree.links.level > 0
    return float(tree.links.capacity[outside].sum() / PORT / tree.gpus)


def _domains(ask: FabricQuestion) -> list[int]:
    """The cluster's own, and half and double of it where tensor parallelism still fits inside."""
    own = ask.case.cluster.levels[0].degree
    least = max(ask.policy.tp, 2) if ask.keep_policy else 2
    return [d for d in (own // 2, own, own * 2) if least <= d < ask.policy.gpus]


def _policies(ask: FabricQuestion, domain: int) -> list[Policy]:
    """The job's own, and the planner's best where fabrics of this domain differ most."""
    found = [ask.policy]
    if ask.keep_policy:
        return found
    for card, thinner in ((CARDS[-1], THINNER[0]), (CARDS[0], THINNER[-1])):
        cluster = built(ask.case.cluster, card, thinner, domain)
        best = scan(ask.case.on(cluster), top=1).recommended
        found += [best.policy] if best is not None and best.policy not in found else []
    return found


def _legal(ask: FabricQuestion, cluster: Cluster, policy: Policy) -> bool:
    return bool(legal(ask.case.model, cluster, ask.case.job, Policies.of([policy]))[0])


def _planned(ask: FabricQuestion, cluster: Cluster, policy: Policy) -> _PolicyCost:
    case = ask.case.on(cluster)
    found = estimate(case, Policies.of([policy]), every_stage=True)
    calls = calls_of(found.work)
    return _PolicyCost(policy, float(found.times.step_s[0]), calls, _collectives(ask, cluster, Wiring(), policy, calls))


def _step(ask: FabricQuestion, thin: Cluster, wiring: Wiring, plan: _PolicyCost) -> float:
    now = _collectives(ask, thin, wiring, plan.policy, plan.calls)
    return plan.step_s + max(now - plan.collectives_s, 0.0)


def _rails(cluster: Cluster) -> tuple[str, ...]:
    return ("optimised", "only") if cluster.levels[1].rails > 1 else ("none",)


def _collectives(
    ask: FabricQuestion, cluster: Cluster, wiring: Wiring, policy: Policy, calls: list[PlacedMessage]
) -> float:
    """Seconds of a step's collectives under the best order of axes."""
    return min(sum(load.communication_s().values()) for load in _loads(ask, cluster, wiring, policy, calls))


def _loads(
    ask: FabricQuestion, cluster: Cluster, wiring: Wiring, policy: Policy, calls: list[PlacedMessage]
) -> list[StepLoad]:
    tree, network = tree_of(cluster, wiring), ask.case.on(cluster).network
    quotes: Quotes = {}
    return [step_load(Prices(tree, network, seats_of(policy, tree, order=axes), quotes), calls)
            for axes in axis_orders(policy)]  # fmt: skip
