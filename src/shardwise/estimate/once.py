"""What happens once per step: gradients are reduced, the optimizer runs, sharded parameters are gathered again."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shardwise.cost.gpu import memory_seconds
from shardwise.estimate.layers import Machine
from shardwise.spec.cluster import HOST_BYTES_PER_S, Cluster
from shardwise.spec.policy import Ints
from shardwise.work import Work
from shardwise.work.layout import Numbers, sharded_over
from shardwise.work.messages import bucket_bytes
from shardwise.work.stages import Grid, largest


def copy_rate(cluster: Cluster) -> float:
    """bytes/s of one GPU to or from its host while its neighbours copy too: they share the host's memory."""
    return min(cluster.gpu.pcie_bandwidth, HOST_BYTES_PER_S)


@dataclass(frozen=True)
class SyncRates:
    """Seconds per parameter of a step's reduction and gather, before any overlap: dense, expert."""

    reduce: tuple[Numbers, Numbers]
    gather: tuple[Numbers, Numbers]

    def on(self, parameters: tuple[Grid, Grid]) -> tuple[Grid, Grid]:
        """(reduce gradients, gather parameters) of ranks that hold so many of them."""
        reduce, gather = (
            np.asarray(sum(rate[:, None] * held for rate, held in zip(rates, parameters, strict=True)))
            for rates in (self.reduce, self.gather)
        )
        return reduce, gather


def sync_rates(work: Work, machine: Machine) -> SyncRates:
    """As fast as on the stage with the most parameters, whose messages are the longest."""
    layout = work.layout
    dense, expert = (largest(grid)[0] for grid in work.parameters)
    found = [_sync(work, machine, dense, layout.grad_ranks, layout.shard, "dp_cp")]
    if expert.any():
        found.append(_sync(work, machine, expert, layout.expert_ranks, layout.expert_shard, "edp"))
    return _rates(found, (dense, expert))


def tied_seconds(work: Work, machine: Machine) -> Numbers:
    """The first and the last stage add up their gradients of a table that both use, when all others are reduced."""
    layout, policies, model = work.layout, work.layout.policies, work.model
    apart = (layout.pp > 1) & ((work.stages.first > 0) != (work.stages.last > 0)).any(axis=1)
    if not model.tied or not apart.any():
        return np.zeros_like(layout.tp)
    table = model.vocab * model.hidden / layout.tp / np.where(policies.zero > 1, layout.shard, 1.0)
    distance = np.ones_like(policies.pp)
    for block in machine.network.cluster.blocks[:-1]:
        distance = np.where(machine.strides["pp"] * policies.pp > block, block, distance)
    seconds = machine.network.seconds("all_reduce", table * machine.precision.grad_bytes, 2, distance)
    return np.where(apart, seconds, 0.0)


def reduced_each(work: Work) -> NDArray[np.bool_]:
    """Where gradients are reduced in every micro-batch: a sharded buffer can only add up shards."""
    return np.asarray((work.layout.policies.zero == 2) & (work.layout.shard > 1.0))


def _rates(found: list[tuple[Numbers, Numbers]], parameters: tuple[Numbers, Numbers]) -> SyncRates:
    none = np.zeros_like(parameters[0])
    pairs = [(none, none), (none, none)]
    for number, ((reduce, gather), held) in enumerate(zip(found, parameters, strict=False)):
        held = np.maximum(held, 1.0)
        pairs[number] = reduce / held, gather / held
    return SyncRates(reduce=(pairs[0][0], pairs[1][0]), gather=(pairs[0][1], pairs[1][1]))


