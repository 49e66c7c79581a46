"""One layer (or end of the model) in one micro-batch: seconds that count, and communication that hides under them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.cost.gpu import memory_seconds
from shardwise.spec.policy import IN_LAYERS, Policies
from shardwise.step.estimate.dispatch import between_nodes, hidden_exchange
from shardwise.step.estimate.layers import LayerSeconds
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.once_each import OnceEach
from shardwise.work import Work
from shardwise.work.layout import Numbers, passing
from shardwise.work.parameter_messages import reduced_last
from shardwise.work.parameters import Counts
from shardwise.work.runs import Runs, alone

Parts = dict[str, Numbers]
GRADIENT_BYTES = 2.0
"""of an element of a gradient as a product writes it, before it is copied for the reduction"""


@dataclass(frozen=True)
class Unit:
    parts: Parts
    """exposed seconds by cause; they add up to `total`"""
    hidden: Parts
    """communication under compute, by axis"""
    total: Numbers
    forward: Numbers
    """the part of `total` spent in the forward pass, its exposed communication included"""
    weight: Numbers
    """the part of `total` that is weight gradients"""

    def spread(self, runs: Runs) -> "Unit":
        """From one value per run of policies to one per policy."""
        if runs.of is None:
            return self
        return Unit(
            parts={name: runs.rows(seconds) for name, seconds in self.parts.items()},
            hidden={name: runs.rows(seconds) for name, seconds in self.hidden.items()},
            total=runs.rows(self.total),
            forward=runs.rows(self.forward),
            weight=runs.rows(self.weight),
        )


def layer_unit(seconds: LayerSeconds, counts: Counts, work: Work, machine: Machine) -> Unit:
    """Without what ZeRO 3 gathers (`ShardGathers`), as are ends."""
    policies = work.layout.policies
    repeats, full = recompute_share(work), fully_repeated(work)
    if seconds.forward_only:
        repeats, full = 0.0 * repeats, 0.0 * full
    stack = machine.stack
    core, rest = stack.memory.selective_attention, stack.memory.selective_repeat
    selective = core * seconds.selective + rest * (seconds.forward - seconds.attention)
    if policies.recompute_modules.any():
        selective = np.where(policies.recompute_modules > 0, seconds.selective, selective)
    again = full * seconds.forward + (policies.recompute == 1) * repeats * selective
    return _unit(seconds, again, full, counts, work, machine)


def end_unit(
    seconds: LayerSeconds, counts: Counts, work: Work, machine: Machine, repeats: Numbers | float = 0.0
) -> Unit:
    """Embedding or head: no recompute of layers repeats it, but its own loss may."""
    zero = np.zeros_like(work.layout.tp)
    return _unit(seconds, repeats * seconds.forward, zero, counts, work, machine)


def with_mtp(head: Unit, layers: list[Unit], project: Unit, depth: int) -> Unit:
    """Every extra prediction layer runs its projection, one more layer (of a hybrid model several) and the head once
    more, on the last stage."""
    layer = _together(layers)

    def all_three(a: Parts, b: Parts, c: Parts) -> Parts:
        return {name: a[name] * (1.0 + depth) + (b[name] + c[name]) * float(depth) for name in b}

    return Unit(
        parts=all_three(head.parts, layer.parts, project.parts),
        hidden=all_three(head.hidden, layer.hidden, project.hidden),
        total=head.total * (1.0 + depth) + (layer.total + project.total) * float(depth),
        forward=head.forward * (1.0 + depth) + (layer.forward + project.forward) * float(depth),
        weight=head.weight * (1.0 + depth) + (layer.weight + project.weight) * float(depth),
    )


def _together(units: list[Unit]) -> Unit:
    first, *rest = units
    for unit in rest:
        first = Unit(
            parts={name: first.parts[name] + value for name, value in unit.parts.items()},
            hidden={name: first.hidden[name] + value for name, value in unit.hidden.items()},
            total=first.total + unit.total,
            forward=first.forward + unit.forward,
            weight=first.weight + unit.weight,
        )
    return first


class ShardGathers:
    """ZeRO 3: seconds to gather a part's parameters and to reduce its gradients, for one micro-batch."""

    def __init__(self, sharded: OnceEach) -> None:
        self.layout, self.machine, self.runs = sharded.work.layout, sharded.machine, sharded.runs
        self.messages = [m for m in sharded.work.parameter_messages if m.packed == "by unit"]
        self.micro_batches = passing(self.layout)
        self.frozen_sent = sharded.work.frozen_sent

    def added(
        self, unit: Unit, counts: Counts, repeated: Numbers, policies: Policies, *, forward_only: bool = False
    ) -> Unit:
        """`unit` of each of these policies, with what is gathered for it and reduced. `repeated`: share of the part's
        layers whose whole forward is repeated; `forward_only`: no gradient passes the part."""
        if not self.messages:
            return unit
        overlap = self.machine.stack.overlap
        needed, copied = self._seconds(counts, repeated, forward_only)
        share = overlap.hidden_share if overlap.gathers_hidden < 0 else overlap.gathers_hidden
        # compute that slows beside a collective lasts longer, and hides more of a long one
        window = free_seconds(unit.total, unit.parts, unit.hidden, self._leaves_node(), self.machine, self.runs)
        most = share * np.minimum(needed, window * (1.0 + overlap.overlap_slowdown))
        hidden = np.where(policies.overlap_param > 0, most, 0.0)
        exposed = needed - hidden + overlap.slowed_share * hidden + copied
        return Unit(
            parts=unit.parts | {"fsdp_comm": exposed},
            hidden=unit.hidden | {"fsdp": hidden},
            total=unit.total + exposed,
            # one of the two gathers belongs to the forward; the other and the reduction to the backward
            forward=unit.forward + exposed / (1.0 if forward_only else 3.0),
            weight=unit.weight,
        )

    def _leaves_node(self) -> NDArray[np.bool_]:
        """Whether some of the messages do."""
        cluster, strides = self.machine.network.cluster, self.machine.strides
        sent = [(m.ranks > 1) & between_nodes(cluster, m.ranks, strides[m.group]) for m in self.messages]
        return np.asarray(np.any(sent, axis=0))

    def _seconds(self, counts: Counts, repeated: Numbers, forward_only: bool) -> tuple[Numbers, Numbers]:
        """(messages, copies between their buffers and the tensors)."""
        layout, stack = self.layout, self.machine.stack
        held = {
            "dense": counts.dense_per_rank(layout),
            "expert": counts.filled_experts(layout, stack.network),
        }
        still = self._frozen(counts)
        number = counts.messages(stack)
        per_peer = stack.host.ops_per_peer * stack.host.host_s_per_op
        # what comes back for a repeated forward apart: it differs between policies that shard alike
        sent, sent_again, copied, copied_again = (np.zeros_like(layout.tp) for _ in range(4))
        for message in self.messages:
            if message.phase == "backward" and (forward_only or (message.op != "all_gather" and counts.untrained)):
                continue
            if message.of == "dense" or counts.expert or still["expert"].any():
                stride = self.machine.strides[message.group]
                times = message.count / self.micro_batches
                whole = held[message.of] * message.bytes
                if message.op == "all_gather":
                    whole = whole + still[message.of]
                each = self.machine.over(message.op, whole / number[message.of], message.ranks, stride)
                taken = times * number[message.of] * (each + per_peer * message.ranks)
                comes_back = (message.op, message.phase) == ("all_gather", "backward")
                sent, sent_again = sent + taken, sent_again + comes_back * taken
                if stack.network.copies_gathered:
                    tensors = whole if message.op == "all_gather" else held[message.of] * GRADIENT_BYTES
                    taken = times * memory_seconds(self.machine.curve, whole + tensors)
                    copied, copied_again = copied + taken, copied_again + comes_back * taken
        again, rows = repeated * counts.gathered_again(stack), self.runs.rows
        return rows(sent) + again * rows(sent_again), rows(copied) + again * rows(copied_again)

    def _frozen(self, counts: Counts) -> dict[str, Numbers]:
        """Bytes of weights that are gathered with a part and not trained."""
        none = np.zeros_like(self.layout.tp)
        if counts.frozen is None:
            return {"dense": none, "expert": none}
        found = counts.frozen.bytes_per_rank(self.layout, self.machine.precision.param_bytes)
        return {of: each * self.frozen_sent for of, each in zip(("dense", "expert"), found, strict=True)}


