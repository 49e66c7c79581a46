"""The busiest collectives of a step as packets: queues, pauses, tails, what to set on switches, what losses cost."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Ints
from shardwise.fabric.packet_fabric import PacketRun, Traffic, network_of, packet_run, reorder_of, traffic_of
from shardwise.fabric.packets import COMPILED, Rules
from shardwise.fabric.price import PricedCall
from shardwise.fabric.requirement import card_rate
from shardwise.fabric.step import StepLoad
from shardwise.question.studies.fabric.packet_losses import losses_of
from shardwise.question.studies.fabric.packet_rules import advice_of
from shardwise.report.packet_report import HotPort, PacketCall, PacketReport, PauseEdge
from shardwise.spec.cluster import Cluster
from shardwise.units import time_text

BUDGET = 120_000
"""packets x links of one run: twice as many events and some acknowledgements"""
INTERPRETED_BUDGET = 3_000
"""without numba, where an event takes a hundred times as long"""
NOTHING_OUTSIDE = (
    "packets: no collective of this step sends messages between nodes; write a policy or a cluster of several nodes "
    "whose collectives leave them"
)
MOST_CALLS = 3
MOST_EDGES = 12
MOST_SEEDS = 64


@dataclass(frozen=True)
class PacketAsk:
    rules: Rules
    seeds: int = 5
    told: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"draws: {self.seeds} is out of range; write 1 to {MOST_SEEDS}")

    @property
    def budget(self) -> int:
        return BUDGET if COMPILED else INTERPRETED_BUDGET


def packet_report(load: StepLoad, cluster: Cluster, ask: PacketAsk, step_s: float) -> PacketReport:
    busiest = busiest_calls(load, ask)
    if not busiest:
        raise ValueError(NOTHING_OUTSIDE)
    calls = []
    for p, _ in busiest:
        ask.told(f"packets of {p.call.op} over {p.call.ranks} ranks, {ask.seeds} seeds")
        calls.append(_call(load, p, ask))
    ask.told("packets that are lost")
    wiring = load.prices.fabric.wiring  # type: ignore[attr-defined]
    often = [c.times * p.share for c, (p, _) in zip(calls, busiest, strict=True)]
    growth = sum((c.packet_level_s - c.flow_level_s) * n for c, n in zip(calls, often, strict=True))
    most = sum((c.packet_level_most_s - c.flow_level_s) * n for c, n in zip(calls, often, strict=True))
    return PacketReport(
        link_layer=cluster.link_layer or "ethernet", rules=ask.rules, routing=wiring.routing, hashes=wiring.hashes,
        seeds=ask.seeds, engine="compiled" if COMPILED else "interpreted", events=sum(c.events for c in calls),
        calls=tuple(calls), step_growth_s=growth, step_growth_most_s=most,
        advice=advice_of(network_of(busiest[0][1].fabric), ask.rules, card_rate(load), sum(c.drops for c in calls)),
        losses=losses_of(busiest, ask.rules, cluster, step_s), notes=tuple(_notes(cluster, ask, calls, busiest[0][1])),
    )  # fmt: skip


def busiest_calls(load: StepLoad, ask: PacketAsk) -> list[tuple[PricedCall, Traffic]]:
    """One of each operation and group, those first that take most of a step."""
    found: dict[tuple[str, int], tuple[PricedCall, Traffic]] = {}
    for p in sorted(load.priced, key=lambda p: -p.step_s):
        key = (p.call.op, p.call.ranks)
        if key in found or p.link < 0 or len(found) == MOST_CALLS:
            continue
        traffic = traffic_of(load.prices, p.call, p.algorithm, ask.rules, ask.budget)
        if traffic is not None:
            found[key] = (p, traffic)
    return list(found.values())


def _call(load: StepLoad, p: PricedCall, ask: PacketAsk) -> PacketCall:
    runs: list[PacketRun] = []
    traffics: list[Traffic] = []
    for seed in range(ask.seeds):
        traffic = traffic_of(load.prices, p.call, p.algorithm, ask.rules, ask.budget, seed)
        assert traffic is not None
        traffics.append(traffic)
        runs.append(packet_run(traffic, ask.rules, seed))
    slower = [run.times for run in runs]
    ends = np.concatenate([run.outcome.done_s for run in runs])
    ends = ends[np.isfinite(ends)]
    p50, p99, p999 = (float(np.quantile(ends, q)) for q in (0.5, 0.99, 0.999))
    worst = int(np.argmax([run.outcome.deepest_bytes[_switch_ports(t, run)].max(initial=0)
                           for run, t in zip(runs, traffics, strict=True)]))  # fmt: skip
    used, there = _ways(traffics[0], runs[0])
    first, middle = traffics[0], float(np.median(slower))
    lost = max(float(np.median([run.outcome.seconds - run.flow_s for run in runs])), 0.0)
    total: Callable[[str], int] = lambda name: int(sum(getattr(run.outcome, name).sum() for run in runs))  # noqa: E731
    return PacketCall(
        axis=p.call.axis, op=p.call.op, algorithm=p.algorithm, ranks=p.call.ranks, bytes=p.call.bytes,
        times=p.call.count,
        flow_level_s=p.seconds, messages=len(first.bytes), all_messages=first.whole, followed_share=first.share,
        slower=middle, slower_worst=max(slower),
        packet_level_s=p.seconds + lost,
        packet_level_most_s=p.latency_s + max(middle, 1.0) * (p.seconds - p.latency_s),
        transfer_p50_s=p50, transfer_p99_s=p99, transfer_p999_s=p999,
        rates_s=float(np.median([run.flow_s for run in runs])),
        hottest=_hottest(traffics[worst], runs[worst], ask.rules), drops=total("drops"), marks=total("marks"),
        notifications=sum(run.outcome.notifications for run in runs), pauses=total("pauses"),
        paused_s=sum(float(run.outcome.paused_s.sum()) for run in runs) / len(runs), resent=total("resent"),
        timeouts=total("timeouts"),
        headroom_used_bytes=float(max(int(run.outcome.headroom_bytes.max(initial=0)) for run in runs)),
        ways_used=used, ways_there=there, pause_tree=_tree(traffics, runs), events=sum(r.outcome.events for r in runs),
    )  # fmt: skip


def _switch_ports(traffic: Traffic, run: PacketRun) -> Ints:
    """Queues are those of switches: what waits in a card waits in its host's memory."""
    used = run.outcome.used
    return used[network_of(traffic.fabric).source[used] >= 0]


