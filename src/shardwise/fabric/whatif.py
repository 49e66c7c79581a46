"""What if: the same step on a fabric with one thing changed, each correction under its own name.

Three are factors on top of fluid rates: headers, and what a short simulation of packets finds for each collective; the
others change links, ways or who else is there, and price every collective again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace as changed
from numpy.typing import NDArray

from shardwise.fabric.broken import Fabric, slowed, with_capacity, without
from shardwise.fabric.calls import PlacedMessage
from shardwise.fabric.graph import Graph
from shardwise.fabric.links import RoutedFabric
from shardwise.fabric.packet_fabric import network_of, packet_fabric, packet_run, traffic_of
from shardwise.fabric.packet_rules import fitted, usual_rules
from shardwise.fabric.packets import Rules
from shardwise.fabric.packets.ask import ROCE_HEADER
from shardwise.fabric.place import Seats
from shardwise.fabric.price import Prices
from shardwise.fabric.requirement import card_rate
from shardwise.fabric.step import StepLoad, step_load
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.twins import on_double
from shardwise.fabric.wiring import Wiring

WIRE = (4096 + ROCE_HEADER) / 4096
PACKET_BUDGET = 8_000
"""packets x links of one simulation: half a second where it is interpreted"""
SLOW = 0.25
SEEDS = 8
MOST_FLOWS = 300_000
"""messages x connections of a call from which hashing is not tried"""


def _as_it_is(call: PlacedMessage) -> float:  # noqa: ARG001
    return 1.0


@dataclass(frozen=True)
class Variant:
    name: str
    what: str
    loads: tuple[Callable[[], StepLoad], ...]
    """the step under this change; of hashes one for each seed"""
    slower: Callable[[PlacedMessage], float] = _as_it_is
    """factor on the time of a call's bytes where they leave their node"""


def variants_of(load: StepLoad) -> Iterator[Variant]:
    """The step as it is, then with each correction alone."""
    yield Variant("as planned", "nothing changed", (lambda: load,))
    yield from _factors(load)
    fabric = load.prices.fabric
    if not isinstance(fabric, Tree | Graph) or not (fabric.links.level > 0).any():
        return
    yield from _broken(load, fabric)
    if isinstance(fabric, Tree):
        yield from _twice(load, fabric)
        if len(fabric.tiers) > 1:
            yield from _hashes(load, fabric)
            yield from _thinner(load, fabric)


def _again(load: StepLoad, fabric: RoutedFabric, seats: Seats | None = None) -> Callable[[], StepLoad]:
    prices, calls = load.prices, [p.call for p in load.priced]
    return lambda: step_load(Prices(fabric, prices.network, seats or prices.seats, prices.quotes, prices.named), calls)


def _factors(load: StepLoad) -> Iterator[Variant]:
    def same() -> StepLoad:
        return load

    yield Variant("wire", f"packet headers: network x {WIRE:.2f}", (same,), lambda _: WIRE)
    fabric = load.prices.fabric
    if not isinstance(fabric, Tree | Graph) or not (fabric.links.level > 0).any():
        return
    try:
        rules = _rules(load, fabric)
    except ValueError:  # sprayed over links of which some are slow or down
        return
    queued = _Queued(load, rules)
    if any(p.call.op == "all_to_all" for p in load.priced):
        yield Variant("incast", "many into one NIC, as packets: all-to-all", (same,),
                      lambda call: queued.of(call) if call.op == "all_to_all" else 1.0)  # fmt: skip
    name = "credits" if rules.layer == "credits" else "pfc"
    stopped = "waiting for room" if name == "credits" else "paused queues"
    yield Variant(name, f"{stopped}, as packets: network", (same,), queued.of)


def _rules(load: StepLoad, fabric: Fabric) -> Rules:
    """Pauses or credits alone: what senders do about marks takes longer than so few packets do."""
    found = fitted(usual_rules(load.prices.network.cluster), network_of(packet_fabric(fabric, 0)), card_rate(load))
    return changed(found, control="none", mark_low_bytes=0.0, mark_high_bytes=0.0)


