"""Every message one rank sends in a step: the work's collectives, transfers between stages, and data parallelism.

Held against the runtime's own recording, message by message, and what the fabric lays on its links. A piece is one of
the pp x vpp parts of the model; the work has one stage per piece (`piecewise`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as data_replace
from math import ceil

import numpy as np
from msgspec.structs import replace

from shardwise.arch.tensors import Tensor, embedding_tensors, head_tensors, layer_tensors, mtp_tensors
from shardwise.case import Training
from shardwise.software import Stack
from shardwise.spec.policy import Policies, Policy
from shardwise.work import Work, work_of
from shardwise.work.layout import Numbers
from shardwise.work.ops import LayerWork
from shardwise.work.parameters import filled_shards, on_first_rank, rows_and_width
from shardwise.work.transfer import transfer_bytes


@dataclass(frozen=True)
class StepMessage:
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
    first_of_tp: bool = True
    """the first tensor-parallel rank, which may hold a whole vocabulary table"""
    mirrored: bool = False
    """another rank has the piece too, and each takes half of the micro-batches"""
    ends_together: bool = False
    """the rank has the embedding in one of its pieces and the head in another"""
    shard_index: int | None = None
    """which of ZeRO 3's shards the rank has; None: a mean of all"""
    expert_shard_index: int | None = None


def piecewise(training: Training, policy: Policy) -> Work:
    """The work with every chunk as a stage of its own."""
    cut = replace(policy, pp=policy.pp * policy.vpp, vpp=1, schedule="1f1b")
    return work_of(training, Policies.of([cut]), every_stage=True)


def messages(work: Work, piece: Piece, *, staged: bool) -> list[StepMessage]:
    """Of one rank that holds this piece. `staged`: there are pipeline stages, so ZeRO 3 gathers once a step."""
    return [*_inside(work, piece), *_between(work, piece), *_synchronised(work, piece, staged), *_shared(work, piece)]


def _micro(work: Work, piece: Piece) -> float:
    """Micro-batches that pass the piece."""
    return _one(work.layout.micro_batches) / (2.0 if piece.mirrored else 1.0)


def bucket_bytes(stack: Stack, op: str, bytes_: Numbers, size: Numbers) -> Numbers:
    """One message of a long buffer."""
    bucket = stack.network.gather_bucket_bytes if op == "all_gather" else stack.network.bucket_bytes
    return np.minimum(bytes_, np.maximum(bucket, stack.network.bucket_bytes_per_rank * size))


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _inside(work: Work, piece: Piece) -> list[StepMessage]:
    """Collectives of the layers and ends, in every micro-batch; every extra prediction layer runs one more layer, its
    projection and the head once more, on the last piece."""
    stages, at, micro = work.stages, piece.index, _micro(work, piece)
    held = [float(kind[0, at]) for kind in stages.kinds]
    layers = max(sum(held), 1.0)
    again = min(piece.recomputed / layers, 1.0) if work.layout.policies.recompute[0] == 2 else 0.0
    last = float(stages.last[0, at])
    extra = last * work.model.mtp_layers
    if extra:
        for kind in work.model.mtp_kinds:
            held[kind] += extra
    found = []
    for part, count in zip(work.kinds, held, strict=True):
        found += _of(part, count * micro, again * count * micro)
    found += _of(work.embedding, float(stages.first[0, at]) * micro, 0.0)
    if work.mtp is not None:
        found += _of(work.mtp, extra * micro, 0.0)
    return found + _of(work.head, (last + extra) * micro, 0.0)


def _of(part: LayerWork, times: float, again: float) -> list[StepMessage]:
    found = []
    for item in part.collectives:
        count, size = _one(item.count), _one(item.bytes)
        found.append(StepMessage(item.axis, item.op, item.phase, size, count * times))
        if item.phase == "forward" and again:
            found.append(StepMessage(item.axis, item.op, "recompute", size, count * again))
    return [sent for sent in found if sent.count]


