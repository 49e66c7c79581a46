"""Memory of each pipeline stage, by kind. "The parameters fit" is never the answer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.plugins.schedules import used
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.policy import SHARES
from shardwise.spec.software import Stack
from shardwise.step.estimate.gathered import gathered_bytes, recomputed_share, tables_and_layers
from shardwise.step.estimate.synced import SyncChoice
from shardwise.step.estimate.synced.price import state_bytes
from shardwise.work import Work
from shardwise.work.layout import Numbers, copies_held, sharded_over
from shardwise.work.ops import LayerWork, element_bytes
from shardwise.work.parameter_messages import reduced_last
from shardwise.work.parameters import stage_shards
from shardwise.work.runs import Runs
from shardwise.work.stages import Grid, largest
from shardwise.work.updates import Updates

KINDS = ("parameters", "gradients", "optimizer", "activations", "logits", "gathered", "working", "buffers", "overhead")


@dataclass(frozen=True)
class Memory:
    kinds: dict[str, Grid]
    """bytes by kind on each evaluated stage"""
    total: Grid
    peak: Numbers
    fullest: Numbers
    """number of the fullest stage"""
    in_flight: Grid
    host_bytes: Numbers
    """moved to the host by offloading, per GPU"""

    def spread(self, runs: Runs) -> "Memory":
        return Memory(
            kinds={kind: runs.rows(grid) for kind, grid in self.kinds.items()},
            total=runs.rows(self.total),
            peak=runs.rows(self.peak),
            fullest=runs.rows(self.fullest),
            in_flight=runs.rows(self.in_flight),
            host_bytes=runs.rows(self.host_bytes),
        )


def memory_of(work: Work, sync: SyncChoice | None = None, cluster: Cluster | None = None) -> Memory:
    """`cluster`: whose memory what is freed late must find room in; without one there is room for all of it."""
    layout, stack, precision = work.layout, work.stack, work.job.precision
    stages, (dense, expert) = work.stages, work.parameters
    in_flight = _in_flight(work)
    activations, logits = _activations(work, in_flight)
    # the loss is over before the first layer's backward begins: the two never stand together
    layers_need = _working(work)
    working = np.maximum(layers_need, logits) - logits
    optimizer = _optimizer(work, dense, expert)
    kept, updated = _left_here(work, activations, in_flight, optimizer)
    here = _shards_here(work)
    kinds = {
        "parameters": _sharded(work, dense, expert, 3) * precision.param_bytes * here["weights"] + _frozen(work),
        "gradients": _gradients(work, dense, expert) * here["gradients"],
        "optimizer": updated,
        "activations": kept * stack.memory.act_overhead,
        "logits": logits,
        "gathered": gathered_bytes(work, dense + expert, logits, layers_need),
        "working": working,
        "buffers": _buffers(work, dense + expert),
    }
    if sync is not None:
        kinds["sync"] = state_bytes(sync, work)
    leaving = sum(kinds[kind] for kind in ("activations", "logits", "gathered", "working"))
    updating = _sharded(work, dense, expert, 1) * (stack.memory.update_copies * precision.moment_bytes)
    if work.updates is not None:
        updating = updating + _scratch(work.updates)
    once = stack.memory.frees_gradients & (layout.micro_batches == 1)[:, None]
    if once.any():
        late = _late_in_backward(work, dense + expert, kinds["gradients"], kinds["activations"], layers_need)
        late = np.maximum(late, kinds["gradients"] + updating)
        kinds["gradients"] = np.where(once, np.maximum(late - leaving, 0.0), kinds["gradients"])
    kinds["working"] = kinds["working"] + np.where(once, 0.0, np.maximum(updating - leaving, 0.0))
    tensors = sum(kinds.values(), start=np.zeros_like(stages.index))
    if stack.memory.gathered_kept_less >= 0:
        freed_late = _freed_late(work, in_flight, tensors, cluster)
        tensors, kinds["buffers"] = tensors + freed_late, kinds["buffers"] + freed_late
    kinds["overhead"] = tensors * stack.memory.fragmentation + stack.memory.base_bytes
    total = tensors + kinds["overhead"]
    peak, fullest = largest(total)
    return Memory(
        kinds=kinds,
        total=total,
        peak=peak,
        fullest=stages.index[np.arange(len(total)), fullest],
        in_flight=in_flight,
        host_bytes=largest((activations - kept) + (optimizer - updated))[0],
    )


def _left_here(work: Work, activations: Grid, in_flight: Grid, optimizer: Grid) -> tuple[Grid, Grid]:
    """Activations and optimizer that stay on the GPU. What goes is there until it is copied: one layer of one
    micro-batch at a time."""
    policies = work.layout.policies
    if not policies.offload.any():
        return activations, optimizer
    share = (policies.offload_share / SHARES)[:, None]
    leaving = activations / np.maximum(work.stages.layers * in_flight, 1.0)
    kept = np.minimum((1.0 - share) * activations + leaving, activations)
    away = np.isin(policies.offload, (1, 3))[:, None]
    return (
        np.where((policies.offload >= 2)[:, None], kept, activations),
        np.where(away, (1.0 - share) * optimizer, optimizer),
    )


def _shards_here(work: Work) -> dict[str, Grid]:
    """Share of a rank's shards of weights and of gradients that stays on the GPU where its optimizer is offloaded."""
    policies, left = work.layout.policies, work.stack.memory.leaves_with_moments
    away = np.isin(policies.offload, (1, 3)) * policies.offload_share / SHARES
    held = {"weights": left == "weights", "gradients": left != ""}
    return {
        kind: (1.0 - leaves * away * (policies.zero >= stage))[:, None]
        for (kind, leaves), stage in zip(held.items(), (3, 2), strict=True)
    }


