"""Every message one rank sends in a step: the work's collectives, transfers between stages, and data parallelism.

Held against the runtime's own recording, message by message, and what the fabric lays on its links. A piece is one of
the pp x vpp parts of the model; the work has one stage per piece (`piecewise`).
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from msgspec.structs import replace

from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import Stack
from shardwise.work import Work, work_of
from shardwise.work.layout import Numbers
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
    group: str = ""
    """who takes part, where it is not the axis: dp_cp or edp (replicas of dense or expert parameters), ends (the first
    and the last stage)"""
    part: str = "whole"
    """whole group, `shard` (consecutive ranks of it) or `replicas` (the same place in each shard)"""
    size: int = 0
    """ranks of that part, where it is not the whole axis"""


@dataclass(frozen=True)
class Piece:
    """One part of the model on a rank, and how it meets the others."""

    index: int
    recomputed: float
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


def bucket_bytes(stack: Stack, op: str, bytes_: Numbers, size: Numbers) -> Numbers:
    """One message of a long buffer."""
    bucket = stack.gather_bucket_bytes if op == "all_gather" else stack.bucket_bytes
    return np.minimum(bytes_, np.maximum(bucket, stack.bucket_bytes_per_rank * size))


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _inside(work: Work, piece: Piece) -> list[Sent]:
    """Collectives of the layers and ends, in every micro-batch; every extra prediction layer runs one more layer, its
    projection and the head once more, on the last piece."""
    stages, at, micro = work.stages, piece.index, _one(work.layout.micro_batches)
    held = [float(kind[0, at]) for kind in stages.kinds]
    layers = max(sum(held), 1.0)
    again = min(piece.recomputed / layers, 1.0) if work.layout.policies.recompute[0] == 2 else 0.0
    last = float(stages.last[0, at])
    extra = last * work.model.mtp_layers
    if extra:
        held[work.model.pattern[-1]] += extra
    found = []
    for part, count in zip(work.kinds, held, strict=True):
        found += _of(part, count * micro, again * count * micro)
    found += _of(work.embedding, float(stages.first[0, at]) * micro, 0.0)
    if work.mtp is not None:
        found += _of(work.mtp, extra * micro, 0.0)
    return found + _of(work.head, (last + extra) * micro, 0.0)


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


@dataclass(frozen=True)
class _Replicas:
    """Ranks that hold the same parameters, and how many of them share one copy of what ZeRO cuts."""

    parameters: float
    group: str
    ranks: int
    shard: int

    def whole(self, op: str, phase: str, bytes_: float, count: float) -> Sent:
        return Sent("dp", op, phase, bytes_, count, self.group, "whole", self.ranks)

    def sharded(self, op: str, phase: str, bytes_: float, count: float) -> Sent:
        part = "shard" if self.shard < self.ranks else "whole"
        return Sent("dp", op, phase, bytes_, count, self.group, part, self.shard)

    def across(self, work: Work, phase: str, count: float) -> list[Sent]:
        """Copies of each share add theirs up."""
        copies = self.ranks // self.shard
        grads = self.parameters * work.job.precision.grad_comm_bytes / self.shard
        return [Sent("dp", "all_reduce", phase, grads, count, self.group, "replicas", copies)] if copies > 1 else []


def _replicas(work: Work, dense: float, expert: float) -> list[_Replicas]:
    layout = work.layout
    return [
        _Replicas(dense, "dp_cp", int(_one(layout.grad_ranks)), int(_one(layout.shard))),
        _Replicas(expert, "edp", int(_one(layout.expert_ranks)), int(_one(layout.expert_shard))),
    ]


def _synchronised(work: Work, piece: Piece, staged: bool) -> list[Sent]:
    zero = int(work.layout.policies.zero[0])
    found = []
    for mine in _replicas(work, *(float(grid[0, piece.index]) for grid in work.parameters)):
        if mine.parameters and mine.ranks > 1:
            found += mine.across(work, "step", 1.0) if zero == 3 else _reduced(work, mine)
    return found + (_gathered_units(work, piece, staged) if zero == 3 else [])


def _reduced(work: Work, mine: _Replicas) -> list[Sent]:
    """ZeRO 0, 1 and 2: a long buffer in messages; 2 keeps shares of the sum and so reduces in every micro-batch."""
    precision, zero = work.job.precision, int(work.layout.policies.zero[0])
    if zero == 0 or mine.shard == 1:
        return [_cut(work, mine.whole("all_reduce", "backward", mine.parameters * precision.grad_comm_bytes, 1.0))]
    often = _one(work.layout.micro_batches) if zero == 2 else 1.0
    # every rank's share is as long as the others', so the buffer is filled up
    mine = _Replicas(ceil(mine.parameters / mine.shard) * mine.shard, mine.group, mine.ranks, mine.shard)
    grads, params = (mine.parameters * each for each in (precision.grad_comm_bytes, precision.param_comm_bytes))
    return [
        _cut(work, mine.sharded("reduce_scatter", "backward", grads, often)),
        *mine.across(work, "backward", often),
        _cut(work, mine.sharded("all_gather", "step", params, 1.0)),
    ]


def _cut(work: Work, whole: Sent) -> Sent:
    message = bucket_bytes(work.stack, whole.op, np.array(whole.bytes), np.array(float(whole.size)))
    number = ceil(whole.bytes / _one(message))
    return Sent(whole.axis, whole.op, whole.phase, whole.bytes / number, number * whole.count, whole.group, whole.part,
                whole.size)  # fmt: skip


def _gathered_units(work: Work, piece: Piece, staged: bool) -> list[Sent]:
    """ZeRO 3: embedding, layers, experts and head are gathered and reduced one by one."""
    layout, precision, micro = work.layout, work.job.precision, _one(work.layout.micro_batches)
    found = []
    for counts, number in _units(work, piece):
        sizes = (_one(counts.dense_per_rank(layout)), _one(counts.expert_per_rank(layout)))
        for mine in _replicas(work, *sizes):
            if mine.parameters and mine.shard > 1 and number:
                gathered, reduced = (
                    mine.parameters * b for b in (precision.param_comm_bytes, precision.grad_comm_bytes)
                )
                phases = (("forward", 1.0),) if staged else (("forward", micro), ("backward", micro))
                found += [mine.sharded("all_gather", phase, gathered, times * number) for phase, times in phases]
                found.append(mine.sharded("reduce_scatter", "backward", reduced, (1.0 if staged else micro) * number))
    return found


def _units(work: Work, piece: Piece) -> list[tuple[Counts, float]]:
    stages, at, counts = work.stages, piece.index, work.counts
    first, last = bool(stages.first[0, at]), bool(stages.last[0, at])
    found = [(kind, float(number[0, at])) for kind, number in zip(counts.kinds, stages.kinds, strict=True)]
    if last and work.model.mtp_layers:
        found.append((counts.mtp, 1.0))
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
        found.append(Sent("pp", "all_reduce", "step", table * element, often, "ends", "whole", 2))
    return found
