"""Seconds of every piece of a step, and what is held for it, from the closed form's own functions: there is one cost
model. What is sent is told by the list of messages (`sent`)."""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.calls import repeated_share
from shardwise.plugins.schedules import schedules
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy
from shardwise.step.estimate.closed_form import Estimate, machine_for
from shardwise.step.estimate.exposure import Unit, recompute_share
from shardwise.step.estimate.losses import lost_share
from shardwise.step.estimate.memory import activation_pieces, memory_of, saved_and_left
from shardwise.step.estimate.once import copy_rate, shared_seconds, sync_rates
from shardwise.step.estimate.stage_groups import stage_paces
from shardwise.step.estimate.transfers import transfer_wait_s
from shardwise.step.estimate.update import update_seconds
from shardwise.step.simulate.placed import Pieces
from shardwise.step.tasks.program import Program
from shardwise.work import Work
from shardwise.work.case import Case
from shardwise.work.layout import passing
from shardwise.work.ops import LayerWork
from shardwise.work.parameter_messages import reduced_each

STREAMS = ("tp", "cp", "ep", "fsdp")


@dataclass(frozen=True)
class Stream:
    """A collective inside the layers, per piece: seconds in the forward and in the backward."""

    seconds: tuple[Floats, Floats]
    stops: Floats
    """share of the seconds in which compute waits for it"""


@dataclass(frozen=True)
class RankMemory:
    """Memory of each rank."""

    static: dict[str, Floats]
    """bytes by kind that do not change in a step"""
    saved: Floats
    """ranks x chunks: what one micro-batch in flight keeps"""
    deferred: Floats
    """and what of it, with the gradients that came, waits for a put-off weight gradient"""
    once: Floats
    """while a backward runs: the whole set of one recomputed layer, the head's input"""
    logits: Floats
    """while the head runs"""
    piles_up: bool
    """the head's are there from its forward to its backward"""
    fragmentation: float


@dataclass(frozen=True)
class Costs:
    forward: Floats
    """per piece; so are the next three"""
    backward: Floats
    input_gradient: Floats
    weight_gradient: Floats
    recompute: Floats
    """the part of `backward` and `input_gradient` that repeats forwards"""
    streams: dict[str, Stream]
    copy_s: Floats
    """activations of one micro-batch to the host, per piece; as long again back"""
    copy_bytes: Floats
    transfer_s: float
    transfer_overhead_s: float
    """the part of `transfer_s` that is the host's"""
    stopped_share: float
    """of a transfer: what the sender waits for where messages that leave at the same moment are waited for together"""
    exposed_transfer: float
    """share of a transfer that stops the sender"""
    reduce_s: Floats
    """ranks x chunks: gradients, before any overlap; for one micro-batch where each reduces"""
    reduces_each: bool
    gather_s: Floats
    overlap_grad: bool
    overlap_param: bool
    hidden_share: float
    slowdown: float
    optimizer_s: Floats
    """per rank"""
    other_share: float
    other_s: float
    held: RankMemory
    carried_s: float = 0.0
    """what the busiest card needs for all that its stage sends: no pipeline is over before"""
    sent_s: float = 0.0
    """the same with gradients and parameters"""
    shared_s: float = 0.0
    """gradients that ranks of other axes hold alike (a tied table's on both ends), behind all other reductions"""


def costs_of(case: Case, found: Estimate, work: Work, policy: Policy, program: Program, pieces: Pieces) -> Costs:
    """`found` is the closed form of the policy, `work` the same with one row per rank."""
    stack, layout, cluster = work.stack, work.layout, case.cluster
    machine = machine_for(case, layout.policies)
    rates = sync_rates(work, machine)
    paced = stage_paces(work, machine).on(work.parameters, work.stages.index)
    reduce, gather = (grid[:, 0] for grid in rates.on(paced))
    micro = float(passing(layout)[0])
    each = bool(reduced_each(layout, stack.network)[0])
    forward, total, inputs, weight = (
        _per_piece(found.times.units, name, pieces) for name in ("forward", "total", "inputs", "weight")
    )
    copied = _copied(work, policy, pieces)
    copy_s = copied / copy_rate(cluster)
    return Costs(
        forward=np.maximum(forward, copy_s),
        backward=np.maximum(total - forward, copy_s),
        input_gradient=np.maximum(inputs, copy_s),
        weight_gradient=weight,
        recompute=_repeated(found.times.units, pieces),
        streams=_streams(found, pieces, policy),
        copy_s=copy_s,
        copy_bytes=copied,
        transfer_s=float(found.times.transfer_s[0]),
        transfer_overhead_s=float(transfer_wait_s(machine)[0]),
        stopped_share=float(found.times.stopped_share[0]),
        exposed_transfer=1.0 - stack.overlap.hidden_share if policy.overlap_pp else 1.0,
        reduce_s=reduce[:, None] * _shares(work, program, pieces, rates.reduce) / (micro if each else 1.0),
        reduces_each=each,
        gather_s=gather[:, None] * _shares(work, program, pieces, rates.gather),
        overlap_grad=policy.overlap_grad,
        overlap_param=policy.overlap_param,
        hidden_share=stack.overlap.hidden_share,
        slowdown=stack.overlap.overlap_slowdown,
        optimizer_s=update_seconds(work, machine, cluster),
        other_share=float(lost_share(policy.gpus, stack)),
        other_s=stack.host.step_overhead_s,
        held=_held(work, cluster, policy, program, pieces),
        carried_s=float(found.times.carried_s[0]),
        sent_s=float(found.times.sent_s[0]),
        shared_s=float(shared_seconds(found.work, machine_for(case, found.work.layout.policies))[0]),
    )