def free_seconds(
    total: Numbers, parts: Parts, hidden: Parts, leaves_node: NDArray[np.bool_], machine: Machine, runs: Runs
) -> Numbers:
    """The part of a layer's `total` in which its link carries none of the layer's other messages: those between nodes
    share a network card, those inside a node its links. Compute hides a message, and so do waits for the other link
    where a program has more than one collective in flight.
    `runs`: of `leaves_node` and `machine`."""
    free = total
    for axis in IN_LAYERS:
        if axis in hidden:
            same = runs.rows((machine.leaves_node(axis) == leaves_node) | machine.stack.overlap.one_collective)
            free = free - np.where(same, parts[f"{axis}_comm"] + hidden[axis], 0.0)
    return np.maximum(free, 0.0)


def recompute_share(work: Work) -> Numbers:
    """Share of a stage's layers that recompute."""
    policies = work.layout.policies
    per_stage = np.maximum(work.model.layers / work.layout.pp, 1.0)
    share = np.where(policies.recompute_layers < 0, 1.0, np.minimum(policies.recompute_layers / per_stage, 1.0))
    return np.where(policies.recompute > 0, share, 0.0)


def fully_repeated(work: Work) -> Numbers:
    """Share of a stage's layers whose whole forward is repeated."""
    return np.asarray((work.layout.policies.recompute == 2) * recompute_share(work))


