"""What happens once per step: gradients are reduced, the optimizer runs, sharded parameters are gathered again."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Ints
from shardwise.cost.gpu import Curve, factoring_seconds, gemm_seconds, memory_seconds
from shardwise.cost.relay import relay_seconds
from shardwise.plugins.optimizers import UpdateRule, moved_besides_state
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Precision
from shardwise.spec.policy import SHARES
from shardwise.step.estimate.machine import Machine
from shardwise.work import Work
from shardwise.work.layout import Numbers, sharded_over
from shardwise.work.messages import bucket_bytes
from shardwise.work.parameter_messages import OF_MATRICES, ParameterMessage, worker_messages
from shardwise.work.runs import Runs
from shardwise.work.stages import Grid, largest
from shardwise.work.updates import Updates


def copy_rate(cluster: Cluster) -> float:
    """bytes/s of one GPU to or from its host while its neighbours copy too: they share the host's memory."""
    return min(cluster.gpu.pcie_bandwidth, cluster.gpu.host_bandwidth)


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

    def spread(self, runs: Runs) -> "SyncRates":
        """From one value per run of policies to one per policy."""
        (dense, expert), (dense_gather, expert_gather) = self.reduce, self.gather
        return SyncRates((runs.rows(dense), runs.rows(expert)), (runs.rows(dense_gather), runs.rows(expert_gather)))


def sync_rates(work: Work, machine: Machine) -> SyncRates:
    """As fast as on the stage with the most parameters, whose messages are the longest."""
    held = {of: largest(work.elements(of))[0] for of in ("dense", "expert")}
    return _rates(work.parameter_messages, held, work.matrices, machine)


def inner_rates(work: Work, machine: Machine) -> SyncRates:
    """The same where a strategy works across replicas: what the ranks of one worker do among themselves. Experts that
    lie in groups of their own are the strategy's alone."""
    layout = work.layout
    dense, expert = (largest(grid)[0] for grid in work.parameters)
    together = layout.expert_ranks == layout.grad_ranks
    held = dense + np.where(together, expert, 0.0)
    rates = _rates(worker_messages(work.job, work.stack, layout), {"dense": held}, work.matrices, machine)
    reduce, gather = (np.where(together, pair[0], 0.0) for pair in (rates.reduce, rates.gather))
    return SyncRates(reduce=(rates.reduce[0], reduce), gather=(rates.gather[0], gather))


def _rates(
    messages: Iterable[ParameterMessage], held: dict[str, Numbers], matrices: Numbers, machine: Machine
) -> SyncRates:
    """Seconds of a step's messages between replicas, over what each kind holds. ZeRO 3's are inside the layers, except
    across its replicas."""
    none = np.zeros_like(held["dense"])
    seconds = {(of, op): none for of in ("dense", "expert") for op in ("reduce", "gather")}
    for message in messages:
        if (
            message.axis == "dp"
            and message.phase != "update"
            and message.packed != "by unit"
            and held[message.of].any()
        ):
            key = message.of, "gather" if message.brings_parameters else "reduce"
            seconds[key] = seconds[key] + message.count * _seconds(message, held[message.of], matrices, machine)
    per = {of: np.maximum(number, 1.0) for of, number in held.items()}
    reduce, gather = ([seconds[of, op] / per.get(of, 1.0) for of in ("dense", "expert")] for op in ("reduce", "gather"))
    return SyncRates(reduce=(reduce[0], reduce[1]), gather=(gather[0], gather[1]))


def _seconds(message: ParameterMessage, elements: Numbers, matrices: Numbers, machine: Machine) -> Numbers:
    """Of one message (a long buffer in buckets) of a rank that holds so many elements in so many matrices."""
    bytes_, stride = message.bytes_of(elements[:, None])[:, 0], machine.strides[message.group]
    if message.part == "replicas":
        stride = stride * message.shares.astype(np.int64)
    if message.packed == "once":
        return machine.over(message.op, bytes_, message.ranks, stride)
    bucket = bucket_bytes(machine.stack, message.op, bytes_, message.ranks, matrices)
    if message.op == "broadcast":
        each = relay_seconds(machine.network, bucket, message.ranks, stride)
    else:
        each = machine.over(message.op, bucket, message.ranks, stride)
    return each * (bytes_ / np.maximum(bucket, 1.0))


def shared_seconds(work: Work, machine: Machine) -> Numbers:
    """Gradients that ranks of other axes hold alike, added up when all others are reduced: on the stage with the most
    of them, and between stages over the longest way."""
    total = np.zeros_like(work.layout.tp) if work.updates is None else exchanged_seconds(work, machine)
    for message in work.parameter_messages:
        if message.axis == "dp" or message.phase == "update":
            continue
        bytes_ = largest(message.bytes_of(work.elements(message.of)))[0]
        if message.axis == "tp":
            each = machine.collective(message.op, "tp", bytes_)
        else:
            each = machine.network.seconds(message.op, bytes_, 2, _between_ends(machine, work.layout.policies.pp))
        total = total + np.where(message.count > 0.0, message.count * each, 0.0)
    return total


