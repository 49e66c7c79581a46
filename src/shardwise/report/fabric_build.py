"""A policy, a cluster and a fabric -> FabricReport."""

from dataclasses import dataclass

import numpy as np

from shardwise.cost.profile import Profile
from shardwise.estimate.closed_form import network_for
from shardwise.estimate.time import Times
from shardwise.fabric.calls import calls_of
from shardwise.fabric.links import Ints, Routed
from shardwise.fabric.orders import Order, orders_of
from shardwise.fabric.step import StepLoad
from shardwise.fabric.tree import Tree, tree_of
from shardwise.fabric.wiring import Wiring
from shardwise.report.fabric_phases import burst_of, phases_of
from shardwise.report.fabric_report import Bottleneck, CallLoad, FabricReport, LinkLoad, OrderLoad, TierLoad
from shardwise.report.fabric_series import SHOWN, Series, coarse, series_of
from shardwise.simulate import simulate
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.stack import Stack

MOST_BLOCKS = 16
MOST_LINKS = 200
"""rows of links with a load of their own; the busiest are kept"""


@dataclass(frozen=True)
class Studied:
    """What else is asked about the same step is built on this."""

    report: FabricReport
    load: StepLoad
    exposed: dict[str, float]
    """axis -> share of its collectives that the step waits for, by the closed form"""


def fabric_report(
    model: Model, cluster: Cluster, job: Job, policy: Policy, stack: Stack, *,
    wiring: Wiring | None = None, fabric: Routed | None = None, profile: Profile | None = None,
) -> Studied:  # fmt: skip
    """The policy must be legal. `fabric`: a graph from a file in place of the cluster's tree."""
    wiring = wiring or Wiring()
    graph = fabric or tree_of(cluster, wiring)
    found = simulate(model, cluster, job, policy, stack, profile=profile)
    timeline = found.timeline()
    network = network_for(cluster, found.closed.work.stack, profile)
    orders = orders_of(policy, graph, network, calls_of(found.closed.work))
    load = orders[0].load
    series = series_of(load, timeline)
    report = FabricReport(
        tier="flow level",
        model=model.name,
        cluster=cluster.name,
        gpus=policy.gpus,
        stack=stack.name,
        policy=policy,
        wiring=wiring,
        placement=_order(orders[0], orders[0].seconds),
        fits=bool(found.closed.fits[0]),
        step_s=timeline.step_s,
        communication_s=load.communication_s(),
        closed_form_s=load.closed_form_s(),
        switches=_switches(graph, cluster),
        calls=_calls(load),
        links_total=len(graph.links),
        links=_links(load, timeline.step_s),
        tiers=_tiers(load, series, timeline.step_s),
        blocks=_blocks(graph)[1],
        matrix_bytes={axis: table.tolist() for axis, table in load.matrix(_blocks(graph)[0]).items()},
        crossing_bytes=load.crossings(),
        bottleneck=_bottleneck(load, timeline.step_s),
        bin_s=timeline.step_s / SHOWN,
        burst=burst_of(load, series, timeline),
        phases=phases_of(load, series, timeline),
        orders=tuple(_order(order, orders[0].seconds) for order in orders),
        assumptions=tuple(_assumptions(graph, wiring)),
    )
    return Studied(report, load, _exposed(found.closed.times, load))


def _exposed(times: Times, load: StepLoad) -> dict[str, float]:
    found = {}
    for axis, seconds in load.communication_s().items():
        names = ("grad", "param", "fsdp") if axis == "dp" else (axis,)
        waits = sum(_first(times.parts[f"{name}_comm"]) for name in names)
        hides = sum(_first(times.hidden[name]) for name in names if name in times.hidden)
        # a pipeline's transfers have no hidden part of their own: what is not waited for hides
        whole = max(seconds, waits) if axis == "pp" else waits + hides
        found[axis] = waits / whole if whole > 0 else 1.0
    return found


def _first(values: object) -> float:
    return float(np.asarray(values, dtype=np.float64).reshape(-1)[0])


def _order(order: Order, planned: float) -> OrderLoad:
    crossings = order.load.crossings().values()
    return OrderLoad(
        axes=" > ".join(axis for axis in order.axes if getattr(order.load.prices.seats.policy, axis) > 1) or "dp",
        deal=order.deal,
        ring=order.ring,
        communication_s=order.seconds,
        times_planned=order.seconds / planned if planned else 1.0,
        rail_bytes=sum(each["between rails"] for each in crossings),
        leaf_bytes=sum(each["between leaf groups"] for each in crossings),
    )


