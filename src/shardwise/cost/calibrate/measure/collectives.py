"""Collectives over all ranks that torchrun started: NCCL between GPUs, gloo between processes."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from shardwise.cost.calibrate.measure._bench import Bench, Point

SIZES = {"cuda": [2**p for p in range(12, 31, 2)], "cpu": [2**p for p in range(10, 23, 3)]}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ROUNDS = 5
CALLS = {"cuda": 20, "cpu": 5}
"""of a round, the most"""
ROUND_S = 0.2
# torch 2.13 gave these two another name and warns of the old one
_ALL_GATHER: Callable[..., object] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER: Callable[..., object] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class World:
    rank: int
    ranks: int
    nodes: int


def world_size() -> int:
    """Ranks torchrun started; 1 outside of it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


@contextmanager
def joined(bench: Bench) -> Iterator[World]:
    """The process group of all ranks, left again at the end."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if bench.cuda:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if bench.cuda else "gloo")
    try:
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
        yield World(dist.get_rank(), dist.get_world_size(), max(dist.get_world_size() // max(per_node, 1), 1))
    finally:
        dist.destroy_process_group()


def collective_points(bench: Bench, world: World, quick: bool) -> Iterator[Point]:
    """`bytes` counts as nccl-tests does: the whole message of a rank, gathered or before it is scattered."""
    sizes = SIZES[bench.device.type]
    for op in OPS:
        for size in sizes[::2] if quick else sizes:
            call = prepared(bench, op, size, world.ranks)
            if call is not None:
                yield {
                    "op": op, "bytes": size, "ranks": world.ranks, "nodes": world.nodes,
                    "seconds": slowest_seconds(bench, call),
                }  # fmt: skip


def prepared(
    bench: Bench, op: str, size: int, ranks: int, group: "dist.ProcessGroup | None" = None
) -> Callable[[], object] | None:
    """One collective of a group (None: all ranks), with its buffers; None where it has less than a number a rank."""
    part = size // 4 // ranks
    if part < 1:
        return None
    whole = torch.randn(part * ranks, device=bench.device)
    other = torch.zeros_like(whole)
    mine = torch.zeros(part, device=bench.device)
    if op == "all_reduce":
        return lambda: dist.all_reduce(other, group=group)
    if op == "all_gather":
        return lambda: _ALL_GATHER(other, mine, group=group)
    if op == "reduce_scatter":
        return lambda: _REDUCE_SCATTER(mine, whole, group=group)
    return lambda: dist.all_to_all_single(other, whole, group=group)


def slowest_seconds(
    bench: Bench, call: Callable[[], object], group: "dist.ProcessGroup | None" = None, rounds_of: int = ROUNDS
) -> float:
    """The slowest rank's time, median of rounds: a collective is over when the last rank has it. Fewer calls a round
    where one takes long, as over sockets."""
    calls, rounds = 1, list[float]()
    for _ in range(rounds_of + 1):
        _wait(bench, group)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if bench.cuda:
            torch.cuda.synchronize(bench.device)
        rounds.append((time.perf_counter() - start) / calls)
        if len(rounds) == 1:
            calls = max(1, min(CALLS[bench.device.type], int(ROUND_S / _slowest(bench, rounds[0], group))))
    return _slowest(bench, statistics.median(rounds[1:]), group)


def _slowest(bench: Bench, seconds: float, group: "dist.ProcessGroup | None") -> float:
    """Of all ranks."""
    found = torch.tensor(seconds, device=bench.device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX, group=group)
    return float(found.item())


def _wait(bench: Bench, group: "dist.ProcessGroup | None") -> None:
    if bench.cuda:
        torch.cuda.synchronize(bench.device)
    dist.barrier(group=group)