def free_bytes(peak: float, gpu: Gpu, stack: Stack) -> float:
    """Memory of a GPU that neither a step at its fullest nor the stack's reserve takes; below 0: it does not fit."""
    return gpu.memory_bytes - stack.memory.reserve_bytes - peak


def _sharded(work: Work, dense: Grid, expert: Grid, stage: int) -> Grid:
    layout = work.layout
    zero = layout.policies.zero
    divided = (
        dense / sharded_over(zero, stage, layout.shard)[:, None]
        + expert / sharded_over(zero, stage, layout.expert_shard)[:, None]
    )
    by_tensor = (zero == 3)[:, None]
    if not work.stack.network.fills_shards or not by_tensor.any():
        return divided
    filled = stage_shards(work.model, layout, work.stages, work.stack)
    return np.where(by_tensor, (filled[0] + filled[1]) * copies_held(layout.policies)[:, None], divided)


def _gradients(work: Work, dense: Grid, expert: Grid) -> Grid:
    """What a rank adds up, and copies beside it. Where only the last micro-batch is reduced, whole sums turn into
    shards layer by layer. In a round through the chunks of a stage, all backwards of a chunk follow each other: where
    it is reduced behind them, its sums and those still on their way are the only whole ones."""
    stack, precision, layout = work.stack, work.job.precision, work.layout
    held = _sharded(work, dense, expert, 2) * precision.grad_bytes
    summed = reduced_last(layout, stack.network) & (layout.policies.zero > 1) & (layout.micro_batches > 1)
    soon = (layout.micro_batches <= layout.pp) | (stack.network.reduces_last == "rounds")
    whole = np.where(soon, np.minimum(2.0 / layout.vpp, 1.0), 1.0)
    whole = np.where(summed, whole, 0.0)[:, None] * (dense + expert) * precision.grad_comm_bytes
    return np.maximum(held, whole) + (dense + expert) * stack.memory.grad_copy_bytes


def _frozen(work: Work) -> Grid | float:
    """Bytes of weights that are not trained: ZeRO 3 shards them with the others."""
    if work.frozen is None:
        return 0.0
    zero, shards = work.layout.policies.zero, (work.layout.shard, work.layout.expert_shard)
    held = (grid / sharded_over(zero, 3, ranks)[:, None] for grid, ranks in zip(work.frozen, shards, strict=True))
    return sum(held, start=np.zeros_like(work.stages.index))


def _optimizer(work: Work, dense: Grid, expert: Grid) -> Grid:
    """The copy in full precision, and what the optimizer keeps."""
    precision = work.job.precision
    if work.updates is not None:
        return work.updates.updated * precision.master_bytes + work.updates.state_bytes
    each = work.job.optimizer.rule.element_bytes(precision.moment_bytes)
    return _sharded(work, dense, expert, 1) * (precision.master_bytes + each)


