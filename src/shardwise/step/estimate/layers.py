"""Seconds of one layer (or end) for one micro-batch: compute and communication, by phase."""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Ints
from shardwise.cost.gpu import (
    attention_seconds,
    gemm_seconds,
    memory_seconds,
    plain_attention_seconds,
    rounding_seconds,
    sparse_attention_seconds,
)
from shardwise.spec.job import Precision
from shardwise.spec.software import Stack
from shardwise.step.estimate.dispatch import layer_operations, unfused_share
from shardwise.step.estimate.layer_messages import message_seconds
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.odd_rows import EVEN, KEPT_APART_TIME, WITH_COPY_ENGINE, misalignment, odd_rows
from shardwise.work.layout import Layout, Numbers
from shardwise.work.modules import CORE
from shardwise.work.ops import SCAN_BYTES_PER_SM_S, Attend, Gemm, Index, LayerWork, Scan, UnfusedOperations, Value
from shardwise.work.runs import Runs
from shardwise.work.unfused import ATOMIC_ADDS_PER_SM_S

UNEVEN_ATTENTION_TIME = 8.0
"""time of attention's batched products over heads whose width is no multiple of EVEN: they leave the tensor cores, 312
to 39 TFLOP/s in bf16 on an A100. Runs of BigScience with heads of 108 and 150 ask for 8 to 9"""


@dataclass(frozen=True)
class LayerSeconds:
    forward: Numbers
    backward: Numbers
    weight: Numbers
    """weight-gradient products, a part of `backward`: what a schedule may put off"""
    attention: Numbers
    """forward time of the attention core, a part of `forward`"""
    attention_backward: Numbers
    """and its backward, a part of `backward`"""
    selective: Numbers
    """forward time of what selective recompute repeats: that core, the up projections of latents, norms and the
    experts' activation, or the modules a policy names"""
    forward_comm: dict[str, Numbers]
    """by axis, before any overlap"""
    backward_comm: dict[str, Numbers]
    ops: Value
    """operations the host launches in the forward pass, collectives aside"""
    collectives: Numbers
    """tensor- and expert-parallel collectives of the forward and backward pass"""
    repeated_ops: Value = 0.0
    """operations the host launches to recompute modules"""
    forward_only: bool = False
    """no gradient passes: nothing is launched, repeated or sent for a backward"""

    def spread(self, runs: Runs) -> "LayerSeconds":
        """From one value per run of policies to one per policy."""
        if runs.of is None:
            return self
        return LayerSeconds(
            forward=runs.rows(self.forward),
            backward=runs.rows(self.backward),
            weight=runs.rows(self.weight),
            attention=runs.rows(self.attention),
            attention_backward=runs.rows(self.attention_backward),
            selective=runs.rows(self.selective),
            forward_comm={axis: runs.rows(seconds) for axis, seconds in self.forward_comm.items()},
            backward_comm={axis: runs.rows(seconds) for axis, seconds in self.backward_comm.items()},
            ops=runs.rows(self.ops) if isinstance(self.ops, np.ndarray) else self.ops,
            collectives=runs.rows(self.collectives),
            repeated_ops=runs.rows(self.repeated_ops) if isinstance(self.repeated_ops, np.ndarray) else 0.0,
            forward_only=self.forward_only,
        )