def _between(work: Work, piece: Piece) -> list[StepMessage]:
    message, micro = _one(transfer_bytes(work)), _micro(work, piece)
    ways = (("forward", piece.sends_on), ("backward", piece.sends_back))
    return [StepMessage("pp", "send", phase, message, micro) for phase, goes in ways if goes]


@dataclass(frozen=True)
class _Replicas:
    """Ranks that hold the same parameters, and how many of them share one copy of what ZeRO cuts."""

    group: str
    ranks: int
    shard: int

    def whole(self, op: str, phase: str, bytes_: float, count: float) -> StepMessage:
        return StepMessage("dp", op, phase, bytes_, count, self.group, "whole", self.ranks)

    def sharded(self, op: str, phase: str, bytes_: float, count: float) -> StepMessage:
        part = "shard" if self.shard < self.ranks else "whole"
        return StepMessage("dp", op, phase, bytes_, count, self.group, part, self.shard)

    def across(self, work: Work, own: float, phase: str, count: float) -> list[StepMessage]:
        """Copies of each share of `own` elements add theirs up."""
        copies, grads = self.ranks // self.shard, own * work.job.precision.grad_comm_bytes
        return (
            [StepMessage("dp", "all_reduce", phase, grads, count, self.group, "replicas", copies)] if copies > 1 else []
        )


def _dense(work: Work) -> _Replicas:
    return _Replicas("dp_cp", int(_one(work.layout.grad_ranks)), int(_one(work.layout.shard)))


def _expert(work: Work) -> _Replicas:
    return _Replicas("edp", int(_one(work.layout.expert_ranks)), int(_one(work.layout.expert_shard)))


def _synchronised(work: Work, piece: Piece, staged: bool) -> list[StepMessage]:
    zero = _zero(work)
    tensors = [(tensor, number) for part, number in _units(work, piece) for tensor in part]
    # a table on both ends is a buffer of its own with ZeRO 2: the other end's is cut into the same shares
    apart = zero == 2 and _tied_apart(work, piece)
    table = _own(work, piece, _table(work)) if apart else 0.0
    dense = sum(n * _own(work, piece, t) for t, n in tensors if t.split != "expert") - table
    expert = sum(n * _own(work, piece, t) for t, n in tensors if t.split == "expert")
    found = []
    for own, mine in ((dense, _dense(work)), (table, _dense(work)), (expert, _expert(work))):
        if own and mine.ranks > 1:
            found += mine.across(work, own, "step", 1.0) if zero == 3 else _reduced(work, piece, own, mine)
    return found + (_gathered_units(work, piece, staged) if zero == 3 else [])


def _zero(work: Work) -> int:
    """The stage of ZeRO, 0 where there is nothing to shard over."""
    return int(work.layout.policies.zero[0]) if _one(work.layout.grad_ranks) > 1 else 0


def _reduced(work: Work, piece: Piece, parameters: float, mine: _Replicas) -> list[StepMessage]:
    """ZeRO 0, 1 and 2: a long buffer in messages; 2 keeps shares of the sum and so reduces in every micro-batch."""
    precision, zero = work.job.precision, _zero(work)
    if zero == 0 or mine.shard == 1:
        return [_cut(work, mine.whole("all_reduce", "backward", parameters * precision.grad_comm_bytes, 1.0))]
    often = _micro(work, piece) if zero == 2 else 1.0
    # every rank's share is as long as the others', so the buffer is filled up
    share = ceil(parameters / mine.shard)
    grads, params = (share * mine.shard * each for each in (precision.grad_comm_bytes, precision.param_comm_bytes))
    return [
        _cut(work, mine.sharded("reduce_scatter", "backward", grads, often)),
        *mine.across(work, share, "backward", often),
        _cut(work, mine.sharded("all_gather", "step", params, 1.0)),
    ]


