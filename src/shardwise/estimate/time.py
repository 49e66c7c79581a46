"""Step time in closed form: the slowest stage, the idle time around it, and what communication leaves exposed."""

from dataclasses import dataclass

import numpy as np

from shardwise.cost.gpu import memory_seconds
from shardwise.estimate.layers import LayerSeconds, Machine, layer_seconds
from shardwise.schedules import schedules
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import SCHEDULES, Ints
from shardwise.work import Work
from shardwise.work.layout import Numbers, sharded_over
from shardwise.work.parameters import Counts, stage_parameters
from shardwise.work.stages import Grid, totals

PARTS = (
    "forward", "backward", "recompute", "tp_comm", "cp_comm", "ep_comm", "pp_comm", "fsdp_comm", "host",
    "bubble", "grad_comm", "param_comm", "optimizer", "other",
)  # fmt: skip


@dataclass(frozen=True)
class Times:
    step_s: Numbers
    parts: dict[str, Numbers]
    """seconds of the step by cause; they add up to step_s"""
    hidden: dict[str, Numbers]
    """communication that ran under compute, by kind: it costs no step time"""
    stage_s: Grid
    """one micro-batch, forward and backward, on each evaluated stage"""
    bubble_share: Numbers


@dataclass(frozen=True)
class _Unit:
    """Exposed seconds of one layer or end for one micro-batch, by part."""

    parts: dict[str, Numbers]
    hidden: dict[str, Numbers]
    total: Numbers


def step_times(work: Work, machine: Machine, cluster: Cluster) -> Times:
    layout, stack = work.layout, work.stack
    kinds = [layer_seconds(k, layout, machine, stack.ops_per_layer) for k in work.kinds]
    ends = [layer_seconds(k, layout, machine, 6.0) for k in (work.embedding, work.head)]
    repeats = _recompute_share(work)
    gathers = _Gathers(work, machine)
    units = [_unit(s, work, machine, repeats, gathers, c) for s, c in zip(kinds, work.counts.kinds, strict=True)]
    embedding = _unit(ends[0], work, machine, None, gathers, work.counts.embedding)
    head = _unit(ends[1], work, machine, None, gathers, work.counts.head_alone)
    if work.model.mtp_layers:
        head = _with_mtp(head, units[work.model.pattern[-1]], work.model.mtp_layers)
    stages = work.stages
    stage = stages.first * embedding.total[:, None] + stages.last * head.total[:, None]
    for unit, count in zip(units, stages.kinds, strict=True):
        stage = stage + count * unit.total[:, None]
    slowest = np.argmax(stage, axis=1)
    rows = np.arange(len(slowest))
    micro = layout.micro_batches
    weights = [(u, c[rows, slowest]) for u, c in zip(units, stages.kinds, strict=True)]
    weights += [(embedding, stages.first[rows, slowest]), (head, stages.last[rows, slowest])]
    parts = {name: np.zeros_like(layout.tp) for name in PARTS}
    hidden: dict[str, Numbers] = {}
    for unit, weight in weights:
        for name, value in unit.parts.items():
            parts[name] = parts[name] + micro * weight * value
        for name, value in unit.hidden.items():
            hidden[name] = hidden.get(name, 0.0) + micro * weight * value
    traversal = embedding.total + head.total
    for unit, count in zip(units, totals(work.model), strict=True):
        traversal = traversal + count * unit.total
    longest = stage[rows, slowest]
    parts["bubble"], parts["pp_comm"] = _pipeline(work, machine, traversal, longest)
    forward = sum(
        (w * (s.forward + s.forward_comm["tp"]) for s, (_, w) in zip(kinds, weights, strict=False)), start=0.0
    )
    _synchronise(work, machine, parts, hidden, forward, longest - forward)
    parts["optimizer"] = _optimizer(work, machine, cluster)
    nodes = np.maximum(layout.dp * layout.tp * layout.pp * layout.cp / cluster.node_size, 1.0)
    busy = sum(parts.values(), start=0.0)
    parts["other"] = busy * stack.jitter * np.log2(nodes) + stack.step_overhead_s
    step = busy + parts["other"]
    return Times(step_s=step, parts=parts, hidden=hidden, stage_s=stage, bubble_share=parts["bubble"] / step)


