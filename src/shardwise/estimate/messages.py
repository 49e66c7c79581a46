"""Every message one rank sends in a step: the work's collectives, transfers between stages, and data parallelism.

Held against the runtime's own recording, message by message. A piece is one of the pp x vpp parts of the model; the
work has one stage per piece (`piecewise`).
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from msgspec.structs import replace

from shardwise.arch.tensors import Tensor, embedding_tensors, head_tensors, layer_tensors
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import Stack
from shardwise.work import Work, work_of
from shardwise.work.ops import LayerWork
from shardwise.work.parameters import Counts
from shardwise.work.transfer import transfer_bytes


@dataclass(frozen=True)
class Sent:
    """`count` messages of `bytes`, over the ranks of an axis."""

    axis: str
    op: str
    phase: str
    """forward, backward, recompute, or step: once, after the last backward"""
    bytes: float
    count: float


@dataclass(frozen=True)
class Piece:
    """One part of the model on a rank, and how it meets the others."""

    index: int
    recomputed: int
    """layers whose forward is repeated"""
    sends_on: bool
    """the next piece is on another rank"""
    sends_back: bool


def piecewise(model: Model, job: Job, policy: Policy, stack: Stack) -> Work:
    """The work with every chunk as a stage of its own."""
    cut = replace(policy, pp=policy.pp * policy.vpp, vpp=1, schedule="1f1b")
    return work_of(model, job, Policies.of([cut]), stack, every_stage=True)


def messages(work: Work, piece: Piece, *, staged: bool) -> list[Sent]:
    """Of one rank that holds this piece. `staged`: there are pipeline stages, so ZeRO 3 gathers once a step."""
    return [*_inside(work, piece), *_between(work, piece), *_synchronised(work, piece, staged), *_shared(work, piece)]


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _inside(work: Work, piece: Piece) -> list[Sent]:
    """Collectives of the layers and ends, in every micro-batch."""
    stages, at, micro = work.stages, piece.index, _one(work.layout.micro_batches)
    held = [float(kind[0, at]) for kind in stages.kinds]
    layers = max(sum(held), 1.0)
    full = work.layout.policies.recompute[0] == 2
    found = []
    for part, count in zip(work.kinds, held, strict=True):
        again = piece.recomputed * count / layers if full else 0.0
        found += _of(part, count * micro, again * micro)
    found += _of(work.embedding, float(stages.first[0, at]) * micro, 0.0)
    return found + _of(work.head, float(stages.last[0, at]) * micro, 0.0)


def _of(part: LayerWork, times: float, again: float) -> list[Sent]:
    found = []
    for item in part.collectives:
        count, size = _one(item.count), _one(item.bytes)
        found.append(Sent(item.axis, item.op, item.phase, size, count * times))
        if item.phase == "forward" and again:
            found.append(Sent(item.axis, item.op, "recompute", size, count * again))
    return [sent for sent in found if sent.count]


def _between(work: Work, piece: Piece) -> list[Sent]:
    message, micro = _one(transfer_bytes(work)), _one(work.layout.micro_batches)
    ways = (("forward", piece.sends_on), ("backward", piece.sends_back))
    return [Sent("pp", "send", phase, message, micro) for phase, goes in ways if goes]


def _synchronised(work: Work, piece: Piece, staged: bool) -> list[Sent]:
    layout, at = work.layout, piece.index
    zero = int(layout.policies.zero[0])
    dense, expert = (float(grid[0, at]) for grid in work.parameters)
    groups = (
        (dense, _one(layout.grad_ranks), _one(layout.shard)),
        (expert, _one(layout.expert_ranks), _one(layout.expert_shard)),
    )
    found = []
    for parameters, ranks, shard in groups:
        if parameters and ranks > 1:
            if zero == 3:
                found += _replicas(work, parameters, ranks / shard, shard, "step", 1.0)
            else:
                found += _reduced(work, parameters, ranks, shard)
    return found + (_gathered_units(work, piece, staged) if zero == 3 else [])


def _reduced(work: Work, parameters: float, ranks: float, shard: float) -> list[Sent]:
    """ZeRO 0, 1 and 2: a long buffer in messages; 2 keeps shares of the sum and so reduces in every micro-batch."""
    precision, zero = work.job.precision, int(work.layout.policies.zero[0])
    if zero == 0 or shard == 1:
        return _cut(work, "all_reduce", "backward", parameters * precision.grad_comm_bytes, ranks, 1.0)
    often = _one(work.layout.micro_batches) if zero == 2 else 1.0
    # every rank's share is as long as the others', so the buffer is filled up
    parameters = ceil(parameters / shard) * shard
    grads, params = parameters * precision.grad_comm_bytes, parameters * precision.param_comm_bytes
    return [
        *_cut(work, "reduce_scatter", "backward", grads, shard, often),
        *_replicas(work, parameters, ranks / shard, shard, "backward", often),
        *_cut(work, "all_gather", "step", params, shard, 1.0),
    ]


def _cut(work: Work, op: str, phase: str, bytes_: float, size: float, times: float) -> list[Sent]:
    message = max(work.stack.bucket_bytes, work.stack.bucket_bytes_per_rank * size)
    number = ceil(bytes_ / message)
    return [Sent("dp", op, phase, bytes_ / number, number * times)]


def _replicas(work: Work, parameters: float, replicas: float, shard: float, phase: str, times: float) -> list[Sent]:
    """Copies of each share add theirs up."""
    grads = parameters * work.job.precision.grad_comm_bytes / shard
    return [Sent("dp", "all_reduce", phase, grads, times)] if replicas > 1 else []


def _gathered_units(work: Work, piece: Piece, staged: bool) -> list[Sent]:
    """ZeRO 3: embedding, layers, experts and head are gathered and reduced one by one."""
    layout, precision, micro = work.layout, work.job.precision, _one(work.layout.micro_batches)
    found = []
    for tensors, number in _held(work, piece):
        for expert, ranks in ((False, layout.shard), (True, layout.expert_shard)):
            shard = _one(ranks)
            parameters = _filled([t for t in tensors if (t.split == "expert") == expert], work, shard)
            if parameters and shard > 1:
                gathered, reduced = (parameters * b for b in (precision.param_comm_bytes, precision.grad_comm_bytes))
                phases = (("forward", 1.0),) if staged else (("forward", micro), ("backward", micro))
                found += [Sent("dp", "all_gather", phase, gathered, times * number) for phase, times in phases]
                found.append(Sent("dp", "reduce_scatter", "backward", reduced, (1.0 if staged else micro) * number))
    return found


def _held(work: Work, piece: Piece) -> list[tuple[tuple[Tensor, ...], float]]:
    """The tensors of each unit, and how many units like it the piece has."""
    stages, at, model = work.stages, piece.index, work.model
    first, last = bool(stages.first[0, at]), bool(stages.last[0, at])
    found = [(layer_tensors(model, kind), float(number[0, at])) for kind, number in enumerate(stages.kinds)]
    table = tuple(t for t in embedding_tensors(model) if t.role == "token.weight") if model.tied and not first else ()
    ends = [(embedding_tensors(model), first), ((*head_tensors(model), *table), last)]
    if first and last and model.tied:
        # a table that both ends use lies in one unit around them
        ends = [((*embedding_tensors(model), *head_tensors(model)), True)]
    return [*found, *((tensors, 1.0) for tensors, there in ends if there)]


def _filled(tensors: list[Tensor], work: Work, shard: float) -> float:
    """Elements on one rank, each tensor's first axis filled up so that every rank's share is as long."""
    tp, ep, etp = (_one(axis) for axis in (work.layout.tp, work.layout.ep, work.layout.etp))
    total = 0.0
    for t in tensors:
        cut = min(tp, t.pieces or tp) if t.split != "none" else 1.0
        rows = t.shape[0] / (ep if t.split == "expert" else cut if t.split in ("column", "vocab") else 1.0)
        size = t.size / (ep * etp if t.split == "expert" else cut)
        total += ceil(rows / shard) * shard * size / rows
    return total


def _units(work: Work, piece: Piece) -> list[tuple[Counts, float]]:
    stages, at, counts = work.stages, piece.index, work.counts
    first, last = bool(stages.first[0, at]), bool(stages.last[0, at])
    found = [(kind, float(number[0, at])) for kind, number in zip(counts.kinds, stages.kinds, strict=True)]
    if first and last and work.model.tied:
        # a table that both ends use lies in one unit around them
        return [*found, (_sum(counts.embedding, counts.head_alone), 1.0)]
    head = counts.head_alone if first else counts.head
    ends = [(counts.embedding, first), (head, last)]
    return [*found, *((part, 1.0) for part, there in ends if there)]


def _sum(a: Counts, b: Counts) -> Counts:
    return Counts(split=a.split + b.split, whole=a.whole + b.whole)


def _shared(work: Work, piece: Piece) -> list[Sent]:
    """Gradients that ranks of other axes share: with sequence parallelism those of what every tensor-parallel rank
    holds whole, and a tied vocabulary table's on the first and last stage."""
    layout, stages, at = work.layout, work.stages, piece.index
    zero, tp = int(layout.policies.zero[0]), _one(layout.tp)
    often = _one(layout.micro_batches) if zero == 2 else 1.0
    element = work.job.precision.grad_bytes / (_one(layout.shard) if zero == 3 else 1.0)
    found = []
    whole = sum(counts.whole * number for counts, number in _units(work, piece)) if tp > 1 else 0.0
    if _one(layout.sp) > 1 and whole:
        found.append(Sent("tp", "all_reduce", "step", whole * element, often))
    first, last = bool(stages.first[0, at]), bool(stages.last[0, at])
    if work.model.tied and first != last:
        table = work.model.vocab * work.model.hidden / tp
        found.append(Sent("pp", "all_reduce", "step", table * element, often))
    return found
