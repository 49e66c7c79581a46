"""Every message one rank sends in a step: the work's collectives, transfers between stages, and data parallelism.

Held against the runtime's own recording, message by message. A piece is one of the pp x vpp parts of the model; the
work has one stage per piece (`piecewise`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as data_replace
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
from shardwise.work.parameters import filled_shards, on_first_rank, rows_and_width
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
    first_of_tp: bool = True
    """the first tensor-parallel rank, which may hold a whole vocabulary table"""
    mirrored: bool = False
    """another rank has the piece too, and each takes half of the micro-batches"""
    ends_together: bool = False
    """the rank has the embedding in one of its pieces and the head in another"""
    shard_index: int | None = None
    """which of ZeRO 3's shards the rank has; None: a mean of all"""
    expert_shard_index: int | None = None


def piecewise(model: Model, job: Job, policy: Policy, stack: Stack) -> Work:
    """The work with every chunk as a stage of its own."""
    cut = replace(policy, pp=policy.pp * policy.vpp, vpp=1, schedule="1f1b")
    return work_of(model, job, Policies.of([cut]), stack, every_stage=True)


def messages(work: Work, piece: Piece, *, staged: bool) -> list[Sent]:
    """Of one rank that holds this piece. `staged`: there are pipeline stages, so ZeRO 3 gathers once a step."""
    return [*_inside(work, piece), *_between(work, piece), *_synchronised(work, piece, staged), *_shared(work, piece)]


def _micro(work: Work, piece: Piece) -> float:
    """Micro-batches that pass the piece."""
    return _one(work.layout.micro_batches) / (2.0 if piece.mirrored else 1.0)


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _inside(work: Work, piece: Piece) -> list[Sent]:
    """Collectives of the layers and ends, in every micro-batch."""
    stages, at, micro = work.stages, piece.index, _micro(work, piece)
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
    message, micro = _one(transfer_bytes(work)), _micro(work, piece)
    ways = (("forward", piece.sends_on), ("backward", piece.sends_back))
    return [Sent("pp", "send", phase, message, micro) for phase, goes in ways if goes]


def _synchronised(work: Work, piece: Piece, staged: bool) -> list[Sent]:
    layout, zero = work.layout, _zero(work)
    tensors = [(tensor, number) for part, number in _units(work, piece) for tensor in part]
    # a table on both ends is a buffer of its own with ZeRO 2: the other end's is cut into the same shares
    apart = zero == 2 and _tied_apart(work, piece)
    table = _own(work, piece, _table(work)) if apart else 0.0
    dense = sum(n * _own(work, piece, t) for t, n in tensors if t.split != "expert") - table
    expert = sum(n * _own(work, piece, t) for t, n in tensors if t.split == "expert")
    found = []
    for own, ranks, shard in (
        (dense, _one(layout.grad_ranks), _one(layout.shard)),
        (table, _one(layout.grad_ranks), _one(layout.shard)),
        (expert, _one(layout.expert_ranks), _one(layout.expert_shard)),
    ):
        if own and ranks > 1:
            replicas = ranks / shard
            found += (
                _replicas(work, own, replicas, "step", 1.0) if zero == 3 else _reduced(work, piece, own, ranks, shard)
            )
    return found + (_gathered_units(work, piece, staged) if zero == 3 else [])


def _zero(work: Work) -> int:
    """The stage of ZeRO, 0 where there is nothing to shard over."""
    return int(work.layout.policies.zero[0]) if _one(work.layout.grad_ranks) > 1 else 0


def _reduced(work: Work, piece: Piece, parameters: float, ranks: float, shard: float) -> list[Sent]:
    """ZeRO 0, 1 and 2: a long buffer in messages; 2 keeps shares of the sum and so reduces in every micro-batch."""
    precision, zero = work.job.precision, _zero(work)
    if zero == 0 or shard == 1:
        return _cut(work, "all_reduce", "backward", parameters * precision.grad_comm_bytes, ranks, 1.0)
    often = _micro(work, piece) if zero == 2 else 1.0
    # every rank's share is as long as the others', so the buffer is filled up
    parameters = ceil(parameters / shard) * shard
    grads, params = parameters * precision.grad_comm_bytes, parameters * precision.param_comm_bytes
    return [
        *_cut(work, "reduce_scatter", "backward", grads, shard, often),
        *_replicas(work, parameters / shard, ranks / shard, "backward", often),
        *_cut(work, "all_gather", "step", params, shard, 1.0),
    ]


def _cut(work: Work, op: str, phase: str, bytes_: float, size: float, times: float) -> list[Sent]:
    message = max(work.stack.bucket_bytes, work.stack.bucket_bytes_per_rank * size)
    number = ceil(bytes_ / message)
    return [Sent("dp", op, phase, bytes_ / number, number * times)]


def _replicas(work: Work, own: float, replicas: float, phase: str, times: float) -> list[Sent]:
    """Copies of each share add theirs up."""
    grads = own * work.job.precision.grad_comm_bytes
    return [Sent("dp", "all_reduce", phase, grads, times)] if replicas > 1 else []