def layer_seconds(work: LayerWork, layout: Layout, machine: Machine, base_ops: float) -> LayerSeconds:
    stack = machine.stack
    zero = np.zeros_like(layout.tp)
    forward, backward, weight, raised = zero, zero, zero, zero
    for gemm in work.gemms:
        f, i, w = gemm_passes(gemm, machine)
        forward, backward, weight = forward + f, backward + (i + w), weight + w
        raised = raised + f if gemm.latent_up else raised
    attention = attention_backward = zero
    if work.attention is not None:
        attention, attention_backward = _attention(work.attention, layout, machine)
        forward, backward = forward + attention, backward + attention_backward
    if work.cross is not None:
        crossed, crossed_backward = _attention(work.cross, layout, machine)
        forward, backward = forward + crossed, backward + crossed_backward
    if work.index is not None:
        ranked, ranked_backward = _index(work.index, machine)
        forward, backward = forward + ranked, backward + ranked_backward
    if work.scan is not None:
        scanned, scanned_backward = _scan(work.scan, machine)
        forward, backward = forward + scanned, backward + scanned_backward
    passes = stack.kernels.pointwise_passes
    light = zero
    for part in work.pointwise:
        took = memory_seconds(machine.curve, part.forward_bytes * passes)
        forward = forward + took
        light = light + took if part.cheap_to_repeat else light
        backward = backward + memory_seconds(machine.curve, part.backward_bytes * passes)
    forward_comm, backward_comm, collectives = message_seconds(work.collectives, layout, machine)
    dense = base_ops * (stack.host.narrow_launches if machine.narrow else 1.0) + _further_products(work, stack)
    ops = work.extra_ops + (_operations(dense, machine) if work.routed else dense)
    for piece in work.unfused:
        took, took_backward, launches = _unfused(piece, machine)
        forward = forward + took
        light = light + took if piece.cheap_to_repeat else light
        backward = backward + took_backward
        ops = ops + launches
    gaps = ops * stack.host.gap_s_per_op
    forward, backward = forward + gaps, backward + 2.0 * gaps
    selective = attention
    if stack.memory.latent_recompute == "up" and any(gemm.latent_up for gemm in work.gemms):
        selective = raised
    elif any(part.cheap_to_repeat for part in work.pointwise):
        selective = light + np.where(layout.policies.attention > 0, attention, 0.0)
    if work.modules is not None:
        selective = np.where(work.modules > 0, _of_modules(work, work.modules, attention, machine), selective)
    return LayerSeconds(
        forward=forward,
        backward=zero if work.forward_only else backward,
        weight=weight,
        attention=attention,
        attention_backward=zero if work.forward_only else attention_backward,
        selective=selective,
        forward_comm=forward_comm,
        backward_comm=backward_comm,
        ops=ops,
        collectives=collectives,
        repeated_ops=stack.host.ops_per_recompute * work.regions,
        forward_only=work.forward_only,
    )


def _of_modules(work: LayerWork, named: Ints, attention: Numbers, machine: Machine) -> Numbers:
    """Forward seconds of the modules that a policy names."""
    seconds = np.where(named & CORE, attention, 0.0)
    for gemm in work.gemms:
        if gemm.repeated_by:
            seconds = seconds + np.where(named & gemm.repeated_by, gemm_passes(gemm, machine)[0], 0.0)
    passes = machine.stack.kernels.pointwise_passes
    for part in work.pointwise:
        took = memory_seconds(machine.curve, part.forward_bytes * passes)
        seconds = seconds + np.where(named & part.repeated_by, took, 0.0)
    for piece in work.unfused:
        seconds = seconds + np.where(named & piece.repeated_by, _unfused(piece, machine)[0], 0.0)
    return seconds


def _unfused(piece: UnfusedOperations, machine: Machine) -> tuple[Value, Value, Value]:
    """Seconds of the forward and of the backward pass, and launches of the forward."""
    share = _unfused_share(machine) if piece.of_experts else 1.0
    launches = share * piece.launches / 3.0
    added = piece.atomic_adds / (machine.network.cluster.gpu.sms * ATOMIC_ADDS_PER_SM_S)
    forward = memory_seconds(machine.curve, share * piece.forward_bytes, kernels=launches)
    backward = memory_seconds(machine.curve, share * piece.backward_bytes, kernels=2.0 * launches)
    return forward + added, backward + added, launches


def _operations(dense: float, machine: Machine) -> Value:
    """Of a layer of routed experts."""
    low, cluster = machine.narrow, machine.network.cluster
    return layer_operations(machine.stack, dense, low, cluster, machine.sizes["ep"], machine.strides["ep"])