def _recompute_share(work: Work) -> Numbers:
    """Share of a stage's layers that recompute."""
    policies = work.layout.policies
    per_stage = np.maximum(work.model.layers / work.layout.pp, 1.0)
    share = np.where(policies.recompute_layers < 0, 1.0, np.minimum(policies.recompute_layers / per_stage, 1.0))
    return np.where(policies.recompute > 0, share, 0.0)


class _Gathers:
    """ZeRO-3: seconds to gather a part's parameters and to reduce its gradients, for one micro-batch."""

    def __init__(self, work: Work, machine: Machine) -> None:
        self.layout, self.machine = work.layout, machine
        self.on = (work.layout.policies.zero == 3).astype(np.float64)
        self.any = bool(self.on.any())
        # without per-micro-batch reduction gradients stay unsharded until the last one
        often = machine.stack.grad_sync_every_micro_batch
        once = 1.0 / work.layout.micro_batches
        self.reductions = self.on * (1.0 if often else once)
        held = (work.layout.pp > 1) & (not machine.stack.regather_with_pp)
        # both gathers of a micro-batch, or one for the whole step
        self.gathers = self.on * np.where(held, 0.5 * once, 1.0)

    def of(self, counts: Counts) -> tuple[Numbers, Numbers]:
        layout, machine = self.layout, self.machine
        params, grads = machine.precision.param_comm_bytes, machine.precision.grad_comm_bytes
        stride = machine.strides["dp_cp"]
        dense = counts.dense_per_rank(layout)
        gather = machine.over("all_gather", dense * params, layout.shard, stride)
        reduce = machine.over("reduce_scatter", dense * grads, layout.shard, stride)
        if counts.expert:
            expert = counts.expert_per_rank(layout)
            stride = machine.strides["edp"]
            gather = gather + machine.over("all_gather", expert * params, layout.expert_shard, stride)
            reduce = reduce + machine.over("reduce_scatter", expert * grads, layout.expert_shard, stride)
        return gather * self.gathers, reduce * self.reductions


def _unit(
    seconds: LayerSeconds, work: Work, machine: Machine, repeats: Numbers | None, gathers: _Gathers, counts: Counts
) -> _Unit:
    layout, stack = work.layout, machine.stack
    policies = layout.policies
    exposed_tp = 1.0 - stack.hidden_share * policies.overlap_tp
    exposed_ep = 1.0 - stack.overlap_ep
    recompute, repeated_tp = np.zeros_like(layout.tp), 0.0
    if repeats is not None:
        full = (policies.recompute == 2) * repeats
        rest = stack.selective_repeat * (seconds.forward - seconds.attention)
        recompute = full * seconds.forward + (policies.recompute == 1) * repeats * (seconds.attention + rest)
        repeated_tp = full * seconds.forward_comm["tp"] * stack.full_recompute_keeps_comm
    tp_total = seconds.forward_comm["tp"] + seconds.backward_comm["tp"] + repeated_tp
    ep_total = seconds.forward_comm["ep"] + seconds.backward_comm["ep"]
    # ring attention sends the next block while it computes this one
    cp_forward = np.maximum(seconds.forward_comm["cp"] - stack.hidden_share * seconds.attention, 0.0)
    cp_backward = np.maximum(seconds.backward_comm["cp"] - stack.hidden_share * 2.0 * seconds.attention, 0.0)
    parts = {
        "forward": seconds.forward,
        "backward": seconds.backward,
        "recompute": recompute,
        "tp_comm": tp_total * exposed_tp,
        "cp_comm": cp_forward + cp_backward,
        "ep_comm": ep_total * exposed_ep,
    }
    cp_total = seconds.forward_comm["cp"] + seconds.backward_comm["cp"]
    hidden = {"tp": tp_total * (1 - exposed_tp), "ep": ep_total * (1 - exposed_ep), "cp": cp_total - parts["cp_comm"]}
    total = sum(parts.values(), start=0.0)
    ops = seconds.ops * (3.0 + (0.0 if repeats is None else (policies.recompute == 2) * repeats))
    host = np.maximum(ops * stack.host_s_per_op - total, 0.0)
    parts["host"] = host
    if stack.grad_accumulation_bytes:
        held = counts.dense_per_rank(layout) + counts.expert_per_rank(layout)
        accumulate = memory_seconds(machine.curve, held * stack.grad_accumulation_bytes)
        parts["backward"] = parts["backward"] + accumulate
        host = host + accumulate
    total = total + host
    if gathers.any:
        parts["fsdp_comm"], hidden["fsdp"] = _fsdp(total, gathers, counts, policies.overlap_param, stack.hidden_share)
        slowed = stack.overlap_slowdown * hidden["fsdp"]
        parts["fsdp_comm"] = parts["fsdp_comm"] + slowed
        total = total + parts["fsdp_comm"]
    return _Unit(parts=parts, hidden=hidden, total=total)