def _scratch(updates: Updates) -> float:
    """While the optimizer computes with its largest matrix."""
    return max((updates.rule.scratch_bytes(m.rows, m.columns) for m in updates.matrices), default=0.0)


def _in_flight(work: Work) -> Grid:
    layout = work.layout
    index = work.stages.index
    pp, vpp, micro = (a[:, None] for a in (layout.pp, layout.vpp, layout.in_pass))
    in_flight = np.ones_like(index)
    for code, schedule in used(layout.policies.schedule):
        chosen = (layout.policies.schedule == code)[:, None]
        in_flight = np.where(chosen, schedule.in_flight(index, pp, vpp, micro), in_flight)
    return np.maximum(in_flight, 1.0 / vpp)


@dataclass(frozen=True)
class ActivationPieces:
    """What memory over time is built from. Where no backward is split the closed form is `in flight x saved + once`."""

    saved: Grid
    """each micro-batch adds this"""
    deferred: Grid
    """and keeps this while only its weight gradient is missing"""
    once: Grid
    """while a backward runs"""
    logits: Grid


def activation_pieces(work: Work) -> ActivationPieces:
    overhead, one = work.stack.memory.act_overhead, np.ones_like(work.stages.index)
    saved, deferred = _saved(work)
    once, logits = _head_held(work, one)
    piled = np.where(_piles_up(work)[:, None], once, 0.0)
    return ActivationPieces((saved + piled) * overhead, deferred * overhead, (once - piled) * overhead, logits)


def _activations(work: Work, in_flight: Grid) -> tuple[Grid, Grid]:
    saved, deferred = _saved(work)
    rest, logits = _head_held(work, in_flight)
    return _fullest(work, saved, deferred, saved * in_flight + rest, rest), logits


def _fullest(work: Work, saved: Grid, deferred: Grid, held: Grid, rest: Grid) -> Grid:
    """Of the moments a schedule that splits the backward may be fullest at; `held` for the others."""
    layout, index = work.layout, work.stages.index
    pp, vpp, micro = (a[:, None] for a in (layout.pp, layout.vpp, layout.in_pass))
    tensor = (element_bytes(work.job.precision) * layout.tokens * work.model.streams * work.model.hidden)[:, None]
    for code, schedule in used(layout.policies.schedule):
        if schedule.corners is not None:
            (whole, late), *after = schedule.corners(index, pp, vpp, micro)
            moments = [saved * whole + deferred * late + rest]
            for whole, late in after:
                # an input gradient keeps an output gradient before it frees anything, and a layer's input is freed last
                begun = saved * (whole + 1 / vpp) + deferred * (late - 1 / vpp) + tensor
                done = saved * whole + deferred * late + tensor / layout.sp[:, None]
                moments.append((late > 0) * np.maximum(begun, done))
            chosen = (layout.policies.schedule == code)[:, None]
            held = np.where(chosen, np.maximum.reduce(moments), held)
    return held


def _saved(work: Work) -> tuple[Grid, Grid]:
    """Of the layers, for each micro-batch: whole, and where only weight gradients are missing."""
    stages, share = work.stages, recomputed_share(work)
    held, deferred = np.zeros_like(stages.index), np.zeros_like(stages.index)
    for layer, count in zip(work.kinds, stages.kinds, strict=True):
        none, short = saved_and_left(work, layer)
        held = held + count * (none[:, None] - share * (none - short)[:, None])
        deferred = deferred + count * work.runs.spread(layer.deferred_bytes)[:, None]
    embedding = work.runs.spread(work.embedding.saved_bytes()[0])
    held = held + stages.first * embedding[:, None]
    if work.model.mtp_layers:
        times = stages.last * work.model.mtp_layers
        for extra in (work.kinds[kind] for kind in work.model.mtp_kinds):
            held = held + times * work.runs.spread(extra.saved_bytes()[0])[:, None]
            deferred = deferred + times * work.runs.spread(extra.deferred_bytes)[:, None]
    return held, deferred