def _gathered_units(work: Work, piece: Piece, staged: bool) -> list[Sent]:
    """ZeRO 3: embedding, layers, experts and head are gathered and reduced one by one, every tensor filled up."""
    layout, precision, micro = work.layout, work.job.precision, _micro(work, piece)
    shards = _one(layout.shard), _one(layout.expert_shard)
    found = []
    for tensors, number in _units(work, piece):
        for own, shard in zip(filled_shards(tensors, layout), shards, strict=True):
            parameters = _one(own) * shard
            if parameters and shard > 1:
                gathered, reduced = (parameters * b for b in (precision.param_comm_bytes, precision.grad_comm_bytes))
                phases = (("forward", 1.0),) if staged else (("forward", micro), ("backward", micro))
                found += [Sent("dp", "all_gather", phase, gathered, times * number) for phase, times in phases]
                found.append(Sent("dp", "reduce_scatter", "backward", reduced, (1.0 if staged else micro) * number))
    return found


def _units(work: Work, piece: Piece) -> list[tuple[tuple[Tensor, ...], float]]:
    """What is gathered as one, and how often the piece has it."""
    model, stages, at = work.model, work.stages, piece.index
    found = [(layer_tensors(model, kind), float(number[0, at])) for kind, number in enumerate(stages.kinds)]
    embedding, head = embedding_tensors(model), head_tensors(model)
    if work.stack.embedding == "broadcast":
        embedding = tuple(t for t in on_first_rank(embedding) if t.split != "first" or piece.first_of_tp)
    first, last = _ends(work, piece)
    if first and last and model.tied:
        # a table that both ends use lies in one unit around them
        return [*found, (embedding + head, 1.0)]
    if model.tied and not piece.ends_together:
        head = (*head, *(t for t in embedding if t.split == "vocab"))
    return [*found, *((part, 1.0) for part, there in ((embedding, first), (head, last)) if there)]


def _ends(work: Work, piece: Piece) -> tuple[bool, bool]:
    """Whether the piece has the embedding, and the head."""
    return bool(work.stages.first[0, piece.index]), bool(work.stages.last[0, piece.index])


def _shared(work: Work, piece: Piece) -> list[Sent]:
    """Gradients that ranks of other axes share: with sequence parallelism those of what every tensor-parallel rank
    holds whole, those of key/value heads that several hold, and a tied vocabulary table's on the first and last
    stage."""
    layout, zero, element = work.layout, _zero(work), work.job.precision.grad_bytes
    tp, often = _one(layout.tp), _micro(work, piece) if zero == 2 else 1.0
    tensors = [(tensor, number) for part, number in _units(work, piece) for tensor in part]
    whole = sum(n * _own(work, piece, t) for t, n in tensors if t.split == "none") if _one(layout.sp) > 1 else 0.0
    copied = sum(n * _own(work, piece, t) for t, n in tensors if 0 < t.pieces < tp)
    found = [Sent("tp", "all_reduce", "step", element * size, often) for size in (whole, copied) if size]
    if _tied_apart(work, piece):
        table = _own(work, piece, _table(work))
        if zero == 2:
            # the table's shares are summed when the step's last micro-batch is reduced
            table = ceil(table / _one(layout.shard))
        found.append(Sent("pp", "all_reduce", "step", element * table, 1.0))
    if piece.mirrored:
        found.append(Sent("pp", "all_reduce", "step", element * _reduced_elements(work, piece), 1.0))
    return found


def _reduced_elements(work: Work, piece: Piece) -> float:
    """Of the gradients that data parallelism leaves on a rank: ZeRO 1 and 2 keep shares of a buffer that is filled
    up."""
    found = 0.0
    tensors = [(tensor, number) for part, number in _units(work, piece) for tensor in part]
    for experts, shard in ((False, _one(work.layout.shard)), (True, _one(work.layout.expert_shard))):
        own = sum(n * _own(work, piece, t) for t, n in tensors if (t.split == "expert") == experts)
        found += ceil(own / shard) if _zero(work) in (1, 2) else own
    return found


def _table(work: Work) -> Tensor:
    return next(t for t in embedding_tensors(work.model) if t.split == "vocab")


def _tied_apart(work: Work, piece: Piece) -> bool:
    first, last = _ends(work, piece)
    return work.model.tied and first != last and not piece.ends_together


def _own(work: Work, piece: Piece, tensor: Tensor) -> float:
    """Elements of a tensor's gradient on a rank after the backward: with ZeRO 3 its shard's, of which the last ones may
    be shorter."""
    rows, width = map(_one, rows_and_width(tensor, work.layout))
    if _zero(work) < 3:
        return rows * width
    expert = tensor.split == "expert"
    shard = _one(work.layout.expert_shard if expert else work.layout.shard)
    index = piece.expert_shard_index if expert else piece.shard_index
    if index is None:
        return rows * width / shard
    each = ceil(rows / shard)
    return min(max(rows - index * each, 0.0), each) * width


def filled_share(work: Work, pieces: Iterable[Piece]) -> float:
    """What a rank holds over what the fullest rank of its stage does: less where ZeRO 3's last shards are shorter, and
    without a table that only the first tensor-parallel rank has."""
    own = most = 0.0
    for piece in pieces:
        fullest = data_replace(piece, first_of_tp=True, shard_index=0, expert_shard_index=0)
        own += _held(work, piece)
        most += _held(work, fullest)
    return own / most


def _held(work: Work, piece: Piece) -> float:
    return sum(number * _own(work, piece, t) for tensors, number in _units(work, piece) for t in tensors)
