"""How fast the flow-level solver is: processor time of one thread, the fastest of several runs.

flows_10k_s, flows_100k_s: ways and exact max-min rates of so many random messages on a 1,024-GPU DGX H100 tree (5,120
links, hashed over 16 spines). all_to_all_s: 16 groups of 64 ranks, every rank to every other. filling_10k_s: the same
10,000 messages by progressive filling, one bottleneck link at a time; filling_gap: the largest relative difference of
its rates.
"""

import time
from collections.abc import Callable

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric import Tree, Wiring, tree_of
from shardwise.fabric.phases import messages_of
from shardwise.fabric.solver import max_min
from shardwise.spec.load import cluster_of

GPUS = 1024


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of one call: the fastest of several."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def random_messages(count: int) -> tuple[Ints, Ints]:
    generator = np.random.default_rng(0)
    source = generator.integers(0, GPUS, count)
    return source, (source + generator.integers(1, GPUS, count)) % GPUS


def rates(tree: Tree, source: Ints, target: Ints) -> Floats:
    return max_min(tree.routes(source, target).links, tree.links.capacity)


def by_filling(links: Ints, capacity: Floats) -> Floats:
    """The textbook's way: the one slowest link settles its flows, then the next."""
    free, found = len(capacity), np.full(len(links), np.inf)
    room, active = capacity.copy(), np.ones(len(links), dtype=bool)
    while active.any():
        demand = np.bincount(links[active].ravel(), minlength=free + 1)[:free]
        share = np.divide(room, demand, out=np.full(free, np.inf), where=demand > 0)
        slowest = int(np.argmin(share))
        hit = active & (links == slowest).any(axis=1)
        found[hit] = share[slowest]
        room -= np.bincount(links[hit].ravel(), minlength=free + 1)[:free] * share[slowest]
        room = np.maximum(room, 0.0)
        active &= ~hit
    return found


def measure() -> dict[str, float]:
    tree = tree_of(cluster_of(f"dgx-h100:{GPUS}"), Wiring(routing="ecmp"))
    few, many = random_messages(10_000), random_messages(100_000)
    experts = messages_of("pairwise", "all_to_all", np.arange(GPUS).reshape(-1, 64), tree, 8)
    links, capacity = tree.routes(*few).links, tree.links.capacity
    slow = by_filling(links, capacity)
    return {
        "flows_10k_s": seconds_of(lambda: rates(tree, *few), 10),
        "flows_100k_s": seconds_of(lambda: rates(tree, *many), 3),
        "all_to_all_s": seconds_of(lambda: rates(tree, experts.source, experts.target), 3),
        "filling_10k_s": seconds_of(lambda: by_filling(links, capacity), 1),
        "filling_gap": float(np.abs(rates(tree, *few) / slow - 1.0).max()),
    }