def saved_and_left(work: Work, layer: LayerWork) -> tuple[Numbers, Numbers]:
    """Bytes of a layer and micro-batch: all that the backward needs, and what a layer that recomputes keeps of it."""
    policies, part = work.layout.policies, work.stack.memory.selective_kept
    none, selective, full = map(work.runs.spread, layer.saved_bytes())
    whole = part if layer.modules is None else np.where(policies.recompute_modules > 0, 1.0, part)
    return none, np.where(policies.recompute == 2, full, full + whole * (selective - full))


def _head_held(work: Work, in_flight: Grid) -> tuple[Grid, Grid]:
    """What the head keeps besides its logits, and those. Its weight gradient is never put off: the logits' gradient
    would have to stay."""
    head = work.runs.spread(next(t.bytes for t in work.head.saved if t.name == "logits and loss"))
    rest = work.runs.spread(work.head.saved_bytes()[0]) - head
    depth = 1 + work.model.mtp_layers
    # where the head is there for half of the micro-batches it still keeps one whole
    heads = np.ceil(work.stages.last) * np.where(_piles_up(work)[:, None], in_flight, 1.0)
    return heads * (depth * rest)[:, None], heads * (depth * head)[:, None]


def _piles_up(work: Work) -> NDArray[np.bool_]:
    codes = work.layout.policies.schedule
    return np.isin(codes, [code for code, schedule in used(codes) if schedule.piles_up])


def _late_in_backward(work: Work, parameters: Grid, gradients: Grid, activations: Grid, working: Grid) -> Grid:
    """When activations have left and gradients have come: all of them, or the first layer still at work without its."""
    layers = np.maximum(work.stages.layers, 1.0)
    tables, rest = tables_and_layers(work, parameters)
    coming = gradients / np.maximum(parameters, 1.0) * (tables * work.stages.first + rest / layers)
    held = activations / layers + rest / layers * work.job.precision.cast_bytes
    return np.maximum(gradients, gradients - coming + held + working)


def _working(work: Work) -> Grid:
    """Short-lived tensors of the largest layer's backward; a layer that recomputes also needs once what it makes again:
    its whole set, or that of its modules."""
    full = work.layout.policies.recompute == 2
    most = np.zeros_like(work.stages.index)
    for layer, count in zip(work.kinds, work.stages.kinds, strict=True):
        none, selective, short = map(work.runs.spread, layer.saved_bytes())
        made_again = np.where(full, none - short, 0.0)
        if layer.modules is not None:
            made_again = np.where(work.layout.policies.recompute_modules > 0, none - selective, made_again)
        needed = work.runs.spread(layer.working_bytes) + made_again
        most = np.maximum(most, (count > 0) * needed[:, None])
    return most


def _buffers(work: Work, parameters: Grid) -> Grid:
    """Gradient buckets: one of them in communication precision when it is not the accumulation buffer's, or all of
    those that DDP keeps."""
    layout, precision = work.layout, work.job.precision
    reduced = (layout.grad_ranks > 1)[:, None]
    every = parameters * precision.grad_comm_bytes
    bucket = np.minimum(every, work.stack.network.bucket_bytes) * (precision.grad_comm_bytes != precision.grad_bytes)
    kept = work.stack.memory.keeps_buckets & (layout.policies.zero == 0)[:, None]
    return np.where(reduced, np.where(kept, every, bucket), 0.0)


def _freed_late(work: Work, in_flight: Grid, live: Grid, cluster: Cluster | None) -> Grid:
    """Gathered inputs of the split products, beyond each rank's own share of them: done with, but given back only when
    the communication stream is seen to have passed them. Where they find no room beside live tensors the allocator
    waits for it."""
    layout, stack = work.layout, work.stack
    staged = layout.pp > 1
    held = np.maximum(in_flight - np.where(staged, float(stack.memory.gathered_kept_less), 0.0)[:, None], 0.0)
    inputs = np.zeros_like(in_flight)
    for layer, count in zip(work.kinds, work.stages.kinds, strict=True):
        own = sum((work.runs.spread(t.bytes) for t in layer.saved if t.name == "norm output"), start=0.0 * layout.tp)
        inputs = inputs + count * (own * (layout.sp - 1.0))[:, None]
    late = held * inputs
    if cluster is None:
        return late
    asked = (live + late) * (1.0 + stack.memory.fragmentation) + stack.memory.base_bytes + stack.memory.reserve_bytes
    return np.where(asked <= cluster.gpu.memory_bytes, late, 0.0)