def _per_piece(units: tuple[Unit, ...], name: str, pieces: Pieces) -> Floats:
    return np.asarray(pieces.counts @ np.array([float(getattr(unit, name)[0]) for unit in units]))


def _repeated(units: tuple[Unit, ...], pieces: Pieces) -> Floats:
    each = [float(np.asarray(unit.parts["recompute"]).reshape(-1)[0]) for unit in units]
    return np.asarray(pieces.counts @ np.array(each))


def _shares(work: Work, program: Program, pieces: Pieces, weights: tuple[Floats, Floats]) -> Floats:
    """ranks x chunks: which part of its rank's parameters a chunk holds; `weights`: of a dense and of an expert one."""
    counts = (*work.counts.kinds, work.counts.embedding, work.counts.head)
    dense, expert = (
        (pieces.counts @ np.array([float(per_rank(work.layout)[0]) for per_rank in each]))[program.held]
        for each in ([c.dense_per_rank for c in counts], [c.expert_per_rank for c in counts])
    )
    held = weights[0][:, None] * dense + weights[1][:, None] * expert
    total = held.sum(axis=1, keepdims=True)
    return np.asarray(held / np.where(total > 0, total, 1.0))


def _copied(work: Work, policy: Policy, pieces: Pieces) -> Floats:
    if policy.offload not in ("activations", "both"):
        return np.zeros(len(pieces.first))
    again, kinds = float(recompute_share(work)[0]), [saved_and_left(work, layer) for layer in work.kinds]
    each = np.array([float(saved[0] - again * (saved - left)[0]) for saved, left in kinds])
    return np.asarray(policy.offload_share * (pieces.kinds @ each))


def _streams(found: Estimate, pieces: Pieces, policy: Policy) -> dict[str, Stream]:
    work, streams = found.work, {}
    again = repeated_share(work, policy)
    repeated = np.array([*[again] * len(work.kinds), 0.0, 0.0])
    layers = (*work.kinds, work.embedding, work.head)
    for axis in STREAMS[:-1]:
        sent = np.array([_sent(layer, axis) for layer in layers])
        seconds = np.array([_seconds(unit, axis, 0.0) for unit in found.times.units])
        # repeated forwards count with the backward, in proportion to what each phase sends
        sent[:, 1] += repeated * sent[:, 0]
        share = np.divide(sent[:, 0], sent.sum(axis=1), out=np.zeros(len(sent)), where=sent.sum(axis=1) > 0)
        streams[axis] = _stream(pieces, (seconds * share, seconds * (1 - share)), _hidden(found, axis))
    seconds = np.array([_seconds(unit, "fsdp", work.stack.overlap.slowed_share) for unit in found.times.units])
    streams["fsdp"] = _stream(pieces, (seconds / 3, seconds * 2 / 3), _hidden(found, "fsdp"))
    return {axis: stream for axis, stream in streams.items() if (stream.seconds[0] + stream.seconds[1]).any()}


def _stream(pieces: Pieces, seconds: tuple[Floats, Floats], hidden: Floats) -> Stream:
    counts = pieces.counts
    total = counts @ (seconds[0] + seconds[1])
    stops = 1.0 - np.divide(counts @ hidden, total, out=np.zeros(len(total)), where=total > 0)
    return Stream((counts @ seconds[0], counts @ seconds[1]), stops)


def _hidden(found: Estimate, axis: str) -> Floats:
    return np.array([float(np.asarray(unit.hidden.get(axis, 0.0)).reshape(-1)[0]) for unit in found.times.units])


def _seconds(unit: Unit, axis: str, slowdown: float) -> float:
    hidden = float(np.asarray(unit.hidden.get(axis, 0.0)).reshape(-1)[0])
    exposed = float(np.asarray(unit.parts.get(f"{axis}_comm", 0.0)).reshape(-1)[0])
    return exposed + hidden * (1.0 - slowdown)


def _sent(layer: LayerWork, axis: str) -> tuple[float, float]:
    phases = [0.0, 0.0]
    for item in layer.collectives:
        if ("ep" if item.axis == "etp" else item.axis) == axis:
            bytes_ = float(np.asarray(item.bytes * item.count).reshape(-1)[0])
            phases[item.phase != "forward"] += bytes_
    return phases[0], phases[1]


def _held(work: Work, cluster: Cluster, policy: Policy, program: Program, pieces: Pieces) -> RankMemory:
    memory = memory_of(work, None, cluster)
    static = {kind: np.broadcast_to(grid, memory.total.shape)[:, 0].copy() for kind, grid in memory.kinds.items()}
    kept = activation_pieces(work)
    saved, deferred, once, logits = (grid[:, 0] for grid in (kept.saved, kept.deferred, kept.once, kept.logits))
    static["logits"] = np.zeros(program.pp)
    if policy.offload in ("activations", "both"):
        saved, deferred, once = (np.zeros(program.pp) for _ in range(3))
    else:
        static["activations"] = np.zeros(program.pp)
    tensors = sum((size for kind, size in static.items() if kind != "overhead"), start=np.zeros(program.pp))
    static["overhead"] = tensors * work.stack.memory.fragmentation + work.stack.memory.base_bytes
    layers = pieces.layers[program.held]
    # where the model is there twice each direction keeps the layers of its own piece
    some = layers.sum(axis=1, keepdims=True)
    share = np.where(some > 0, layers / np.maximum(some, 1.0), 1.0 / layers.shape[1])
    return RankMemory(
        static=static,
        saved=saved[:, None] * share,
        deferred=deferred[:, None] * share,
        once=once,
        logits=logits,
        piles_up=schedules()[policy.schedule].piles_up,
        fragmentation=work.stack.memory.fragmentation,
    )