class _Queued:
    """How much longer than at fluid rates packets of a call take, each kind of call simulated once."""

    def __init__(self, load: StepLoad, rules: Rules) -> None:
        self._load, self._rules = load, rules
        self._known: dict[tuple[object, ...], float] = {}

    def of(self, call: PlacedMessage) -> float:
        prices = self._load.prices
        algorithm = prices.algorithm(call)
        key = (call.op, call.ranks, call.group, algorithm)
        if key not in self._known:
            traffic = traffic_of(prices, call, algorithm, self._rules, PACKET_BUDGET)
            run = None if traffic is None else packet_run(traffic, self._rules)
            self._known[key] = 1.0 if run is None else max(run.times, 1.0)
        return self._known[key]


def _broken(load: StepLoad, fabric: Fabric) -> Iterator[Variant]:
    """The busiest link slow; a switch above the leaves and the busiest cable to one away."""
    links = fabric.links
    worst = links.name_of(_busiest(load, links.level > 0))
    yield Variant("slow link", f"{worst} at {SLOW:.0%}", (_again(load, slowed(fabric, worst, SLOW)),))
    if not isinstance(fabric, Tree) or len(fabric.tiers) < 2 or fabric.tiers[1].ways < 2:
        return
    spine, above = fabric.tiers[1], links.tier == 2
    name = f"{spine.name} 0" + (".0" if spine.switches > 1 else "")
    yield Variant("failed spine", f"1 of {spine.built} {spine.name} switches", (_again(load, without(fabric, name)),))
    link = _busiest(load, above)
    what = f"{links.name_of(link)}: 1 cable" if spine.fan == 1 else links.name_of(link)
    yield Variant("failed link", what, (_again(load, without(fabric, links.name_of(link))),))


def _busiest(load: StepLoad, chosen: NDArray[np.bool_]) -> int:
    return int(np.argmax(np.where(chosen, load.busy_s, -1.0)))


def _twice(load: StepLoad, tree: Tree) -> Iterator[Variant]:
    """The same job a second time, their nodes in turn, in a fabric of twice the size; first the one job so placed."""
    alone, both = on_double(load.prices.seats, tree)
    yield Variant("every other node", "in a cluster twice the size", (_again(load, *alone),))
    yield Variant("two jobs", "the same job on the nodes between", (_again(load, *both),))


def _hashes(load: StepLoad, tree: Tree) -> Iterator[Variant]:
    hashed = tree_of(tree.cluster, changed(tree.wiring, routing="ecmp"), ())
    if all(tier.fan == 1 for tier in hashed.tiers[1:]):
        return
    most = max((len(load.prices.pattern(p.call, p.algorithm).messages.bytes) for p in load.priced), default=0)
    for connections in (1, 4, 16):
        if most * connections <= MOST_FLOWS:
            wirings = [changed(tree.wiring, routing="ecmp", connections=connections, seed=s) for s in range(SEEDS)]
            loads = tuple(_hashed(load, tree, each) for each in wirings)
            yield Variant(f"ecmp x{connections}", f"hashed paths, {connections} per pair", loads)


def _hashed(load: StepLoad, tree: Tree, wiring: Wiring) -> Callable[[], StepLoad]:
    return lambda: _again(load, tree_of(tree.cluster, wiring))()


def _thinner(load: StepLoad, tree: Tree) -> Iterator[Variant]:
    for factor in (2.0, 4.0, 8.0):
        thin = np.where(tree.links.tier >= 2, tree.links.capacity / factor, tree.links.capacity)
        what = f"above the leaves, 1/{factor:g} of the bandwidth"
        yield Variant(f"over {factor:g}:1", what, (_again(load, with_capacity(tree, thin)),))


def collectives_s(variant: Variant, load: StepLoad) -> dict[str, float]:
    """axis -> collectives of a step under the change, one after another and before any overlap."""
    links, found = load.prices.fabric.links, dict.fromkeys(load.bytes, 0.0)
    for p in load.priced:
        outside = p.link >= 0 and links.level[p.link] > 0
        grows = variant.slower(p.call) if outside else 1.0
        found[p.call.axis] += p.share * p.call.count * (p.latency_s + grows * (p.seconds - p.latency_s))
    return found
