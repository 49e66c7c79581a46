"""Every collective of one training step: what is called over which ranks, how large, how often. No seconds yet."""

from dataclasses import dataclass, replace

import numpy as np

from shardwise.cost.placement import Placement
from shardwise.spec.pipeline import NEEDS
from shardwise.spec.policy import SCHEDULES
from shardwise.work import Work
from shardwise.work.ops import LayerWork
from shardwise.work.stages import totals
from shardwise.work.transfer import transfer_bytes

AXES = ("tp", "cp", "ep", "pp", "dp")
"""kinds of parallelism traffic is told by"""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A collective and how often an average GPU takes part in it in one step."""

    axis: str
    """of AXES"""
    lane: str
    """of the timeline's lanes: when it happens"""
    op: str
    bytes: float
    times: float
    group: str
    """of Placement.sizes: who takes part"""
    part: str = "whole"
    """whole group, `shard` (consecutive ranks of it) or `replicas` (the same place in each shard)"""
    size: int
    stride: int
    skew: float = 1.0
    """bytes of the fullest rank over the mean: all wait for it"""
    wraps: bool = False
    """of sends along a pipeline: the last stage sends to the first too"""


def calls_of(work: Work) -> list[Call]:
    """For the one policy `work` was made for (with every stage); stages are averaged."""
    found = [*_layers(work), *_pipeline(work), *_gradients(work)]
    return [call for call in found if call.times > 0 and call.size > 1 and call.bytes > 0]


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _layers(work: Work) -> list[Call]:
    """Collectives inside layers: each GPU runs 1/pp of the model's layers."""
    policies = work.layout.policies
    sizes, strides = Placement().sizes(policies), Placement().strides(policies)
    micro, pp = _one(work.layout.micro_batches), _one(work.layout.pp)
    depth, repeated = work.model.mtp_layers, _repeated_share(work)
    parts: list[tuple[LayerWork, float, float]] = [
        (layer, count, repeated) for layer, count in zip(work.kinds, totals(work.model), strict=True)
    ]
    if depth:
        parts.append((work.kinds[work.model.pattern[-1]], float(depth), repeated))
    parts += [(work.embedding, 1.0, 0.0), (work.head, 1.0 + depth, 0.0)]
    found = []
    for layer, count, repeats in parts:
        for item in layer.collectives:
            again = 1.0 + repeats if item.phase == "forward" and item.axis == "tp" else 1.0
            axis = "ep" if item.axis == "etp" else item.axis
            skew = work.stack.expert_imbalance if item.op == "all_to_all" else 1.0
            times = _one(item.count) * again * count * micro / pp
            found.append(Call(
                axis=axis, lane=axis, op=item.op, bytes=_one(item.bytes), times=times, group=item.axis,
                size=int(_one(sizes[item.axis])), stride=int(_one(strides[item.axis])), skew=skew,
            ))  # fmt: skip
    return found


def _repeated_share(work: Work) -> float:
    """Share of the layers whose forward collectives run again in full recompute."""
    policies = work.layout.policies
    if policies.recompute[0] != 2 or not work.stack.full_recompute_keeps_comm:
        return 0.0
    asked, per_stage = _one(policies.recompute_layers), max(work.model.layers / _one(work.layout.pp), 1.0)
    return 1.0 if asked < 0 else min(asked / per_stage, 1.0)


def _pipeline(work: Work) -> list[Call]:
    """Activations forward and gradients back over every cut between chunks."""
    layout = work.layout
    pp, chunks = _one(layout.pp), _one(layout.pp) * _one(layout.vpp)
    if pp < 2:
        return []
    stride = int(_one(Placement().strides(layout.policies)["pp"]))
    wraps = chunks > pp and NEEDS[SCHEDULES[int(layout.policies.schedule[0])]].chunks == "many"
    return [Call(
        axis="pp", lane="pp", op="send", bytes=_one(transfer_bytes(work)), times=2.0 * (chunks - 1) / pp
        * _one(layout.micro_batches), group="pp", size=2, stride=stride, wraps=wraps,
    )]  # fmt: skip


def _gradients(work: Work) -> list[Call]:
    layout = work.layout
    strides = Placement().strides(layout.policies)
    dense, expert = work.parameters
    groups = (
        (float(dense.mean()), "dp_cp", _one(layout.grad_ranks), _one(layout.shard)),
        (float(expert.mean()), "edp", _one(layout.expert_ranks), _one(layout.expert_shard)),
    )
    found = []
    for parameters, group, ranks, shard in groups:
        if parameters:
            base = Call(axis="dp", lane="grad", op="", bytes=0.0, times=1.0, group=group, size=1,
                        stride=int(_one(strides[group])))  # fmt: skip
            found += _synchronise(work, base, parameters, ranks, shard)
    return found


def _synchronise(work: Work, base: Call, parameters: float, ranks: float, shard: float) -> list[Call]:
    """Gradients of one kind of parameters: reduced once a step, or for each micro-batch where they are kept sharded."""
    precision, stack = work.job.precision, work.stack
    zero, micro = int(work.layout.policies.zero[0]), _one(work.layout.micro_batches)
    grads, params = parameters * precision.grad_comm_bytes, parameters * precision.param_comm_bytes
    if zero == 0:
        return [_in_messages(replace(base, op="all_reduce", bytes=grads, size=int(ranks)), stack.bucket_bytes)]
    often = micro if zero == 2 or (zero == 3 and not _held(work)) else 1.0
    blocks = max(work.model.layers / _one(work.layout.pp), 1.0)
    limits = (grads / blocks, params / blocks) if zero == 3 else (stack.bucket_bytes, stack.gather_bucket_bytes)
    inner = replace(base, size=int(shard), part="shard" if shard < ranks else "whole")
    outer = replace(base, size=int(ranks / shard), stride=int(base.stride * shard), part="replicas")
    lanes = ("fsdp", "fsdp") if zero == 3 else ("grad", "param")
    return [
        _in_messages(replace(inner, lane=lanes[0], op="reduce_scatter", bytes=grads, times=often), limits[0]),
        _in_messages(replace(inner, lane=lanes[1], op="all_gather", bytes=params, times=_gathers(work, zero, micro)),
                     limits[1]),
        replace(outer, op="all_reduce", bytes=grads / shard, times=often if zero == 2 else 1.0),
    ]  # fmt: skip


def _in_messages(call: Call, most: float) -> Call:
    """A long buffer goes in messages of at most so many bytes."""
    if call.bytes <= most:
        return call
    return replace(call, bytes=most, times=call.times * call.bytes / most)


def _gathers(work: Work, zero: int, micro: float) -> float:
    """ZeRO-3 gathers before the forward and before the backward of each micro-batch, unless a pipeline keeps them."""
    return 2.0 * micro if zero == 3 and not _held(work) else 1.0


def _held(work: Work) -> bool:
    """A pipeline keeps gathered parameters and whole gradients through the step."""
    return bool(work.layout.policies.pp[0] > 1 and not work.stack.regather_with_pp)