def _cut(work: Work, whole: StepMessage) -> StepMessage:
    message = bucket_bytes(work.stack, whole.op, np.array(whole.bytes), np.array(float(whole.size)))
    number = ceil(whole.bytes / _one(message))
    return StepMessage(whole.axis, whole.op, whole.phase, whole.bytes / number, number * whole.count, whole.group,
                       whole.part, whole.size)  # fmt: skip


def _gathered_units(work: Work, piece: Piece, staged: bool) -> list[StepMessage]:
    """ZeRO 3: embedding, layers, experts and head are gathered and reduced one by one."""
    precision, micro, fills = work.job.precision, _micro(work, piece), work.stack.network.fills_shards
    found = []
    for tensors, number in _units(work, piece):
        shards = filled_shards(tensors, work.layout, fills=fills)
        for own, mine in zip(shards, (_dense(work), _expert(work)), strict=True):
            parameters = _one(own) * mine.shard
            if parameters and mine.shard > 1 and number:
                gathered, reduced = (parameters * b for b in (precision.param_comm_bytes, precision.grad_comm_bytes))
                phases = (("forward", 1.0),) if staged else (("forward", micro), ("backward", micro))
                found += [mine.sharded("all_gather", phase, gathered, times * number) for phase, times in phases]
                found.append(mine.sharded("reduce_scatter", "backward", reduced, (1.0 if staged else micro) * number))
    return found


def _units(work: Work, piece: Piece) -> list[tuple[tuple[Tensor, ...], float]]:
    """What is gathered as one, and how often the piece has it."""
    model, stages, at = work.model, work.stages, piece.index
    found = [(layer_tensors(model, kind), float(number[0, at])) for kind, number in enumerate(stages.kinds)]
    embedding, head = embedding_tensors(model), head_tensors(model)
    if work.stack.loss.embedding == "broadcast":
        embedding = tuple(t for t in on_first_rank(embedding) if t.split != "first" or piece.first_of_tp)
    first, last = _ends(work, piece)
    if last and model.mtp_layers:
        found.append((mtp_tensors(model), 1.0))
    if first and last and model.tied:
        # a table that both ends use lies in one unit around them
        return [*found, (embedding + head, 1.0)]
    if model.tied and not piece.ends_together:
        head = (*head, *(t for t in embedding if t.split == "vocab"))
    return [*found, *((part, 1.0) for part, there in ((embedding, first), (head, last)) if there)]


def _ends(work: Work, piece: Piece) -> tuple[bool, bool]:
    """Whether the piece has the embedding, and the head."""
    return bool(work.stages.first[0, piece.index]), bool(work.stages.last[0, piece.index])


def _shared(work: Work, piece: Piece) -> list[StepMessage]:
    """Gradients that ranks of other axes share: with sequence parallelism those of what every tensor-parallel rank
    holds whole, those of key/value heads that several hold, and a tied vocabulary table's on the first and last
    stage."""
    layout, zero, element = work.layout, _zero(work), work.job.precision.grad_bytes
    tp, often = _one(layout.tp), _micro(work, piece) if zero == 2 else 1.0
    tensors = [(tensor, number) for part, number in _units(work, piece) for tensor in part]
    whole = sum(n * _own(work, piece, t) for t, n in tensors if t.split == "none") if _one(layout.sp) > 1 else 0.0
    copied = sum(n * _own(work, piece, t) for t, n in tensors if 0 < t.pieces < tp)
    found = [StepMessage("tp", "all_reduce", "step", element * size, often) for size in (whole, copied) if size]
    if _tied_apart(work, piece):
        table = _own(work, piece, _table(work))
        if zero == 2:
            # the table's shares are summed when the step's last micro-batch is reduced
            table = ceil(table / _one(layout.shard))
        found.append(StepMessage("pp", "all_reduce", "step", element * table, 1.0, "ends", "whole", 2))
    if piece.mirrored:
        found.append(StepMessage("pp", "all_reduce", "step", element * _reduced_elements(work, piece), 1.0))
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
