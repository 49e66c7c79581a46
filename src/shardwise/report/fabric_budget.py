"""The other direction: the same job on many fabrics, and the cheapest on which it is nearly as fast as on the best.

What a fabric costs is counted in port ends of 400 Gb/s per GPU: a cable between two switches has two, one between a
card and its leaf has two as well. NVLink is not in that count: domains of different size are told apart, not weighed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from shardwise.cost.profile import Profile
from shardwise.estimate.closed_form import estimate, network_for
from shardwise.estimate.mfu import conventions
from shardwise.fabric.calls import Call, calls_of
from shardwise.fabric.orders import axis_orders
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices, Quotes
from shardwise.fabric.step import step_load
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import Stack

PORT = 400e9 / 8
CARDS = (100e9 / 8, 200e9 / 8, 400e9 / 8, 800e9 / 8)
THINNER = (1.0, 2.0, 4.0, 8.0)


class Candidate(Struct, frozen=True, kw_only=True):
    card_bytes_per_s: float
    oversubscription: float
    """of every level above the leaves"""
    rails: str
    domain_gpus: int
    ports_per_gpu: float
    step_s: float
    mfu: float
    below_best: float
    """share of the best MFU that is lost"""


@dataclass(frozen=True)
class Case:
    model: Model
    cluster: Cluster
    job: Job
    policy: Policy
    stack: Stack
    profile: Profile | None


def fabrics_of(ask: Case) -> Iterator[Candidate]:
    """Every fabric tried, with `below_best` still 0; see `ranked`."""
    flops = next(c for c in conventions(ask.model, ask.job.seq) if c.key == "full_square")
    peak = ask.cluster.gpu.peak(ask.job.precision.compute)
    for domain in _domains(ask):
        for card in CARDS:
            cluster = built(ask.cluster, card, 1.0, domain)
            found = estimate(ask.model, cluster, ask.job, Policies.of([ask.policy]), ask.stack, every_stage=True,
                             profile=ask.profile)  # fmt: skip
            plain = float(found.times.step_s[0])
            calls = calls_of(found.work)
            best = _collectives(ask, cluster, Wiring(), calls)
            for rails in _rails(cluster):
                for thinner in THINNER if len(cluster.levels) > 2 else THINNER[:1]:
                    thin, wiring = built(ask.cluster, card, thinner, domain), Wiring(rails=rails)
                    step = plain + max(_collectives(ask, thin, wiring, calls) - best, 0.0)
                    rate = ask.job.step_tokens / step / ask.policy.gpus
                    yield Candidate(
                        card_bytes_per_s=card, oversubscription=thinner, rails=rails, domain_gpus=domain,
                        ports_per_gpu=ports_per_gpu(tree_of(thin, wiring)), step_s=step,
                        mfu=flops.utilization(rate, peak), below_best=0.0,
                    )  # fmt: skip


def ranked(found: list[Candidate]) -> list[Candidate]:
    """The cheapest first, each with what it loses to the best."""
    best = max(each.mfu for each in found)
    rows = [replace(each, below_best=1.0 - each.mfu / best) for each in found]
    return sorted(rows, key=lambda each: (each.ports_per_gpu, each.below_best))


def cheapest(rows: list[Candidate], within: float) -> list[Candidate]:
    """For each NVLink domain the first that loses no more than this share."""
    chosen: dict[int, Candidate] = {}
    for each in rows:
        if each.below_best <= within:
            chosen.setdefault(each.domain_gpus, each)
    return list(chosen.values())


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


def _domains(ask: Case) -> list[int]:
    """The cluster's own, and half and double of it where tensor parallelism still fits inside."""
    own = ask.cluster.levels[0].degree
    return [d for d in (own // 2, own, own * 2) if d >= max(ask.policy.tp, 2) and d < ask.policy.gpus]


def _rails(cluster: Cluster) -> tuple[str, ...]:
    return ("optimised", "only") if cluster.levels[1].rails > 1 else ("none",)


def _collectives(ask: Case, cluster: Cluster, wiring: Wiring, calls: list[Call]) -> float:
    """Seconds of a step's collectives under the best order of axes."""
    tree, network = tree_of(cluster, wiring), network_for(cluster, ask.stack, ask.profile)
    found = []
    quotes: Quotes = {}
    for axes in axis_orders(ask.policy):
        load = step_load(Prices(tree, network, seats_of(ask.policy, tree, order=axes), quotes), calls)
        found.append(sum(load.communication_s().values()))
    return min(found)