def _unit(seconds: LayerSeconds, again: Numbers, full: Numbers, counts: Counts, work: Work, machine: Machine) -> Unit:
    """`again`: seconds of repeated forward work; `full`: share of layers whose whole forward is repeated."""
    layout = work.layout
    parts: Parts = {"forward": seconds.forward, "backward": seconds.backward, "recompute": again}
    hidden: Parts = {}
    ahead = seconds.forward + _communication(seconds, full, work, machine, parts, hidden)
    total = _sum(parts)
    first, rest = _host(seconds, full, work, machine)
    # neither pass is over before it is launched
    waits = np.maximum(first - ahead, 0.0)
    parts["host"] = waits + np.maximum(rest - (total - ahead), 0.0)
    ahead = ahead + waits
    around = _gradient_bytes(work, machine)
    if machine.precision.cast_traffic or around.any():
        held = counts.dense_per_rank(layout) + counts.expert_per_rank(layout)
        # a layer that is recomputed rounds its weights once more
        moved = held * (around + machine.precision.cast_traffic * (1.0 + 0.5 * full))
        # a policy that moves nothing launches nothing, whatever others beside it do
        parts["backward"] = parts["backward"] + np.where(moved > 0.0, memory_seconds(machine.curve, moved), 0.0)
    return Unit(parts=parts, hidden=hidden, total=_sum(parts), forward=ahead, weight=seconds.weight)


def _gradient_bytes(work: Work, machine: Machine) -> Numbers:
    """Of each parameter, moved in a micro-batch to add its gradient up and around its reduction. ZeRO 2 and 3 reduce in
    each and add up shares; ZeRO 0 and 1 do so once a step, with the whole sums."""
    layout, stack = work.layout, machine.stack
    each = (layout.policies.zero > 1) & (layout.grad_ranks > 1.0) & ~reduced_last(layout, stack.network)
    # where gradients are freed after a step, its first micro-batch has nothing to add to
    adding = 1.0 - 1.0 / layout.micro_batches if stack.memory.frees_gradients else 1.0
    added = adding * stack.kernels.grad_accumulation_bytes / np.where(each, layout.shard, 1.0)
    packed = np.where(layout.grad_ranks > 1.0, stack.network.bucket_copy_bytes, 0.0)
    return np.asarray(added + packed / np.where(each, 1.0, layout.micro_batches))