def _hottest(traffic: Traffic, run: PacketRun, rules: Rules) -> HotPort:
    ports, outcome = _switch_ports(traffic, run), run.outcome
    link = int(ports[np.argmax(outcome.deepest_bytes[ports])])
    limit = {"pfc": None, "credits": None}.get(rules.layer, _alone(rules))
    return HotPort(
        link=traffic.fabric.links.name_of(link), deepest_bytes=float(outcome.deepest_bytes[link]), bin_s=outcome.bin_s,
        queue_bytes=tuple(outcome.queue(link).tolist()),
        mark_low_bytes=rules.mark_low_bytes or None, limit_bytes=limit,
    )  # fmt: skip


def _alone(rules: Rules) -> float:
    return rules.buffer_bytes * (rules.threshold / (1.0 + rules.threshold) if rules.threshold else 1.0)


def _ways(traffic: Traffic, run: PacketRun) -> tuple[int, int]:
    """(links above the leaves that carried anything, those from the same switches that could have)."""
    fabric = traffic.fabric
    network = network_of(fabric)
    upward = (network.source >= 0) & (network.target >= 0) & (fabric.links.level > 0)
    carried = upward & (run.outcome.sent_bytes > 0)
    switches = np.unique(network.source[carried])
    return int(carried.sum()), int((upward & np.isin(network.source, switches)).sum())


def _tree(traffics: list[Traffic], runs: list[PacketRun]) -> tuple[PauseEdge, ...]:
    """Who stopped whom, the most often first."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for traffic, run in zip(traffics, runs, strict=True):
        name = traffic.fabric.links.name_of
        log, at = run.outcome.pause_log, run.outcome.pause_at_s
        pairs, where, count = np.unique(log, axis=0, return_index=True, return_counts=True)
        for (paused, by), first, times in zip(pairs.tolist(), at[where].tolist(), count.tolist(), strict=True):
            key = (name(paused), name(by))
            before = found.get(key, (0, first))
            found[key] = (before[0] + times, min(before[1], first))
    rows = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:MOST_EDGES]
    return tuple(PauseEdge(paused=a, by=b, times=n, first_s=at) for (a, b), (n, at) in rows)


def _notes(cluster: Cluster, ask: PacketAsk, calls: list[PacketCall], first: Traffic) -> list[str]:
    found = []
    if not cluster.link_layer:
        found.append(f"{cluster.name} does not name its network: Ethernet with RoCE assumed; write link_layer "
                     "in its file, or --flow-control")  # fmt: skip
    if ask.rules.layer == "credits":
        found.append(
            "a fabric with credits sends only as much as the next switch has room for: no pauses, drops or marks to set"
        )
    if (last := reorder_of(ask.rules, first)) > 1:
        found.append(
            f"selective on {first.ways} paths: one of the last {last} packets of a transfer is missed only by the "
            f"time-out of {time_text(ask.rules.timeout_s)}, which is most of what losses cost there; NICs that tell "
            "losses by time do not wait for it"
        )
    cut = [c for c in calls if c.followed_share < 1.0]
    if cut:
        least = min(c.followed_share for c in cut)
        found.append(
            f"of each message the first part is followed ({least:.2%} at least), rates are asked about the same"
        )
    if any(c.messages < c.all_messages for c in calls):
        found.append("of collectives with very many messages some groups or ranks are followed")
    if not COMPILED:
        found.append("interpreted: pip install 'shardwise[packets]' follows twenty times as many packets in less time")
    if ask.rules.retransmit == "go-back-n" and any(c.resent for c in calls) and not any(c.drops for c in calls):
        found.append("packets that overtake one another count as lost with go-back-n; sprayed ones need selective")
    return found
