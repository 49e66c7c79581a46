"""Which ranks share what: the groups of this rank, in the placement the planner assumes.

Ranks are numbered tensor-parallel first, then context, data and pipeline. Experts cut the ranks of one stage anew:
their own tensor parallelism first, then expert parallelism, then what replicates them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from shardwise.plugins.schedules import schedules
from shardwise.run.runtime.parallel.comm import CONTROL, RankComm, RankGroup
from shardwise.spec.policy import Policies, Policy, expert_tp

Table = NDArray[np.int64]
WAIT = timedelta(minutes=10)


@dataclass(frozen=True)
class RankWorld:
    policy: Policy
    comm: RankComm
    rank: int
    device: torch.device
    tp: RankGroup
    cp: RankGroup
    dp: RankGroup
    """ranks with the same dense parameters: data and context parallel"""
    shard: RankGroup
    """those of them over which ZeRO shards"""
    replica: RankGroup
    """those of them that hold the same shard"""
    ep: RankGroup
    etp: RankGroup
    edp: RankGroup
    """ranks with the same experts"""
    expert_shard: RankGroup
    """those of them over which ZeRO shards"""
    expert_replica: RankGroup
    kv: RankGroup
    """tensor-parallel ranks with the same key/value heads"""
    mirror: RankGroup
    """the two ranks that hold the same stages, where micro-batches enter at both ends"""
    ends: RankGroup
    """first and last stage, which both hold a tied vocabulary table"""
    everyone: RankGroup
    stage: int
    data_index: int
    """which share of the batch this rank reads"""
    wait: timedelta
    """how long a rank waits for a message"""
    loss_tokens: int
    """tokens of a whole step: what the sum of their losses is divided by"""

    @property
    def size(self) -> int:
        return self.everyone.size


def etp_of(policy: Policy) -> int:
    return int(expert_tp(Policies.of([policy]))[0])


def world_of(
    policy: Policy, device: torch.device, loss_tokens: int, wait: timedelta = WAIT, kv_copies: int = 1
) -> RankWorld:
    """Every rank of the initialised process group calls this with the same policy."""
    size, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    if size != policy.gpus:
        raise ValueError(
            f"nproc: {size} ranks were started, the policy needs {policy.gpus}; write --nproc {policy.gpus}"
        )
    table = np.arange(size).reshape(policy.pp, policy.dp, policy.cp, policy.tp)
    shard = policy.shard_group or policy.dp * policy.cp
    if policy.sync and not policy.zero:
        shard = policy.cp  # a strategy works across replicas; inside one, context-parallel ranks add up
    data = table.reshape(policy.pp, -1, shard, policy.tp)
    etp = etp_of(policy)
    inner = policy.ep * etp
    expert_ranks, rest = divmod(policy.dp * policy.cp * policy.tp, inner)
    if rest:
        # a model without experts does not mind; ranks of one would not find each other
        expert_ranks, etp, inner = policy.dp * policy.cp * policy.tp, 1, 1
    few = min(shard, expert_ranks)
    experts = table.reshape(policy.pp, expert_ranks // few, few, inner // etp, etp)
    owners = table.reshape(policy.pp, expert_ranks, inner // etp, etp)
    whole = table.reshape(policy.pp, policy.dp * policy.cp, policy.tp)
    place = [int(i[0]) for i in np.nonzero(table == rank)]

    def lines(axis: str, cut: Table, along: int) -> RankGroup:
        return _group(axis, np.moveaxis(cut, along, -1).reshape(-1, cut.shape[along]), rank, wait)

    return RankWorld(
        policy=policy, comm=RankComm(), rank=rank, device=device,
        tp=lines("tp", table, 3), cp=lines("cp", table, 2), dp=lines("dp", whole, 1),
        shard=lines("dp", data, 2), replica=lines("dp", data, 1),
        ep=lines("ep", owners, 2), etp=lines("etp", owners, 3), edp=lines("dp", owners, 1),
        expert_shard=lines("dp", experts, 2), expert_replica=lines("dp", experts, 1),
        kv=lines("tp", table.reshape(policy.pp, -1, kv_copies), 2),
        mirror=_mirror(table, rank, wait, schedules()[policy.schedule].both_ends),
        ends=_ends(table, rank, wait), everyone=_group(CONTROL, table.reshape(1, -1), rank, wait),
        stage=place[0], data_index=place[1], loss_tokens=loss_tokens, wait=wait,
    )  # fmt: skip


def _mirror(table: Table, rank: int, wait: timedelta, both_ends: bool) -> RankGroup:
    half = table.shape[0] // 2
    pairs = np.stack([table[:half], table[::-1][:half]], -1).reshape(-1, 2) if both_ends else table.reshape(-1, 1)
    return _group("pp", pairs, rank, wait)


def _ends(table: Table, rank: int, wait: timedelta) -> RankGroup:
    return _group("pp", table[[0, -1]].reshape(2, -1).T if table.shape[0] > 1 else table.reshape(-1, 1), rank, wait)


def _group(axis: str, rows: Table, rank: int, wait: timedelta) -> RankGroup:
    return group_of(axis, [tuple(int(r) for r in row) for row in rows], rank, wait)


def group_of(axis: str, rows: Sequence[tuple[int, ...]], rank: int, wait: timedelta) -> RankGroup:
    """The row with this rank; all ranks call this with the same rows, since torch numbers its groups by their order."""
    found = RankGroup(axis, (rank,), 0)
    for ranks in rows:
        mine = rank in ranks
        handle = dist.new_group(list(ranks), timeout=wait) if len(ranks) > 1 and (mine or not pretended()) else None
        if mine:
            found = RankGroup(axis, ranks, ranks.index(rank), handle)
    return found


def pretended() -> bool:
    """No other rank is there, so groups of others are not made: there may be very many."""
    return dist.is_initialized() and dist.get_backend() == "fake"