def _switches(graph: Routed, cluster: Cluster) -> dict[str, int]:
    found = {"nodes": len(np.unique(graph.node))}
    if isinstance(graph, Tree):
        for tier in graph.tiers:
            found[tier.name] = tier.built * -(-cluster.gpus // tier.block)
    return found


def _calls(load: StepLoad) -> tuple[CallLoad, ...]:
    """Calls of the same kind and size are one row."""
    rows: dict[tuple[str, str, str, int, float], CallLoad] = {}
    name_of = load.prices.fabric.links.name_of
    for p in load.priced:
        key = (p.call.axis, p.call.op, p.algorithm, p.call.size, round(p.call.bytes))
        before = rows.get(key)
        rows[key] = CallLoad(
            axis=p.call.axis, op=p.call.op, algorithm=p.algorithm, ranks=p.call.size, bytes=p.call.bytes,
            times=p.call.times + (before.times if before else 0.0), seconds=p.seconds, closed_form_s=p.closed_form_s,
            bottleneck=name_of(p.link) if p.link >= 0 else None,
        )  # fmt: skip
    return tuple(sorted(rows.values(), key=lambda row: -row.seconds * row.times))


def _links(load: StepLoad, step_s: float) -> tuple[LinkLoad, ...]:
    links = load.prices.fabric.links
    axes = list(load.bytes)
    table = np.stack([load.bytes[axis] for axis in axes], axis=1) if axes else np.zeros((len(links), 0))
    rounded = np.array([[float(f"{value:.4g}") for value in row] for row in table]) if len(links) < 20_000 else table
    key = np.column_stack([links.tier, links.capacity, rounded])
    _, first, count = np.unique(key, axis=0, return_index=True, return_counts=True)
    order = np.argsort(-load.busy_s[first], kind="stable")[:MOST_LINKS]
    return tuple(_link(load, int(first[i]), int(count[i]), step_s) for i in order)


def _link(load: StepLoad, link: int, count: int, step_s: float, peak: float | None = None) -> LinkLoad:
    links = load.prices.fabric.links
    return LinkLoad(
        name=links.name_of(link), tier=links.tiers[links.tier[link]], count=count,
        bytes_per_s=float(links.capacity[link]), step_bytes=float(load.total[link]), axes_bytes=load.kinds_on(link),
        share=float(load.busy_s[link] / step_s), peak_share=peak,
    )  # fmt: skip


def _tiers(load: StepLoad, series: Series, step_s: float) -> tuple[TierLoad, ...]:
    links, rows = load.prices.fabric.links, []
    for tier, name in enumerate(links.tiers):
        mine = links.tier == tier
        busiest = load.busiest(tier)
        if not mine.any() or busiest < 0:
            continue
        shares = series.links[tier]
        rows.append(TierLoad(
            tier=name, links=int(mine.sum()), bytes_per_s=float(links.capacity[busiest]),
            mean_share=float(load.total[mine].sum() / links.capacity[mine].sum() / step_s),
            busiest=_link(load, busiest, 1, step_s, float(shares.max())), series=coarse(shares),
            mean_series=coarse(series.means[tier]),
            waiting_s=float(np.maximum(shares - 1.0, 0.0).sum() * series.bin_s),
        ))  # fmt: skip
    return tuple(rows)


def _blocks(graph: Routed) -> tuple[Ints, tuple[str, ...]]:
    """Block of each GPU and the blocks' names: nodes, or as many neighbouring nodes as fit the page."""
    nodes = int(graph.node.max()) + 1
    each = -(-nodes // MOST_BLOCKS)
    count = -(-nodes // each)
    last = [min((i + 1) * each, nodes) - 1 for i in range(count)]
    return graph.node // each, tuple(
        f"node {i * each}" if each == 1 else f"nodes {i * each}-{last[i]}" for i in range(count)
    )


def _bottleneck(load: StepLoad, step_s: float) -> Bottleneck | None:
    link = load.busiest()
    if link < 0:
        return None
    links, kinds = load.prices.fabric.links, load.kinds_on(link)
    axis = next(iter(kinds))
    share = float(load.busy_s[link] / step_s)
    slowest = max((p for p in load.priced if p.call.axis == axis), key=lambda p: p.step_s)
    why = (
        f"{axis} sends {kinds[axis] / load.total[link]:.0%} of its bytes, most by {slowest.call.op} over "
        f"{slowest.call.size:,} ranks ({slowest.algorithm})"
    )
    return Bottleneck(link=links.name_of(link), tier=links.tiers[links.tier[link]], axis=axis, share=share, why=why)


def _assumptions(graph: Routed, wiring: Wiring) -> list[str]:
    ways = {
        "spray": "packets spread evenly over all equal ways (adaptive routing at its best)",
        "ecmp": f"a hash picks the way of each of {wiring.connections} connections per pair (seed {wiring.seed})",
    }
    lines = [
        f"routing: {ways[wiring.routing]}",
        "rates: max-min fair; latency and the bandwidth data reaches are the closed form's",
        "collectives of different axes are priced alone; the load over time adds them up where they overlap",
        "stages are averaged: embedding and head weigh on all alike",
        "step time and timeline: the simulator's, with the axes in the order tp, cp, dp, pp",
    ]
    if isinstance(graph, Tree) and graph.rails > 1:
        how = "no spine joins two rails" if wiring.rails == "only" else "spines join the rails"
        lines.insert(1, f"rails: card i of each node on rail i of {graph.rails}; {how}")
    return lines
