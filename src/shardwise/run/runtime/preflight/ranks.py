"""Ranks that torchrun started, one of them on each node looking around: what all of them say comes to the first."""

import datetime
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

WAIT_S = 120.0
SHORT = 1024
"""bytes of what every rank tells every other"""
MOST_BYTES = 32 * 2**20
"""of what one rank says"""
ROUNDS = 8
"""messages to and fro by which clocks are compared; the fastest counts"""


@dataclass(frozen=True)
class Ranks:
    rank: int
    world: int
    local_rank: int
    local_world: int
    device: str
    """cuda:N or cpu"""
    hosts: tuple[str, ...]
    """of every rank; two launchers on one host have numbers"""

    @property
    def leads_node(self) -> bool:
        return self.rank == self.hosts.index(self.hosts[self.rank])

    @property
    def nodes(self) -> tuple[str, ...]:
        """In the order of their first ranks."""
        return tuple(dict.fromkeys(self.hosts))

    def of(self, host: str) -> list[int]:
        return [rank for rank, each in enumerate(self.hosts) if each == host]


@contextmanager
def joined_ranks(seconds: float) -> Iterator[Ranks]:
    """The process group of all ranks, left again at the end. `seconds`: that are measured."""
    local = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
    cuda = torch.cuda.is_available() and local < torch.cuda.device_count()
    if cuda:
        torch.cuda.set_device(local)
    wait = datetime.timedelta(seconds=WAIT_S + 2 * seconds)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=wait)
    try:
        rank, world = dist.get_rank(), dist.get_world_size()
        # where one rank has no GPU all measure on processors: mixed, they would wait for each other
        cuda = all(said == b"1" for said in everyone(str(int(cuda)).encode()))
        mine = f"{os.environ.get('GROUP_RANK', '')[:9]} {socket.gethostname()[:253]}"
        hosts = _numbered([said.decode(errors="replace") for said in everyone(mine.encode())])
        yield Ranks(
            rank, world, local, int(os.environ.get("LOCAL_WORLD_SIZE", str(world))), f"cuda:{local}" if cuda else "cpu",
            hosts,
        )  # fmt: skip
    finally:
        dist.destroy_process_group()


def _numbered(said: Sequence[str]) -> tuple[str, ...]:
    """Of 'place host' of every rank: the hosts' names, with a number where two launchers share one."""
    names: dict[str, str] = {}
    seen: dict[str, int] = {}
    for each in dict.fromkeys(said):
        host = each.partition(" ")[2]
        seen[host] = seen.get(host, 0) + 1
        names[each] = host if seen[host] == 1 else f"{host}#{seen[host]}"
    return tuple(names[each] for each in said)


def everyone(text: bytes) -> list[bytes]:
    """A short text of every rank, on every rank."""
    mine = torch.frombuffer(bytearray(_packed(text[: SHORT - 8], SHORT)), dtype=torch.uint8)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return [_unpacked(part) for part in parts]


def to_first(text: bytes) -> list[bytes]:
    """A text of every rank, on the first; nothing on the others. Bytes, never objects: nothing is unpickled."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"facts: {len(text) / 2**20:.0f} MiB of one node; write --only with fewer items")
    longest = torch.tensor(len(text))
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    mine = torch.frombuffer(bytearray(_packed(text, int(longest) + 8)), dtype=torch.uint8)
    leads = dist.get_rank() == 0
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())] if leads else None
    dist.gather(mine, parts, dst=0)
    return [_unpacked(part) for part in parts or ()]


def _packed(text: bytes, size: int) -> bytes:
    return (struct.pack("<q", len(text)) + text).ljust(size, b"\0")


def _unpacked(part: torch.Tensor) -> bytes:
    raw = bytes(part.numpy().tobytes())
    (count,) = struct.unpack("<q", raw[:8])
    return raw[8 : 8 + max(count, 0)]


def agreed(flag: bool) -> bool:
    """What the first rank says, on all: so that none goes on alone."""
    told = torch.tensor(int(flag))
    dist.broadcast(told, src=0)
    return bool(told)


def clock_offsets(ranks: Ranks) -> dict[str, float]:
    """Seconds that each node's clock is ahead of the first node's, on the first rank; empty on the others."""
    found: dict[str, float] = {ranks.nodes[0]: 0.0}
    stamp = torch.zeros(1, dtype=torch.float64)
    for host in ranks.nodes[1:]:
        other = ranks.of(host)[0]
        if ranks.rank == other:
            for _ in range(ROUNDS):
                dist.recv(stamp, src=0)
                stamp[0] = time.time()
                dist.send(stamp, dst=0)
        elif ranks.rank == 0:
            best = (float("inf"), 0.0)
            for _ in range(ROUNDS):
                sent = time.time()
                dist.send(stamp, dst=other)
                dist.recv(stamp, src=other)
                back = time.time()
                best = min(best, (back - sent, float(stamp[0]) - (sent + back) / 2))
            found[host] = best[1] if abs(best[1]) > best[0] / 2 else 0.0
        dist.barrier()
    return found if ranks.rank == 0 else {}