def _host(seconds: LayerSeconds, full: Numbers, work: Work, machine: Machine) -> tuple[Numbers, Numbers]:
    """Time the host needs to launch the layer's forward, and the rest: the device cannot be faster than both."""
    layout, stack = work.layout, machine.stack
    # the backward launches twice as many operations; a recomputed layer launches its forward once more
    again = 0.0 * full if seconds.forward_only else 2.0 + full
    # a recomputed layer repeats the collectives of its forward pass: about half of all
    messages = 0.5 * seconds.collectives * stack.host.ops_per_collective
    first = seconds.ops + messages
    rest = seconds.ops * again + full * stack.host.ops_per_recompute + seconds.repeated_ops + messages * (1.0 + full)
    stalled = 0.0 * layout.tp
    if stack.host.stall_s_per_peer:
        waits = (layout.pp > 1) & machine.leaves_node("pp")
        stalled = np.where(waits, 0.5 * seconds.collectives * layout.tp * stack.host.stall_s_per_peer, 0.0)
    return first * stack.host.host_s_per_op + stalled, rest * stack.host.host_s_per_op + stalled


def _communication(
    seconds: LayerSeconds, full: Numbers, work: Work, machine: Machine, parts: Parts, hidden: Parts
) -> Numbers:
    """Tensor-, context- and expert-parallel collectives of the layer; returns what the forward pass exposes."""
    stack, both = machine.stack, seconds.forward * (1.0 + full) + seconds.backward
    # ring attention sends the next block while it computes this one. What is gathered or exchanged must be there before
    forward = np.minimum(seconds.forward_comm["ring"], stack.overlap.hidden_share * seconds.attention)
    backward = np.minimum(seconds.backward_comm["ring"], stack.overlap.hidden_share * seconds.attention_backward)
    hidden["cp"] = forward * (1.0 + full) + backward
    parts["cp_comm"] = seconds.forward_comm["cp"] * (1.0 + full) + seconds.backward_comm["cp"] - hidden["cp"]
    # products and their collectives run together only where GPUs write into each other's memory and the sequence is cut
    peers, policies = 0.0 if machine.network.cluster.through_host else 1.0, work.layout.policies
    pipelined = peers * stack.overlap.hidden_share * policies.overlap_tp * policies.sp
    under_weights = np.maximum(pipelined, stack.overlap.tp_backward_hidden)
    # nothing hides longer than the compute it runs under, and no second hides two messages of the same data
    needed = seconds.forward_comm["tp"] * (1.0 + full) + seconds.backward_comm["tp"]
    besides = seconds.backward_comm["tp"] * (under_weights - pipelined)
    hidden["tp"] = np.minimum(needed * pipelined + besides, np.maximum(both - hidden["cp"], 0.0))
    parts["tp_comm"] = needed - hidden["tp"]
    # another micro-batch's exchange goes on while this one waits for messages on the other link
    done = both + parts["tp_comm"] + parts["cp_comm"]
    window = free_seconds(done, parts, hidden, machine.leaves_node("ep"), machine, alone(len(done)))
    needed = seconds.forward_comm["ep"] * (1.0 + full) + seconds.backward_comm["ep"]
    under = hidden_exchange(stack, machine.network.cluster, machine.sizes["ep"], machine.strides["ep"])
    hidden["ep"] = np.minimum(needed * under, window)
    parts["ep_comm"] = needed - hidden["ep"]
    tp, ep = (seconds.forward_comm[axis] - np.minimum(seconds.forward_comm[axis] * share, seconds.forward)
              for axis, share in (("tp", pipelined), ("ep", under)))  # fmt: skip
    return tp + ep + (seconds.forward_comm["cp"] - forward)


def _sum(parts: Parts) -> Numbers:
    first, *rest = parts.values()
    for value in rest:
        first = first + value
    return first
