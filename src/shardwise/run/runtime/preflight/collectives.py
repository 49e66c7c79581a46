"""The plan's collectives over the plan's groups, and pairs of nodes, each for a limited time."""

import statistics
import time
from collections.abc import Sequence

import msgspec
import torch.distributed as dist

from shardwise.cost.calibrate.measure._bench import Bench, bench_on
from shardwise.cost.calibrate.measure.collectives import prepared, slowest_seconds
from shardwise.measured.diagnose.expect import bus_factor
from shardwise.measured.diagnose.pairs import rounds
from shardwise.run.preflight.measurements import MeasuredCollective, MeasuredPair
from shardwise.run.preflight.orders import CollectiveOrder
from shardwise.run.runtime.preflight.ranks import Ranks, agreed, to_first

PAIR_BYTES = {"cuda": 2**26, "cpu": 2**20}
FEW_ROUNDS = 3


Groups = dict[tuple[int, ...], dist.ProcessGroup]
"""each made once: a second one of the same ranks would meet the addresses of the first"""


def measured_collectives(
    orders: Sequence[CollectiveOrder], ranks: Ranks, end: float, device: str, groups: Groups
) -> list[MeasuredCollective]:
    """On the first rank; empty on the others. `end`: when no further one is begun."""
    bench = bench_on(device, quick=True)
    found = []
    for order in orders:
        if not agreed(time.monotonic() < end):
            break
        mine = next((group for group in order.groups if ranks.rank in group), ())
        seconds = _timed(bench, order.op, order.bytes, mine, groups)
        said = [msgspec.json.decode(each) for each in to_first(msgspec.json.encode(seconds))]
        if ranks.rank == 0:
            found += _row(order, ranks, said, device)
    return found


def _row(order: CollectiveOrder, ranks: Ranks, said: Sequence[float | None], device: str) -> list[MeasuredCollective]:
    groups = [(seconds, group) for group in order.groups if (seconds := said[group[0]]) is not None]
    if not groups:
        return []
    slowest, where = max(groups)
    return [MeasuredCollective(
        axis=order.axis, op=order.op, bytes=order.bytes, ranks=len(where),
        nodes=len({ranks.hosts[rank] for rank in where}), seconds=slowest, groups=len(groups),
        median_s=statistics.median(seconds for seconds, _ in groups),
        hosts=list(dict.fromkeys(ranks.hosts[rank] for rank in where)), device=device.partition(":")[0],
    )]  # fmt: skip


def _timed(bench: Bench, op: str, size: int, members: Sequence[int], groups: Groups) -> float | None:
    """Of the group this rank is in; None where it is in none or the message is too small for it."""
    if len(members) < 2:
        return None
    key = tuple(members)
    if key not in groups:
        groups[key] = dist.new_group(list(members), use_local_synchronization=True)
    call = prepared(bench, op, size, len(members), groups[key])
    return None if call is None else slowest_seconds(bench, call, groups[key], FEW_ROUNDS)


def measured_pairs(ranks: Ranks, end: float, device: str, groups: Groups) -> list[MeasuredPair]:
    """Bus bandwidth of an all-reduce over two nodes at a time, round after round; on the first rank."""
    bench, nodes = bench_on(device, quick=True), list(ranks.nodes)
    size = PAIR_BYTES[device.partition(":")[0]]
    found = []
    for pairs in rounds(nodes):
        if not agreed(time.monotonic() < end):
            break
        here = ranks.hosts[ranks.rank]
        mine = next(([*ranks.of(a), *ranks.of(b)] for a, b in pairs if here in (a, b)), [])
        timed = _timed(bench, "all_reduce", size, sorted(mine), groups)
        said = [msgspec.json.decode(each) for each in to_first(msgspec.json.encode(timed))]
        for a, b in pairs if ranks.rank == 0 else ():
            members = [*ranks.of(a), *ranks.of(b)]
            seconds = said[members[0]]
            if seconds:
                rate = bus_factor("all_reduce", len(members)) * size / seconds
                found.append(MeasuredPair(a=a, b=b, bytes_per_s=rate))
    return found