def _fsdp(
    total: Numbers, gathers: _Gathers, counts: Counts, overlap: Numbers, hidden_share: float
) -> tuple[Numbers, Numbers]:
    """Gather before the forward and again before the backward, reduce after it; each hides under a neighbour's compute."""
    gather, reduce = gathers.of(counts)
    window = hidden_share * total
    communication = 2.0 * gather + reduce
    hidden = np.where(overlap > 0, np.minimum(communication * hidden_share, window), 0.0)
    return communication - hidden, hidden


def _with_mtp(head: _Unit, layer: _Unit, depth: int) -> _Unit:
    """Every extra prediction layer runs one more layer and the head once more, on the last stage."""
    parts = {n: head.parts.get(n, 0.0) * (1 + depth) + layer.parts.get(n, 0.0) * depth for n in layer.parts}
    hidden = {n: head.hidden.get(n, 0.0) * (1 + depth) + layer.hidden.get(n, 0.0) * depth for n in layer.hidden}
    return _Unit(parts=parts, hidden=hidden, total=head.total * (1 + depth) + layer.total * depth)


def _pipeline(work: Work, machine: Machine, traversal: Numbers, longest: Numbers) -> tuple[Numbers, Numbers]:
    """Idle time before and after the steady phase, and exposed transfers between stages."""
    layout, stack = work.layout, machine.stack
    policies = layout.policies
    piped = layout.pp > 1
    idle = np.zeros_like(layout.tp)
    for code, name in enumerate(SCHEDULES):
        chosen = policies.schedule == code
        if chosen.any():
            idle = np.where(chosen, schedules()[name].idle(layout.pp, layout.vpp, layout.micro_batches), idle)
    share = np.where(piped, idle / np.maximum(layout.pp - 1, 1.0), 0.0)
    bubble = share * np.maximum(traversal - longest, 0.0)
    split = layout.tp if stack.scatter_gather_p2p else layout.sp
    message = 2.0 * layout.tokens * work.model.hidden / split
    send = machine.over("send", message, np.minimum(layout.pp, 2.0), machine.strides["pp"])
    leaves = machine.strides["pp"] * layout.pp > machine.network.cluster.levels[0].degree
    send = send + np.where(leaves, stack.transfer_overhead_s, 0.0)
    steady = np.where(policies.overlap_pp > 0, 1.0 - stack.hidden_share, 1.0) * layout.micro_batches * layout.vpp
    transfers = np.where(piped, 2.0 * send * (steady + (layout.pp - 1)), 0.0)
    return bubble, transfers


def _synchronise(
    work: Work,
    machine: Machine,
    parts: dict[str, Numbers],
    hidden: dict[str, Numbers],
    forward: Numbers,
    backward: Numbers,
) -> None:
    """Once per step: gradient reduction under the last backward, parameter gather under the next forward."""
    layout, stack = work.layout, machine.stack
    policies = layout.policies
    dense, expert = (grid.max(axis=1) for grid in stage_parameters(work.counts, work.layout, work.stages))
    reduce, gather = _sync_seconds(work, machine, dense, layout.grad_ranks, layout.shard, "dp_cp")
    if expert.any():
        more = _sync_seconds(work, machine, expert, layout.expert_ranks, layout.expert_shard, "edp")
        reduce, gather = reduce + more[0], gather + more[1]
    for name, seconds, window, overlap in (
        ("grad_comm", reduce, backward, policies.overlap_grad),
        ("param_comm", gather, forward, policies.overlap_param),
    ):
        under = np.where(overlap > 0, np.minimum(seconds * stack.hidden_share, stack.hidden_share * window), 0.0)
        parts[name] = seconds - under + stack.overlap_slowdown * under
        hidden[name.removesuffix("_comm")] = under