def inner_rates(work: Work, machine: Machine) -> SyncRates:
    """The same where a strategy works across replicas: what the ranks of one worker do among themselves. Without ZeRO
    they are its context-parallel ranks, with it a shard group."""
    layout, zero = work.layout, work.layout.policies.zero
    dense, expert = (largest(grid)[0] for grid in work.parameters)
    alone = replace(layout, grad_ranks=layout.shard)
    together = layout.expert_ranks == layout.grad_ranks
    held = dense + np.where(together, expert, 0.0)
    reduce, gather = _sync(replace(work, layout=alone), machine, held, layout.shard, layout.shard, "dp_cp")
    whole = _bucketed(machine, "all_reduce", held * machine.precision.grad_comm_bytes, layout.cp, machine.strides["cp"])
    rates = _rates([(np.where(zero > 0, reduce, whole), np.where(zero > 0, gather, 0.0))], (held, expert))
    alike = tuple(np.where(together, pair[0], 0.0) for pair in (rates.reduce, rates.gather))
    return SyncRates(reduce=(rates.reduce[0], alike[0]), gather=(rates.gather[0], alike[1]))


def _sync(
    work: Work, machine: Machine, parameters: Numbers, ranks: Numbers, shard: Numbers, axis: str
) -> tuple[Numbers, Numbers]:
    """ZeRO-3 does both inside the layers, except across its replicas."""
    layout, precision, stride = work.layout, machine.precision, machine.strides[axis]
    zero = layout.policies.zero
    grads, params = parameters * precision.grad_comm_bytes, parameters * precision.param_comm_bytes
    # shards of one rank are whole: there is nothing to gather, and nothing that each micro-batch must have summed
    sharded = ((zero == 1) | (zero == 2)) & (shard > 1.0)
    whole = (zero < 3) & ~sharded
    reduce, gather = np.zeros_like(layout.tp), np.zeros_like(layout.tp)
    if whole.any():
        reduce = np.where(whole, _bucketed(machine, "all_reduce", grads, ranks, stride), reduce)
    if sharded.any():
        reduce = np.where(sharded, _bucketed(machine, "reduce_scatter", grads, shard, stride), reduce)
        gather = np.where(sharded, _bucketed(machine, "all_gather", params, shard, stride), gather)
    replicas = ranks / shard
    if (replicas > 1).any():
        across = machine.over("all_reduce", grads / shard, replicas, stride * shard.astype(np.int64))
        reduce = reduce + np.where(whole, 0.0, across)
    return reduce * np.where(sharded & reduced_each(work), layout.micro_batches, 1.0), gather


def _bucketed(machine: Machine, op: str, bytes_: Numbers, size: Numbers, stride: Ints) -> Numbers:
    """A long buffer sent in messages of the stack's bucket size."""
    message = bucket_bytes(machine.stack, op, bytes_, size)
    return machine.over(op, message, size, stride) * (bytes_ / np.maximum(message, 1.0))


def optimizer_seconds(work: Work, machine: Machine, cluster: Cluster) -> Numbers:
    layout, precision, optimizer = work.layout, work.job.precision, work.job.optimizer
    dense, expert = work.parameters
    zero = layout.policies.zero
    own = dense / sharded_over(zero, 1, layout.shard)[:, None]
    owned, _ = largest(own + expert / sharded_over(zero, 1, layout.expert_shard)[:, None])
    state = precision.master_bytes or precision.param_bytes
    moved = precision.grad_bytes + 2 * state + 2 * optimizer.moments * precision.moment_bytes
    moved += 2 * optimizer.extra_bytes + (precision.param_bytes if precision.master_bytes else 0.0)
    seconds = np.asarray(
        memory_seconds(machine.curve, owned * moved * machine.stack.kernels.optimizer_passes, "optimizer")
    )
    if optimizer.flops_per_param:
        flops = owned * work.model.hidden * optimizer.flops_per_param
        seconds = seconds + flops / (0.5 * cluster.gpu.peak("bf16"))
    offloaded = (layout.policies.offload == 1) | (layout.policies.offload == 3)
    if offloaded.any():
        # gradients go down and weights come back over PCIe; the host updates at the pace of its own memory
        wire = owned * (precision.grad_bytes + precision.param_bytes) / copy_rate(cluster)
        seconds = np.where(offloaded, owned * moved / HOST_BYTES_PER_S + wire, seconds)
    return seconds
