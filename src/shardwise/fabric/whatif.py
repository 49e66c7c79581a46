"""What if: the same step on a fabric with one thing changed, each correction under its own name.

Three are factors that measurements or packet simulations put on top of fluid rates; the others change links or ways and
price every collective again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as changed

from shardwise.fabric.calls import Call
from shardwise.fabric.graph import Graph
from shardwise.fabric.links import Floats, Routed
from shardwise.fabric.price import Prices
from shardwise.fabric.step import StepLoad, step_load
from shardwise.fabric.tree import Tree, tree_of

WIRE = (4096 + 82) / 4096
"""RoCE v2, MTU 4096: preamble and gap 20, Ethernet 18, IP 20, UDP 8, transport header 12, checksum 4 bytes a packet"""
INCAST = 1.2
"""all-to-all over fluid rates: real transfers on emulated links took 1.03 (8 hosts) to 1.40 (4 hosts, 16 MB) times"""
HEAD_OF_LINE = 1.2
"""mean flow time of packets with PFC and ECMP (htsim, 1,024 hosts, 2 MB permutation) over fluid rates: +17 to +20 %"""
SLOW = 0.25
SEEDS = 8
MOST_FLOWS = 300_000
"""messages x connections of a call from which hashing is not tried"""


@dataclass(frozen=True)
class WhatIf:
    name: str
    what: str
    seconds: dict[str, float]
    """axis -> collectives of a step, before overlap"""
    p95_s: float | None = None
    """of the sum over axes, over the seeds of a hash"""

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


def with_capacity(fabric: Tree | Graph, capacity: Floats) -> Tree | Graph:
    return replace(fabric, links=replace(fabric.links, capacity=capacity))


def what_ifs(load: StepLoad, calls: Sequence[Call]) -> Iterator[WhatIf]:
    """The step as it is, then with each correction alone."""
    yield WhatIf("as planned", "nothing changed", load.communication_s())
    yield from _factors(load)
    fabric = load.prices.fabric
    if not isinstance(fabric, Tree | Graph):
        return
    for name, what, capacity in _worse_links(load, fabric):
        yield WhatIf(name, what, _priced(load.prices, calls, with_capacity(fabric, capacity)))
    if isinstance(fabric, Tree) and len(fabric.tiers) > 1:
        yield from _hashes(load, calls, fabric)
        yield from _thinner(load, calls, fabric)


def _priced(prices: Prices, calls: Sequence[Call], fabric: Routed) -> dict[str, float]:
    return step_load(Prices(fabric, prices.network, prices.seats, prices.quotes), calls).communication_s()


def _factors(load: StepLoad) -> Iterator[WhatIf]:
    links = load.prices.fabric.links

    def scaled(factor: float, chosen: Callable[[Call], bool]) -> dict[str, float]:
        found = dict.fromkeys(load.bytes, 0.0)
        for p in load.priced:
            outside = p.link >= 0 and links.level[p.link] > 0
            grows = factor if outside and chosen(p.call) else 1.0
            found[p.call.axis] += p.call.times * (p.latency_s + grows * (p.seconds - p.latency_s))
        return found

    yield WhatIf("wire", f"packet headers: network x {WIRE:.2f}", scaled(WIRE, lambda _: True))
    yield WhatIf("incast", f"receivers overrun: all-to-all x {INCAST:g}",
                 scaled(INCAST, lambda call: call.op == "all_to_all"))  # fmt: skip
    yield WhatIf("pfc", f"paused queues: network x {HEAD_OF_LINE:g}", scaled(HEAD_OF_LINE, lambda _: True))


def _worse_links(load: StepLoad, fabric: Routed) -> Iterator[tuple[str, str, Floats]]:
    links = fabric.links
    network = links.level > 0
    if not network.any():
        return
    busy = np.where(network, load.busy_s, -1.0)
    worst = int(np.argmax(busy))
    slow = links.capacity.copy()
    slow[worst] *= SLOW
    yield "slow link", f"{links.name_of(worst)} at {SLOW:.0%}", slow
    if not isinstance(fabric, Tree) or len(fabric.tiers) < 2:
        return
    spine = fabric.tiers[1]
    above = links.tier == 2
    if spine.built > 1:
        lost = links.capacity.copy()
        lost[above] *= (spine.built - 1) / spine.built
        yield "failed spine", f"1 of {spine.built} {spine.name} switches", lost
        cut = links.capacity.copy()
        link = int(np.argmax(np.where(above, load.busy_s, -1.0)))
        cut[link] *= (spine.built - 1) / spine.built
        yield "failed link", f"{links.name_of(link)}: 1 of {spine.built} cables", cut
    shared = links.capacity.copy()
    shared[links.tier >= 2] /= 2
    yield "two jobs", "another like it on the same spines", shared


def _hashes(load: StepLoad, calls: Sequence[Call], tree: Tree) -> Iterator[WhatIf]:
    hashed = tree_of(tree.cluster, changed(tree.wiring, routing="ecmp"))
    if all(tier.fan == 1 for tier in hashed.tiers[1:]):
        return
    most = max((len(load.prices.pattern(p.call, p.algorithm).messages.bytes) for p in load.priced), default=0)
    for connections in (1, 4, 16):
        if most * connections > MOST_FLOWS:
            continue
        found = []
        for seed in range(SEEDS):
            wiring = changed(tree.wiring, routing="ecmp", connections=connections, seed=seed)
            found.append(_priced(load.prices, calls, tree_of(tree.cluster, wiring)))
        mean = {axis: float(np.mean([each[axis] for each in found])) for axis in found[0]}
        p95 = float(np.quantile([sum(each.values()) for each in found], 0.95))
        yield WhatIf(f"ecmp x{connections}", f"hashed ways, {connections} per pair", mean, p95)


def _thinner(load: StepLoad, calls: Sequence[Call], tree: Tree) -> Iterator[WhatIf]:
    for factor in (2.0, 4.0, 8.0):
        thin = np.where(tree.links.tier >= 2, tree.links.capacity / factor, tree.links.capacity)
        what = f"above the leaves, 1/{factor:g} of the bandwidth"
        yield WhatIf(f"over {factor:g}:1", what, _priced(load.prices, calls, with_capacity(tree, thin)))
