"""Degrees of replication and sharding, as programs on PyTorch's FSDP2 state data parallelism."""

from shardwise.programs.formats._contract import Lack, Launch
from shardwise.spec.policy import Policy


def degrees(policy: Policy) -> tuple[int, int]:
    """(replicas, ranks that share one); context-parallel ranks share too, and are not counted."""
    if policy.zero == 0:
        return policy.dp, 1
    shard = max(policy.shard_group // policy.cp, 1) if policy.shard_group else policy.dp
    return policy.dp // shard, shard


def gaps(launch: Launch) -> list[Lack]:
    policy, found = launch.policy, list[Lack]()
    if policy.zero == 1:
        found.append(Lack("zero", 1, "optimizer states alone cannot be shared out; zero 0, 2 or 3 can be stated"))
    return found


def read(dp: int, shard: int, cp: int, reshards: bool, gpus: int | None = 0) -> tuple[int, int]:
    """(zero, shard_group) of so many data-parallel ranks, of which `shard` share. `gpus`: None, where nobody knows how
    many there are to share."""
    if gpus is None:
        return 3 if reshards else 2, 0
    if shard * cp == 1:
        return 0, 0
    return 3 if reshards else 2, 0 if shard == dp else shard * cp
