"""The end of a step on one rank: the optimizer's pass, passes over all that the rank holds, and the host that launches
them.

The host waits for the norm of the gradients and only then launches the update, tensor by tensor (Megatron-Core,
core/optimizer/distrib_optimizer.py: a rank's piece of each is cut out of the buffer, clipped, updated and copied back).
Where tensors are many and pieces small, the GPU waits for it.
"""

import numpy as np

from shardwise.cost.gpu import memory_seconds
from shardwise.spec.cluster import Cluster
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.once import optimizer_seconds, rare_seconds
from shardwise.work import Work
from shardwise.work.layout import Numbers, sharded_over
from shardwise.work.stages import largest


def update_seconds(work: Work, machine: Machine, cluster: Cluster) -> Numbers:
    on_gpu = optimizer_seconds(work, machine, cluster) + _passes_seconds(work, machine)
    host = machine.stack.host
    launched = pieces_updated(work) * host.ops_per_update
    if work.updates is not None:
        launched = launched + work.updates.computed_matrices * work.job.optimizer.rule.launches
        # decompositions take their time in few steps: in the others the host may be the slower one
        rare = np.minimum(rare_seconds(work.updates, machine), on_gpu)
        return np.maximum(on_gpu - rare, launched * host.host_s_per_op) + rare
    return np.maximum(on_gpu, launched * host.host_s_per_op)


def _passes_seconds(work: Work, machine: Machine) -> Numbers | float:
    """Sums of gradients set to zero, and weights rounded to the narrow format in the two layouts that products read."""
    precision = work.job.precision
    bytes_ = precision.grad_bytes if machine.stack.kernels.zeroes_gradients else 0.0
    if precision.rounds_weights_once:
        bytes_ += precision.param_bytes + 2.0 * precision.cast_bytes
    if not bytes_:
        return 0.0
    dense, expert = work.parameters
    return memory_seconds(machine.curve, largest(dense + expert)[0] * bytes_)


def pieces_updated(work: Work) -> Numbers:
    """Tensors that a rank updates, or with ZeRO pieces of them: a bucket is cut into equal shares, and a share is a
    piece of one tensor, or of several where it is longer than they are."""
    layout, network = work.layout, work.stack.network
    tensors = work.tensors + work.expert_tensors
    bucket = np.maximum(network.bucket_bytes, network.bucket_bytes_per_rank * layout.shard)
    held = largest(work.parameters[0] + work.parameters[1])[0]
    buckets = np.ceil(held * work.job.precision.grad_comm_bytes / bucket)
    shares = sharded_over(layout.policies.zero, 1, layout.shard)
    return np.where(shares > 1.0, np.minimum(tensors, buckets + tensors / shares), tensors)