def _sync_seconds(
    work: Work, machine: Machine, parameters: Numbers, ranks: Numbers, shard: Numbers, axis: str
) -> tuple[Numbers, Numbers]:
    """(reduce, gather) for one kind of parameters. ZeRO-3 did both inside the layers, except across its replicas."""
    layout, precision = work.layout, machine.precision
    zero = layout.policies.zero
    stride = machine.strides[axis]
    grads, params = parameters * precision.grad_comm_bytes, parameters * precision.param_comm_bytes
    sharded = (zero == 1) | (zero == 2)
    reduce = np.zeros_like(layout.tp)
    if (zero == 0).any():
        reduce = np.where(zero == 0, _bucketed(machine, "all_reduce", grads, ranks, stride), reduce)
    gather = np.zeros_like(layout.tp)
    if sharded.any():
        reduce = np.where(sharded, _bucketed(machine, "reduce_scatter", grads, shard, stride), reduce)
        gather = np.where(sharded, _bucketed(machine, "all_gather", params, shard, stride), gather)
    replicas = ranks / shard
    if (replicas > 1).any():
        across = machine.over("all_reduce", grads / shard, replicas, stride * shard.astype(np.int64))
        reduce = reduce + np.where(zero > 0, across, 0.0)
    repeated = machine.stack.grad_sync_every_micro_batch * (zero == 2)
    return reduce * np.where(repeated, layout.micro_batches, 1.0), gather


def _bucketed(machine: Machine, op: str, bytes_: Numbers, size: Numbers, stride: Ints) -> Numbers:
    """Seconds of a long buffer sent in messages of the stack's bucket size."""
    stack = machine.stack
    bucket = stack.gather_bucket_bytes if op == "all_gather" else stack.bucket_bytes
    message = np.minimum(bytes_, bucket)
    return machine.over(op, message, size, stride) * (bytes_ / np.maximum(message, 1.0))


def _optimizer(work: Work, machine: Machine, cluster: Cluster) -> Numbers:
    layout, job, stack = work.layout, work.job, machine.stack
    precision, optimizer = job.precision, job.optimizer
    dense, expert = stage_parameters(work.counts, work.layout, work.stages)
    zero = layout.policies.zero
    own = (
        dense / sharded_over(zero, 1, layout.shard)[:, None]
        + expert / sharded_over(zero, 1, layout.expert_shard)[:, None]
    )
    owned = own.max(axis=1)
    state = precision.master_bytes or precision.param_bytes
    moved = (
        precision.grad_bytes + 2 * state + 2 * optimizer.moments * precision.moment_bytes + 2 * optimizer.extra_bytes
    )
    moved += precision.param_bytes if precision.master_bytes else 0.0
    seconds = memory_seconds(machine.curve, owned * moved * stack.optimizer_passes, "optimizer")
    if optimizer.flops_per_param:
        width = float(work.model.hidden)
        seconds = seconds + owned * width * optimizer.flops_per_param / (0.5 * cluster.gpu.peak("bf16"))
    offloaded = (layout.policies.offload == 1) | (layout.policies.offload == 3)
    if offloaded.any():
        # gradients go down and weights come back over PCIe; the host updates at its memory's pace, which is slower
        host = owned * moved / HOST_BYTES_PER_S
        wire = owned * (precision.grad_bytes + precision.param_bytes) / cluster.gpu.pcie_bandwidth
        seconds = np.where(offloaded, host + wire, seconds)
    return seconds


HOST_BYTES_PER_S = 25e9
"""host memory bandwidth one GPU's share of the CPUs can use for the optimizer (200 GB/s a node of 8)"""