def _further_products(work: LayerWork, stack: Stack) -> float:
    """Launches of products that a dense layer of attention and feed-forward does not have."""
    if work.attention is None or not stack.host.ops_per_product:
        return 0.0
    products = sum(gemm.low_precision and not gemm.grouped and not gemm.of_adapter for gemm in work.gemms)
    return stack.host.ops_per_product * max(products - (2 if work.routed else 4), 0)


def _unfused_share(machine: Machine) -> Value:
    low, cluster = machine.narrow, machine.network.cluster
    return unfused_share(machine.stack, low, cluster, machine.sizes["ep"], machine.strides["ep"])


def expert_seconds(work: LayerWork, machine: Machine, imbalance: Numbers) -> Numbers:
    """Products of the experts, forward and backward, on a rank with this many times the mean of tokens."""
    found = [gemm_passes(gemm, machine, imbalance) for gemm in work.gemms if gemm.grouped]
    return np.asarray(sum(sum(each, start=0.0 * imbalance) for each in found))


def gemm_passes(gemm: Gemm, machine: Machine, imbalance: Value | None = None) -> tuple[Numbers, Numbers, Numbers]:
    """Seconds of the forward, input-gradient and weight-gradient pass of one product; `imbalance`: by default the
    stack's."""
    curve, stack, precision = machine.curve, machine.stack, machine.precision
    dtype = precision.kernels if gemm.low_precision or not machine.narrow else "bf16"
    if gemm.grouped:
        efficiency = stack.kernels.kernel_efficiency * stack.experts.grouped_gemm_efficiency
        batch: Value | None = gemm.batch
        in_turn: Value = 1.0
        rows = gemm.m * (machine.fullest_share() if imbalance is None else imbalance)
    else:
        efficiency, batch, rows, in_turn = stack.kernels.kernel_efficiency, None, gemm.m, gemm.batch
    forward = gemm_seconds(curve, rows, gemm.n, gemm.k, dtype, batch=batch)
    input_grad = gemm_seconds(curve, rows, gemm.k, gemm.n, dtype, batch=batch)
    fp32 = precision.grad_bytes > 2
    weight_grad = gemm_seconds(curve, gemm.n, gemm.k, rows, dtype, batch=batch, wgrad=fp32, quantise=False)
    if dtype == precision.kernels:
        again = _rounded_again(gemm, rows, precision) * (1.0 if batch is None else batch)
        weight_grad = weight_grad + (rounding_seconds(curve, again, dtype) if np.any(again) else 0.0)
    passes = ((forward, True), (input_grad, gemm.input_grad), (weight_grad, gemm.weight_grad))
    slowed = _slowed(gemm, machine)
    first, second, third = (
        np.asarray(seconds * (in_turn * slow / efficiency if wanted else 0.0))
        for (seconds, wanted), slow in zip(passes, slowed, strict=True)
    )
    return first, second, third


def _rounded_again(gemm: Gemm, rows: Value, precision: Precision) -> Value:
    """Elements of a product's operands that are rounded beyond the input before the forward and the gradient before the
    backward: both once more for the weight's gradient where scales lie by rows, the input where it was kept in 16 bits,
    and the weight for the forward and the backward where nobody keeps it rounded and it is not sent so."""
    found: Value = 0.0
    if precision.rounds_each_way:
        found = found + (gemm.n + gemm.k) * rows
    elif precision.rounds_again:
        found = found + gemm.k * rows
    if precision.rounds_again and precision.param_comm_bytes > 1:
        found = found + 2.0 * gemm.n * gemm.k
    return found


