"""A policy, a cluster and a fabric -> FabricReport."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardwise.arrays import Ints
from shardwise.cost.network import Network
from shardwise.fabric.calls import PlacedMessage, calls_of
from shardwise.fabric.fold import bits_of
from shardwise.fabric.links import RoutedFabric, mixed
from shardwise.fabric.orders import Order, orders_of
from shardwise.fabric.price import PricedCall
from shardwise.fabric.step import StepLoad
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring, wired
from shardwise.plugins.collectives import collective
from shardwise.question.studies.fabric.loop import JointRun, looped
from shardwise.question.studies.fabric.phases import burst_of, phases_of
from shardwise.question.studies.fabric.series import SHOWN, LoadSeries, coarse, series_of
from shardwise.report.fabric_report import Bottleneck, CallLoad, FabricReport, LinkLoad, OrderLoad, TierLoad
from shardwise.report.tier import FLOW_LEVEL
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy
from shardwise.step.simulate import simulate
from shardwise.step.simulate.joint import JointStep
from shardwise.work.case import Case

MOST_BLOCKS = 16
MOST_LINKS = 200
"""rows of links with a load of their own; the busiest are kept"""


@dataclass(frozen=True)
class FabricStudy:
    """What else is asked about the same step is built on this."""

    report: FabricReport
    load: StepLoad
    loop: JointRun


def fabric_report(
    case: Case, policy: Policy, *, wiring: Wiring | None = None, fabric: RoutedFabric | None = None,
    named: Mapping[str, str] | None = None, told: Callable[[str], None] = lambda _: None,
) -> FabricStudy:  # fmt: skip
    """The policy must be legal. `fabric`: in place of the cluster's own tree; `named`: axis -> collective algorithm.
    `told`: in words, what is done next."""
    wiring = wiring or Wiring()
    cluster = wired(case.cluster, wiring)
    graph = fabric or tree_of(cluster, wiring)
    case = case.on(cluster)
    told(f"simulating a step on {policy.gpus:,} GPUs")
    found = simulate(case, policy)
    network = _adding(case.network, named or {})
    calls = calls_of(found.closed.work)
    _serves(calls, named or {})
    orders = orders_of(policy, graph, network, calls, named, told)
    load = orders[0].load
    told("running all traffic on the links at once")
    loop = looped(case, policy, found, load)
    joint = loop.joint
    first, count = _kinds_of_links(load)
    series = series_of(load, loop.demand, joint, first)
    report = FabricReport(
        tier=FLOW_LEVEL,
        model=case.model.name,
        cluster=cluster.name,
        gpus=policy.gpus,
        stack=case.stack.name,
        policy=policy,
        wiring=wiring,
        placement=_order(orders[0], orders[0].seconds),
        fits=bool(found.closed.fits[0]),
        step_s=loop.step_s,
        unshared_s=loop.unshared_s,
        simulated_s=found.step_s,
        closed_form_step_s=float(found.closed.times.step_s[0]),
        slowed_s=_slowed(joint),
        communication_s=load.communication_s(),
        closed_form_s=load.closed_form_s(),
        switches=_switches(graph, cluster),
        calls=_calls(load),
        links_total=len(graph.links),
        credits=cluster.has_credits,
        links=tuple(_link(load, series, link, n, loop.step_s) for link, n in zip(first, count, strict=True)),
        tiers=_tiers(load, series, loop.step_s),
        blocks=_blocks(graph)[1],
        matrix_bytes={axis: table.tolist() for axis, table in load.matrix(_blocks(graph)[0]).items()},
        crossing_bytes=load.crossings,
        bottleneck=_bottleneck(load, loop.step_s),
        bin_s=joint.step_s / SHOWN,
        burst=burst_of(load, series, joint.step_s),
        phases=phases_of(load, series, loop.simulation.program, joint, case.job.optimizer.rule.bound_by),
        orders=tuple(_order(order, orders[0].seconds) for order in orders),
        assumptions=tuple(_assumptions(graph, wiring, load, loop)),
    )
    return FabricStudy(report, load, loop)


def _adding(network: Network, named: Mapping[str, str]) -> Network:
    """A named algorithm in which the fabric's switches add turns that on where they can."""
    if not any(collective(name).reduces_at in ("network", "all") for name in named.values()):
        return network
    return replace(network, reducing=tuple(level.reduces for level in network.cluster.levels))


def _serves(calls: Sequence[PlacedMessage], named: Mapping[str, str]) -> None:
    for axis, name in named.items():
        ops = {call.op for call in calls if call.axis == axis}
        if not ops & set(collective(name).ops):
            sent = ", ".join(sorted(ops)) or "nothing"
            serves = ", ".join(collective(name).ops)
            raise ValueError(f"algorithm: {axis}={name} serves {serves}, but {axis} sends {sent} in this step")


def _slowed(joint: JointStep) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for (axis, by), seconds in sorted(joint.lost_s.items(), key=lambda item: -item[1]):
        found.setdefault(axis, {})[by] = seconds
    return found


def _order(order: Order, planned: float) -> OrderLoad:
    crossings = order.load.crossings.values()
    return OrderLoad(
        axes=" > ".join(axis for axis in order.axes if getattr(order.load.prices.seats.policy, axis) > 1) or "dp",
        deal=order.deal,
        ring=order.ring,
        communication_s=order.seconds,
        times_planned=order.seconds / planned if planned else 1.0,
        rail_bytes=sum(each["between rails"] for each in crossings),
        leaf_bytes=sum(each["between leaf groups"] for each in crossings),
    )