def exchanged_seconds(work: Work, machine: Machine) -> Numbers:
    """Matrices that an optimizer gathers, one after the other: on the stage with the most. Nothing else runs then."""
    total, updates = np.zeros_like(work.layout.tp), work.updates
    for message in work.parameter_messages if updates is not None else ():
        if message.phase == "update":
            assert updates is not None
            bytes_, column = largest(message.bytes_of(work.elements(message.of)))
            experts, cut = OF_MATRICES.get(message.of, (False, False))
            number = updates.number(expert=experts, cut=cut)[np.arange(len(column)), column]
            number = np.ones_like(total) if message.packed == "once" else np.maximum(number, 1.0)
            if message.packed == "by round":
                number = np.maximum(np.ceil(number / message.shares), 1.0)
            each = machine.over(message.op, bytes_ / number, message.ranks, machine.strides[message.group])
            seconds = message.count * number * each
            if message.packed == "by round":
                # under the products of the round before, but for the first round in and the last one out
                computed = largest(product_seconds(updates, machine))[0] * (number - 1.0) / number
                seconds = np.maximum(seconds - computed, np.where(message.count > 0, seconds / number, 0.0))
            total = total + seconds
    return total


def _between_ends(machine: Machine, pp: Ints) -> Ints:
    """Ranks that lie between two blocks of the highest level which the way from the first to the last stage crosses."""
    distance = np.ones_like(pp)
    for block in machine.network.cluster.blocks[:-1]:
        distance = np.where(machine.strides["pp"] * pp > block, block, distance)
    return distance


def optimizer_seconds(work: Work, machine: Machine, cluster: Cluster) -> Numbers:
    layout, precision, rule = work.layout, work.job.precision, work.job.optimizer.rule
    computed = None
    if work.updates is None:
        dense, expert = work.parameters
        zero = layout.policies.zero
        own = dense / sharded_over(zero, 1, layout.shard)[:, None]
        owned, _ = largest(own + expert / sharded_over(zero, 1, layout.expert_shard)[:, None])
        moved = owned * rule.moved_bytes(precision)
    else:
        every = moved_by_shape(work.updates, precision)
        matrices = product_seconds(work.updates, machine)
        # a stage with few tables may have the most matrices
        elementwise = memory_seconds(machine.curve, every, "optimizer")
        _, column = largest(np.asarray(elementwise + matrices))
        rows = np.arange(len(column))
        owned, moved, computed = work.updates.updated[rows, column], every[rows, column], matrices[rows, column]
    seconds = np.asarray(memory_seconds(machine.curve, moved * machine.stack.kernels.optimizer_passes, "optimizer"))
    offloaded = (layout.policies.offload == 1) | (layout.policies.offload == 3)
    if offloaded.any():
        # gradients go down and weights come back over PCIe; the host updates at the pace of its own memory
        copied = precision.grad_bytes + precision.param_bytes + _copied_before(work)
        wire = owned * copied / copy_rate(cluster)
        on_host = moved / cluster.gpu.host_bandwidth + wire
        # host and GPU update their shares at the same time
        share = layout.policies.offload_share / SHARES
        seconds = np.where(offloaded, np.maximum(share * on_host, (1.0 - share) * seconds), seconds)
    return seconds if computed is None else np.asarray(seconds + computed)


def _copied_before(work: Work) -> Numbers:
    """Bytes of a parameter's shard that earlier micro-batches copy to the host and back where gradients are added up
    there: the sum so far comes up and goes down again (DeepSpeed's partition_grads). Where weights are there too, both
    gathers of every micro-batch bring them."""
    policies, precision = work.layout.policies, work.job.precision
    leaves, before = work.stack.memory.leaves_with_moments, work.layout.micro_batches - 1.0
    if leaves == "weights":
        often = (before + 1.0) * 2.0 * precision.param_bytes + before * precision.grad_bytes
        return np.where(policies.zero == 3, often, 0.0)
    return np.where((policies.zero > 1) & (leaves == "gradients"), before * 2.0 * precision.grad_bytes, 0.0)


def moved_by_shape(updates: Updates, precision: Precision) -> Grid:
    """Bytes that a rank's update reads and writes, on each stage."""
    return np.asarray(
        updates.updated * moved_besides_state(precision)
        + updates.covered * updates.rule.passes_bytes
        + 2.0 * updates.state_bytes
    )


def product_seconds(updates: Updates, machine: Machine) -> Grid:
    """Products of whole matrices, one after the other, on each stage: by the law of every other product; then
    decompositions."""
    return updates.of_fullest(lambda rows, columns: matrix_seconds(updates.rule, rows, columns, machine.curve))


def rare_seconds(updates: Updates, machine: Machine) -> Numbers:
    """The part of them that comes in few steps: decompositions, spread over all steps."""
    curve, rule = machine.curve, updates.rule
    return largest(updates.of_fullest(lambda rows, columns: _factored_seconds(rule, rows, columns, curve)))[0]


def _factored_seconds(rule: UpdateRule, rows: float, columns: float, curve: Curve) -> float:
    return sum(f.times * factoring_seconds(curve, f.kind, f.side) for f in rule.factorings(rows, columns))


def matrix_seconds(rule: UpdateRule, rows: float, columns: float, curve: Curve) -> float:
    """Products and decompositions for one whole matrix."""
    dtype, products = rule.product_dtype, 0.0
    for p in rule.products(rows, columns):
        products += p.times * float(gemm_seconds(curve, p.m, p.n, p.k, dtype))
        if p.adds:
            products += p.times * float(memory_seconds(curve, 2.0 * rule.sent_bytes * p.m * p.n))
    return products + _factored_seconds(rule, rows, columns, curve)