def _slowed(gemm: Gemm, machine: Machine) -> tuple[Value, Value, Value]:
    """Time of the three passes over those of a product whose rows lie well."""
    if machine.network.cluster.gpu.architecture not in WITH_COPY_ENGINE:
        each = misalignment(gemm.n, gemm.k)
        return each, each, each
    n, k = gemm.n, gemm.k
    weight = odd_rows(k, k) if machine.stack.kernels.keeps_rows_apart else odd_rows(k, n, k)
    if machine.stack.kernels.keeps_rows_apart:
        weight = np.where(np.mod(n, EVEN) != 0, np.maximum(weight, KEPT_APART_TIME), weight)
    return odd_rows(n, k), odd_rows(k, n, k), weight


def _attention(attend: Attend, layout: Layout, machine: Machine) -> tuple[Numbers, Numbers]:
    curve, efficiency = machine.curve, machine.stack.kernels.attention_efficiency
    plain = layout.policies.attention > 0
    zero = np.zeros_like(layout.tp)
    forward, backward = zero, zero
    groups = attend.sequences * attend.heads
    if attend.gathered:
        return _gathered(attend, machine)
    if not plain.all():
        flops = attend.forward_flops()
        # every query is at work, also where a window makes its block of keys shorter than the sequence
        shape = (attend.block, attend.head_dim, groups * attend.queries / attend.block)
        kernel = machine.stack.kernels.attention_kernel
        forward = np.asarray(attention_seconds(curve, flops, *shape, kernel=kernel) / efficiency)
        # five products in place of two: three of the width of keys, two of the width of values
        repeated = (3 * attend.head_dim + 2 * attend.value_dim) / (attend.head_dim + attend.value_dim)
        twice = attention_seconds(curve, repeated * flops, *shape, backward=True, kernel=kernel)
        backward = np.asarray(twice / efficiency)
    if plain.any():
        square = (attend.queries, attend.head_dim, groups)
        slowed = 1.0 if attend.head_dim % EVEN == 0 else UNEVEN_ATTENTION_TIME
        scores = machine.stack.kernels.scores
        slow = [
            plain_attention_seconds(curve, *square, keys=attend.keys, backward=b, scores=scores, slowed=slowed)
            for b in (False, True)
        ]
        forward = np.where(plain, slow[0] / efficiency, forward)
        backward = np.where(plain, slow[1] / efficiency, backward)
    return forward, backward


def _gathered(attend: Attend, machine: Machine) -> tuple[Numbers, Numbers]:
    curve, flops = machine.curve, attend.forward_flops()
    shape = (attend.keys, attend.head_dim, attend.heads)
    forward = sparse_attention_seconds(curve, flops, *shape)
    backward = sparse_attention_seconds(curve, 2.5 * flops, *shape, backward=True)
    return np.asarray(forward), np.asarray(backward)


def _index(index: Index, machine: Machine) -> tuple[Numbers, Numbers]:
    """Scores as fast as attention, which has products of the same form; the heads' scores as half of their attention,
    which also weighs values."""
    curve, stack = machine.curve, machine.stack
    scores = attention_seconds(
        curve, index.score_flops, index.keys, index.head_dim, index.groups, kernel=stack.kernels.attention_kernel
    )
    taught, _ = _gathered(index.taught, machine)
    backward = sparse_attention_seconds(
        curve, index.gradient_flops, index.picked, index.head_dim, index.heads, backward=True
    )
    return np.asarray(scores / stack.kernels.attention_efficiency + taught / 2.0), np.asarray(backward)


def _scan(scan: Scan, machine: Machine) -> tuple[Numbers, Numbers]:
    """Memory time. The kernels wait for their loads: each multiprocessor moves what it can keep in flight (Little's
    law), however fast the memory is, and they launch one after the other."""
    curve, gpu = machine.curve, machine.network.cluster.gpu
    copied = curve.bandwidth * curve.memory_efficiency("stream")
    slowed = max(copied / (gpu.sms * SCAN_BYTES_PER_SM_S[scan.rule]), 1.0)
    forward = memory_seconds(curve, scan.forward_bytes * slowed, kernels=scan.kernels)
    backward = memory_seconds(curve, scan.backward_bytes * slowed, kernels=2.0 * scan.kernels)
    return np.asarray(forward), np.asarray(backward)