def _switches(graph: RoutedFabric, cluster: Cluster) -> dict[str, int]:
    found = {"nodes": len(np.unique(graph.node))}
    if isinstance(graph, Tree):
        for tier in graph.tiers:
            found[tier.name] = tier.built * -(-cluster.gpus // tier.block)
    return found


def _calls(load: StepLoad) -> tuple[CallLoad, ...]:
    """Calls of the same kind and nearly the same size are one row, with their mean."""
    groups: dict[tuple[str, str, str, int, float], list[PricedCall]] = {}
    for p in load.priced:
        key = (p.call.axis, p.call.op, p.algorithm, p.call.ranks, float(f"{p.call.bytes:.1e}"))
        groups.setdefault(key, []).append(p)
    rows = [_call(load, group) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: -row.seconds * row.times))


def _call(load: StepLoad, group: list[PricedCall]) -> CallLoad:
    often = np.array([p.call.count * p.share for p in group])

    def mean(values: list[float]) -> float:
        return float((often * np.array(values)).sum() / often.sum())

    one = max(group, key=lambda p: p.seconds)
    return CallLoad(
        axis=one.call.axis, op=one.call.op, algorithm=one.algorithm, ranks=one.call.ranks,
        bytes=mean([p.call.bytes for p in group]), times=float(often.sum()),
        seconds=mean([p.seconds for p in group]),
        least_s=mean([p.seconds - p.call.bytes * p.call.skew * _gap(load, p) for p in group]),
        closed_form_s=mean([p.closed_form_s for p in group]),
        bottleneck=load.prices.fabric.links.name_of(one.link) if one.link >= 0 else None,
    )  # fmt: skip


def _gap(load: StepLoad, p: PricedCall) -> float:
    lasts = load.prices.pattern(p.call, p.algorithm).duration
    return lasts.seconds - lasts.least


def _kinds_of_links(load: StepLoad) -> tuple[list[int], list[int]]:
    """(one of each, how many) of links that carry the same in a step, the fullest first."""
    links = load.prices.fabric.links
    key = mixed(links.tier, bits_of(links.capacity), *(bits_of(np.round(each)) for each in load.bytes.values()))
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    order = np.argsort(-load.busy_s[first], kind="stable")[:MOST_LINKS]
    return first[order].tolist(), count[order].tolist()


def _link(load: StepLoad, series: LoadSeries, link: int, count: int, step_s: float) -> LinkLoad:
    links = load.prices.fabric.links
    return LinkLoad(
        name=links.name_of(link), tier=links.tiers[links.tier[link]], count=count,
        bytes_per_s=float(links.capacity[link]), step_bytes=float(load.total[link]), axes_bytes=load.kinds_on(link),
        share=float(load.busy_s[link] / step_s), peak_share=series.peaks[link],
    )  # fmt: skip


def _tiers(load: StepLoad, series: LoadSeries, step_s: float) -> tuple[TierLoad, ...]:
    links, rows = load.prices.fabric.links, []
    for tier, name in enumerate(links.tiers):
        mine = links.tier == tier
        busiest = load.busiest(tier)
        if not mine.any() or busiest < 0:
            continue
        rows.append(TierLoad(
            tier=name, links=int(mine.sum()), bytes_per_s=float(links.capacity[busiest]),
            mean_share=float(load.total[mine].sum() / links.capacity[mine].sum() / step_s),
            busiest=_link(load, series, busiest, 1, step_s), series=coarse(series.links[tier]),
            mean_series=coarse(series.means[tier]),
        ))  # fmt: skip
    return tuple(rows)


def _blocks(graph: RoutedFabric) -> tuple[Ints, tuple[str, ...]]:
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
        f"{slowest.call.ranks:,} ranks ({slowest.algorithm})"
    )
    return Bottleneck(link=links.name_of(link), tier=links.tiers[links.tier[link]], axis=axis, share=share, why=why)


def _assumptions(graph: RoutedFabric, wiring: Wiring, load: StepLoad, loop: JointRun) -> list[str]:
    ways = {
        "spray": "packets spread evenly over all equal paths (adaptive routing at its best)",
        "ecmp": f"a hash picks the path of each of {wiring.connections} connections per pair (seed {wiring.seed})",
    }
    lines = [
        f"routing: {ways[wiring.routing]}",
        "rates: max-min fair over all traffic at each moment; latency and the bandwidth data reaches are the closed "
        "form's",
        f"step: event loop over its tasks, each in {loop.joint.turns} turns of communication and compute; the order of "
        "work, compute and overlap are the simulator's",
        "error of flow times against real transfers: 5 % rings, 15 % all-to-all, 25 % below 256 KB",
    ]
    if isinstance(graph, Tree) and graph.rails > 1:
        how = "over NVLink to the other rail's NIC first (PXN, as NCCL does)" if graph.forwards else "over a spine"
        joined = ", which joins no two rails" if wiring.rails == "only" else ""
        lines.insert(1, f"rails: NIC i of each node on rail i of {graph.rails}; between rails {how}{joined}")
    if isinstance(graph, Tree) and graph.cluster.through_host:
        lines.append("inside a node: no peer-to-peer in the stock driver; messages are copied through host memory")
    if loop.note:
        lines.append(loop.note)
    loose = [p for p in load.priced if not load.prices.pattern(p.call, p.algorithm).duration.exact]
    if loose:
        worst = max(_gap(load, p) / load.prices.pattern(p.call, p.algorithm).duration.seconds for p in loose)
        lines.append(f"{len(loose)} collectives have more different flows than the event loop takes: their time is an "
                     f"upper bound, at most {worst:.1%} too long")  # fmt: skip
    return lines
