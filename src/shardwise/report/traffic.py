"""Bytes an average GPU sends into each network level in one step, by the axis that sends them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shardwise.cost.network import Network
from shardwise.cost.placement import Placement
from shardwise.cost.profile import Profile
from shardwise.estimate.closed_form import network_for
from shardwise.estimate.time import transfer_bytes
from shardwise.spec.cluster import Cluster
from shardwise.work import Work
from shardwise.work.ops import LayerWork
from shardwise.work.stages import totals

AXES = ("tp", "cp", "ep", "pp", "dp")


@dataclass
class _Tally:
    """Adds up bytes by axis and level for a batch of one policy."""

    network: Network
    work: Work
    bytes: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def add(
        self, axis: str, op: str, bytes_: float, size: float, stride: float, times: float, message: float = np.inf
    ) -> None:
        """`times` collectives of `bytes_`, sent in messages of at most `message` bytes."""
        if bytes_ > message:
            bytes_, times = message, times * bytes_ / message
        before = self.bytes.setdefault(axis, np.zeros(len(self.network.cluster.levels)))
        if times > 0 and size > 1 and bytes_ > 0:
            self.bytes[axis] = before + times * self.network.traffic(op, bytes_, int(size), int(stride))


def traffic_of(work: Work, cluster: Cluster, profile: Profile | None = None) -> dict[str, dict[str, float]]:
    """axis -> level -> bytes, for the one policy `work` was made for (with every stage)."""
    levels = [level.name for level in cluster.levels]
    tally = _Tally(network_for(cluster, work.stack, profile), work)
    for axis in AXES:
        tally.bytes[axis] = np.zeros(len(levels))
    _layers(tally)
    _pipeline(tally)
    _gradients(tally)
    return {axis: dict(zip(levels, map(float, sent), strict=True)) for axis, sent in tally.bytes.items()}


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _layers(tally: _Tally) -> None:
    """Collectives inside layers, averaged over the stages: each GPU runs 1/pp of the model's layers."""
    work = tally.work
    placement, policies = Placement(), work.layout.policies
    sizes, strides = placement.sizes(policies), placement.strides(policies)
    micro, pp = _one(work.layout.micro_batches), _one(work.layout.pp)
    depth = work.model.mtp_layers
    repeated = _repeated_share(work)
    parts: list[tuple[LayerWork, float, float]] = [
        (layer, count, repeated) for layer, count in zip(work.kinds, totals(work.model), strict=True)
    ]
    if depth:
        parts.append((work.kinds[work.model.pattern[-1]], float(depth), repeated))
    parts += [(work.embedding, 1.0, 0.0), (work.head, 1.0 + depth, 0.0)]
    for layer, count, repeats in parts:
        for item in layer.collectives:
            again = 1.0 + repeats if item.phase == "forward" and item.axis == "tp" else 1.0
            times = _one(item.count) * again * count * micro / pp
            axis = "ep" if item.axis == "etp" else item.axis
            tally.add(axis, item.op, _one(item.bytes), _one(sizes[item.axis]), _one(strides[item.axis]), times)


def _repeated_share(work: Work) -> float:
    """Share of the layers whose forward collectives run again in full recompute."""
    policies = work.layout.policies
    if policies.recompute[0] != 2 or not work.stack.full_recompute_keeps_comm:
        return 0.0
    asked, per_stage = _one(policies.recompute_layers), max(work.model.layers / _one(work.layout.pp), 1.0)
    return 1.0 if asked < 0 else min(asked / per_stage, 1.0)


def _pipeline(tally: _Tally) -> None:
    """Activations forward and gradients back over every cut between chunks."""
    work, layout = tally.work, tally.work.layout
    pp, chunks = _one(layout.pp), _one(layout.pp) * _one(layout.vpp)
    message = _one(transfer_bytes(work))
    stride = _one(Placement().strides(layout.policies)["pp"])
    tally.add("pp", "send", message, min(pp, 2.0), stride, 2.0 * (chunks - 1) / pp * _one(layout.micro_batches))


def _gradients(tally: _Tally) -> None:
    work, layout = tally.work, tally.work.layout
    strides = Placement().strides(layout.policies)
    dense, expert = work.parameters
    groups = (
        (float(dense.mean()), _one(layout.grad_ranks), _one(layout.shard), _one(strides["dp_cp"])),
        (float(expert.mean()), _one(layout.expert_ranks), _one(layout.expert_shard), _one(strides["edp"])),
    )
    for parameters, ranks, shard, stride in groups:
        if parameters:
            _synchronise(tally, parameters, ranks, shard, stride)


def _synchronise(tally: _Tally, parameters: float, ranks: float, shard: float, stride: float) -> None:
    """Gradients of one kind of parameters: reduced once a step, or for each micro-batch where they are kept sharded."""
    work = tally.work
    precision, stack = work.job.precision, work.stack
    zero, micro = int(work.layout.policies.zero[0]), _one(work.layout.micro_batches)
    grads, params = parameters * precision.grad_comm_bytes, parameters * precision.param_comm_bytes
    if zero == 0:
        tally.add("dp", "all_reduce", grads, ranks, stride, 1.0, stack.bucket_bytes)
        return
    often = micro if zero == 2 or (zero == 3 and not _held(work)) else 1.0
    blocks = max(work.model.layers / _one(work.layout.pp), 1.0)
    messages = (grads / blocks, params / blocks) if zero == 3 else (stack.bucket_bytes, stack.gather_bucket_bytes)
    tally.add("dp", "reduce_scatter", grads, shard, stride, often, messages[0])
    tally.add("dp", "all_gather", params, shard, stride, _gathers(work, zero, micro), messages[1])
    tally.add("dp", "all_reduce", grads / shard, ranks / shard, stride * shard, often if zero == 2 else 1.0)


def _gathers(work: Work, zero: int, micro: float) -> float:
    """ZeRO-3 gathers before the forward and before the backward of each micro-batch, unless a pipeline keeps them."""
    return 2.0 * micro if zero == 3 and not _held(work) else 1.0


def _held(work: Work) -> bool:
    """A pipeline keeps gathered parameters and whole gradients through the step."""
    return bool(work.layout.policies.pp[0] > 1 and not work.stack.regather_with_pp)
