"""One layer (or end of the model) in one micro-batch: seconds that count, and communication that hides under them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.cost.gpu import memory_seconds
from shardwise.spec.policy import IN_LAYERS, Policies
from shardwise.step.estimate.dispatch import between_nodes, hidden_exchange, taken_share
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
    inputs: Numbers
    """the backward pass without weight gradients, where these are put off"""
    weight: Numbers
    """and they. Apart, each of the two takes at least as long as its launches"""

    def spread(self, runs: Runs) -> "Unit":
        """From one value per run of policies to one per policy."""
        if runs.of is None:
            return self
        return Unit(
            parts={name: runs.rows(seconds) for name, seconds in self.parts.items()},
            hidden={name: runs.rows(seconds) for name, seconds in self.hidden.items()},
            total=runs.rows(self.total),
            forward=runs.rows(self.forward),
            inputs=runs.rows(self.inputs),
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
        inputs=head.inputs * (1.0 + depth) + (layer.inputs + project.inputs) * float(depth),
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
            inputs=first.inputs + unit.inputs,
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
        sent = {axis: unit.parts[f"{axis}_comm"] + unit.hidden[axis] for axis in IN_LAYERS}
        window = free_seconds(unit.total, sent, self._leaves_node(), self.machine, self.runs)
        window = window * (1.0 + overlap.overlap_slowdown)
        on = policies.overlap_param > 0
        hidden = np.where(on, share * np.minimum(needed, window), 0.0)
        exposed = needed - hidden + overlap.slowed_share * hidden + copied
        # one of the two gathers belongs to the forward and hides there; the other and the reduction to the backward
        part = 1.0 if forward_only else 1.0 / 3.0
        there = window * np.divide(unit.forward, unit.total, out=np.ones_like(window), where=unit.total > 0.0)
        hides = np.where(on, share * np.minimum(part * needed, there), 0.0)
        hides = np.maximum(np.minimum(hides, hidden), hidden - share * (1.0 - part) * needed)
        ahead = part * (needed + copied) - (1.0 - overlap.slowed_share) * hides
        return Unit(
            parts=unit.parts | {"fsdp_comm": exposed},
            hidden=unit.hidden | {"fsdp": hidden},
            total=unit.total + exposed,
            forward=unit.forward + ahead,
            inputs=unit.inputs + (exposed - ahead),
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


def free_seconds(total: Numbers, sent: Parts, leaves_node: NDArray[np.bool_], machine: Machine, runs: Runs) -> Numbers:
    """The part of `total` in which its link carries none of the other messages, `sent` by axis: those between nodes
    share a network card, those inside a node its links. Compute hides a message, and so do waits for the other link
    where a program has more than one collective in flight.
    `runs`: of `leaves_node` and `machine`."""
    free = total
    for axis in sent:
        same = runs.rows((machine.leaves_node(axis) == leaves_node) | machine.stack.overlap.one_collective)
        free = free - np.where(same, sent[axis], 0.0)
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
    first, rest, weights = _host(seconds, full, work, machine)
    ahead, waits = _communication(seconds, full, first, work, machine, parts, hidden)
    # neither pass is over before it is launched
    back = _sum(parts) - ahead
    parts["host"] = waits + np.maximum(rest - back, 0.0)
    ahead, inputs = ahead + waits, np.maximum(back - seconds.weight, rest - weights)
    around = _gradient_bytes(work, machine)
    if machine.precision.cast_traffic or around.any():
        held = counts.dense_per_rank(layout) + counts.expert_per_rank(layout)
        # a layer that is recomputed rounds its weights once more
        moved = held * (around + machine.precision.cast_traffic * (1.0 + 0.5 * full))
        # a policy that moves nothing launches nothing, whatever others beside it do
        took = np.where(moved > 0.0, memory_seconds(machine.curve, moved), 0.0)
        parts["backward"], inputs = parts["backward"] + took, inputs + took
    return Unit(
        parts=parts,
        hidden=hidden,
        total=_sum(parts),
        forward=ahead,
        inputs=inputs,
        weight=np.maximum(seconds.weight, weights),
    )


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


def _host(seconds: LayerSeconds, full: Numbers, work: Work, machine: Machine) -> tuple[Numbers, Numbers, Numbers]:
    """Time the host needs to launch the layer's forward, and the rest: the device cannot be faster than both. And what
    of the rest launches weight gradients."""
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
    each = stack.host.host_s_per_op
    # half of what the backward launches, as its products are
    weights = np.where(seconds.weight > 0.0, np.minimum(0.5 * again, 1.0) * seconds.ops * each, 0.0)
    return first * each + stalled, rest * each + stalled, weights


def _communication(
    seconds: LayerSeconds, full: Numbers, first: Numbers, work: Work, machine: Machine, parts: Parts, hidden: Parts
) -> tuple[Numbers, Numbers]:
    """Tensor-, context- and expert-parallel collectives of the layer; returns the forward pass with what it exposes,
    and how much sooner that is done than its launches, which take the time `first`."""
    stack = machine.stack
    forward, backward = seconds.forward_comm, seconds.backward_comm
    # ring attention sends the next block while it computes this one. What is gathered or exchanged must be there before
    ring = np.minimum(forward["ring"], stack.overlap.hidden_share * seconds.attention)
    ring_back = np.minimum(backward["ring"], stack.overlap.hidden_share * seconds.attention_backward)
    # products and their collectives run together only where GPUs write into each other's memory and the sequence is cut
    peers, policies = 0.0 if machine.network.cluster.through_host else 1.0, work.layout.policies
    pipelined = peers * stack.overlap.hidden_share * policies.overlap_tp * policies.sp
    under_weights = np.maximum(pipelined, stack.overlap.tp_backward_hidden)
    exposed, _ = _waits(seconds.forward, forward, {"cp": ring, "tp": forward["tp"] * pipelined}, machine)
    ahead = seconds.forward + _sum(exposed)
    waits = np.maximum(first - ahead, 0.0)
    needed = {axis: forward[axis] * (1.0 + full) + backward[axis] for axis in IN_LAYERS}
    besides = backward["tp"] * (under_weights - pipelined)
    under = {"cp": ring * (1.0 + full) + ring_back, "tp": needed["tp"] * pipelined + besides}
    # a message goes on while the GPU waits for launches
    both = seconds.forward * (1.0 + full) + seconds.backward + waits
    exposed, its = _waits(both, needed, under, machine)
    parts |= {f"{axis}_comm": value for axis, value in exposed.items()}
    hidden |= its
    return ahead, waits


def _waits(compute: Numbers, needed: Parts, under: Parts, machine: Machine) -> tuple[Parts, Parts]:
    """(exposed, hidden) seconds of what is `needed`, of which so much runs `under` compute."""
    # nothing hides longer than what it runs under, and no second hides two messages of the same data
    hidden = {"cp": under["cp"], "tp": np.minimum(under["tp"], np.maximum(compute - under["cp"], 0.0))}
    sent = {axis: needed[axis] for axis in hidden}
    # another micro-batch's exchange goes on while this one waits for messages on the other link
    done = compute + _sum({axis: sent[axis] - hidden[axis] for axis in hidden})
    window = free_seconds(done, sent, machine.leaves_node("ep"), machine, alone(len(done)))
    share = hidden_exchange(machine.stack, machine.network.cluster, machine.sizes["ep"], machine.strides["ep"])
    hidden["ep"] = np.minimum(needed["ep"] * share, window)
    exposed = {axis: needed[axis] - hidden[axis] for axis in IN_LAYERS}
    # what runs beside it has fewer multiprocessors
    exposed["ep"] = exposed["ep"] + taken_share(machine.stack, machine.network.cluster) * hidden["ep"]
    return exposed, hidden


def _sum(parts: Parts) -> Numbers:
    first, *rest = parts.values()
    for value in rest:
        first = first + value
    return first
