"""Every message one rank sends in a step, from the work's own list: what layers and ends send, transfers between
stages, and what is sent for parameters (`Work.parameter_messages`), here with exact sizes.

Held against the runtime's own recording, message by message, and what the fabric lays on its links. A piece is one of
the pp x vpp parts of the model; the work has one stage per piece (`piecewise`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import replace as data_replace
from math import ceil, prod

import numpy as np
from msgspec.structs import replace

from shardwise.spec.arch.tensors import Tensor, mtp_tensors
from shardwise.spec.arch.tuned import trained_embedding, trained_head, trained_layer
from shardwise.spec.message import Message, Phase
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack
from shardwise.work import Work, work_of
from shardwise.work.case import Training
from shardwise.work.layout import Numbers, layout_of, passing
from shardwise.work.ops import LayerWork
from shardwise.work.parameter_messages import OF_MATRICES, OF_SUMS, Elements, ParameterMessage
from shardwise.work.parameters import Counts, Frozen, counted, filled_shards, on_first_rank, rows_and_width
from shardwise.work.updates import is_cut, kind_of, owners_of, pieces_of, summed_of

_Units = list[tuple[tuple[Tensor, ...], float]]
"""what is gathered as one, and how often a piece has it"""
RankMessage = Message[float]
"""by one rank in a step"""
_Held = list[tuple[Tensor, float]]
"""tensors, and how many elements of all such a rank holds"""


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
    ends_together: bool = False
    """the rank has the embedding in one of its pieces and the head in another"""
    shard_index: int | None = None
    """which of ZeRO 3's shards the rank has; None: a mean of all"""
    expert_shard_index: int | None = None


def piecewise(training: Training, policy: Policy) -> Work:
    """The work with every chunk as a stage of its own."""
    cut = replace(policy, pp=policy.pp * policy.vpp, vpp=1, schedule="1f1b")
    work = work_of(training, Policies.of([cut]), every_stage=True)
    return data_replace(work, layout=layout_of(training.model, training.job, Policies.of([policy])))


def messages(work: Work, piece: Piece) -> list[RankMessage]:
    """Of one rank that holds this piece."""
    found, units = [*_inside(work, piece), *_between(work, piece)], _units(work, piece)
    held = [(tensor, number * _own(work, piece, tensor)) for part, number in units for tensor in part]
    for message in work.parameter_messages:
        if message.packed == "by unit":
            found += _unit_messages(work, piece, message, units)
        elif message.packed in ("by matrix", "by round"):
            found += _matrix_messages(work, piece, message, units)
        elif message.of in OF_SUMS:
            found += _sum_messages(work, message, units)
        else:
            found += _sent(work, piece, message, held)
    return found


def bucket_bytes(stack: Stack, op: str, bytes_: Numbers, size: Numbers, matrices: Numbers) -> Numbers:
    """One message of a long buffer. Of so many matrices each lies with one owner, who sends all of its own at once;
    short tensors go beside them at no cost."""
    if op == "broadcast":
        return np.asarray(bytes_ / np.minimum(size, matrices))
    bucket = stack.network.gather_bucket_bytes if op == "all_gather" else stack.network.bucket_bytes
    return np.minimum(bytes_, np.maximum(bucket, stack.network.bucket_bytes_per_rank * size))


def _one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def _inside(work: Work, piece: Piece) -> list[RankMessage]:
    """Collectives of the layers and ends, in every micro-batch; every extra prediction layer runs one more layer, its
    projection and the head once more, on the last piece."""
    stages, at, micro = work.stages, piece.index, _one(passing(work.layout))
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


def _of(part: LayerWork, times: float, again: float) -> list[RankMessage]:
    found = []
    for item in part.collectives:
        count, size = _one(item.count), _one(item.bytes)
        sent = Message(
            item.name, item.op, item.axis, size, count * times, item.phase, copies=item.copies, experts=item.experts
        )
        found.append(sent)
        if item.phase == "forward" and again:
            found.append(replace(sent, phase="recompute", count=count * again))
    return [sent for sent in found if sent.count]


def _between(work: Work, piece: Piece) -> list[RankMessage]:
    sent, micro = work.handover, _one(passing(work.layout))
    ways: tuple[tuple[Phase, bool], ...] = (("forward", piece.sends_on), ("backward", piece.sends_back))
    return [Message(sent.name, sent.op, sent.axis, _one(sent.bytes), micro, phase) for phase, goes in ways if goes]


def _sent(work: Work, piece: Piece, message: ParameterMessage, held: _Held) -> list[RankMessage]:
    """A buffer of all that the piece holds of a kind. A table on both ends is a buffer of its own with ZeRO 2: the
    other end's is cut into the same shares. So are matrices that an optimizer updates as a whole."""
    if message.group == "ends" and not _tied_apart(work, piece):
        return []
    table = _own(work, piece, _table(work)) if _zero(work) == 2 and _tied_apart(work, piece) else 0.0
    whole, buffers = [entry for entry in held if _apart(work, entry[0])], [_elements(work, piece, message.of, held)]
    if message.axis == "dp" and message.of == "dense" and table:
        buffers = [buffers[0] - table, table]
    if whole and message.of in ("dense", "whole", "copied"):
        matrices = _elements(work, piece, message.of, whole)
        buffers = [buffers[0] - matrices, *buffers[1:], matrices]
    return [found for own in buffers if own for found in _with_elements(work, message, own)]


def _apart(work: Work, tensor: Tensor) -> bool:
    """Whether ZeRO 1 and 2 have a buffer for what an optimizer updates as a whole."""
    rule, shared = work.job.optimizer.rule, _one(work.layout.shard) > 1.0 and _zero(work) in (1, 2)
    return shared and tensor.split != "expert" and rule.lies_apart(kind_of(tensor))


def _with_elements(work: Work, message: ParameterMessage, elements: float) -> list[RankMessage]:
    """Every rank's share is as long as the others', so a shared buffer is filled up; ZeRO 3's own shares are not."""
    count, shares = _one(message.count), _one(message.shares)
    if not count:
        return []
    if shares > 1.0 and _zero(work) < 3:
        elements = ceil(elements / shares) * (1.0 if message.own_share else shares)
    whole = message.bytes * elements
    number = 1
    if message.packed == "in buckets":
        bucket = bucket_bytes(work.stack, message.op, np.array(whole), message.ranks, work.matrices)
        number = ceil(whole / _one(bucket))
    return [_sent_by_rank(message, whole / number, number * count)]


def _sent_by_rank(message: ParameterMessage, bytes_: float, count: float) -> RankMessage:
    group = "" if message.group == message.axis else message.group
    ranks = int(_one(message.ranks)) if group else 0
    return Message(message.name, message.op, message.axis, bytes_, count, message.phase, group, message.part, ranks)


def _elements(work: Work, piece: Piece, of: Elements, held: _Held) -> float:
    """With ZeRO 3: of a rank's shard."""
    if of == "table":
        return _own(work, piece, _table(work))
    if of == "kept":
        return sum(
            _kept(work, sum(own for tensor, own in held if (tensor.split == "expert") == experts), shard)
            for experts, shard in ((False, work.layout.shard), (True, work.layout.expert_shard))
        )
    tp = _one(work.layout.tp)
    return sum(own for tensor, own in held if _counts(tensor, of, tp))


def _counts(tensor: Tensor, of: Elements, tp: float) -> bool:
    if of == "whole":
        return tensor.split == "none"
    if of == "copied":
        return 0 < tensor.pieces < tp
    return (tensor.split == "expert") == (of == "expert")


def _kept(work: Work, own: float, shard: Numbers) -> float:
    """ZeRO 1 and 2 keep shares of a buffer that is filled up."""
    return ceil(own / _one(shard)) if _zero(work) in (1, 2) else own


def _zero(work: Work) -> int:
    """The stage of ZeRO, 0 where there is nothing to shard over."""
    return int(work.layout.policies.zero[0]) if _one(work.layout.grad_ranks) > 1 else 0


def _unit_messages(work: Work, piece: Piece, message: ParameterMessage, units: _Units) -> list[RankMessage]:
    """ZeRO 3: embedding, layers, experts and head one by one, what is frozen with what is trained beside it."""
    shards, found = _one(message.shares), []
    for (tensors, number), (still, passed) in zip(units, _frozen_beside(work, piece), strict=True):
        dense, expert = filled_shards(tensors, work.layout, work.stack.network)
        own = message.bytes * _one(expert if message.of == "expert" else dense) * shards
        for frozen in still if message.brings_parameters and (passed or message.phase == "forward") else ():
            kept = frozen.bytes_per_rank(work.layout, work.job.precision.param_bytes)
            own += _one(kept[message.of == "expert"]) * work.frozen_sent
        counts = counted(tensors)
        cut = counts.messages(work.stack)[message.of]
        times = cut * number * _one(message.count)
        if (message.op, message.phase) == ("all_gather", "backward") and work.layout.policies.recompute[0] == 2:
            repeated = min(piece.recomputed / max(sum(float(k[0, piece.index]) for k in work.stages.kinds), 1.0), 1.0)
            layer = bool(tensors) and tensors[0].part == "layer"
            times *= 1.0 + repeated * counts.gathered_again(work.stack) * layer
        if own and times:
            found.append(_sent_by_rank(message, own / cut, times))
    return found


def _matrix_messages(work: Work, piece: Piece, message: ParameterMessage, units: _Units) -> list[RankMessage]:
    """Every matrix that the optimizer gathers, or as many at once as ranks send to their owners and back."""
    experts, cut = OF_MATRICES[message.of]
    rule, updates, whole = work.job.optimizer.rule, work.updates, list[tuple[Tensor, float]]()
    assert updates is not None
    for tensor, number in ((tensor, number) for part, number in units for tensor in part):
        if kind_of(tensor) == "matrix" and rule.covers("matrix") and (tensor.split == "expert") == experts:
            whole.append((tensor, number * _one(pieces_of(tensor, work.layout).number)))
    index = piece.expert_shard_index if experts else piece.shard_index
    if message.packed == "by round":
        return _rounds(work, message, whole, index)
    owners, times = int(_one(updates.dealt(expert=experts))), [_one(message.count)] * len(whole)
    if cut and owners > 1 and index is not None:
        in_turn = bool(updates.exchanged("all-to-all")[0])
        mine = Counter(kind for kind, owner in _dealt(whole, owners, in_turn=in_turn) if owner == index)
        times = [mine[kind] / max(number, 1.0) for kind, (_, number) in enumerate(whole)]
    found = []
    for (tensor, number), often in zip(whole, times, strict=True):
        held = pieces_of(tensor, work.layout)
        each = _one(held.rows) * _one(held.columns)
        if cut:
            # key/value heads that several ranks hold arrive from each of them
            ranks = _one(message.ranks)
            parts = min(ranks, tensor.pieces or ranks) if is_cut(tensor) else 1.0
            each = float(prod(tensor.shape[-2:])) * ranks / parts * (parts > 1.0)
        if number * often * each:
            found.append(_sent_by_rank(message, message.bytes * each, number * often))
    return found


def _sum_messages(work: Work, message: ParameterMessage, units: _Units) -> list[RankMessage]:
    expert, cut, norms = OF_SUMS[message.of]
    numbers = sum(
        number * _one(summed_of(tensor, work.layout, cut=cut, norms=norms))
        for part, number in units
        for tensor in part
        if (tensor.split == "expert") == expert
    )
    return (
        [_sent_by_rank(message, message.bytes * numbers, _one(message.count))] if numbers * _one(message.count) else []
    )


def _dealt(whole: list[tuple[Tensor, float]], owners: int, *, in_turn: bool) -> Iterator[tuple[int, int]]:
    """(which kind, owner) of every matrix."""
    each = [kind for kind, (_, number) in enumerate(whole) for _ in range(round(number))]
    shapes = [(float(tensor.shape[-2]), float(tensor.shape[-1])) for tensor, _ in (whole[kind] for kind in each)]
    yield from zip(each, owners_of(shapes, owners, in_turn=in_turn), strict=True)


def _rounds(
    work: Work, message: ParameterMessage, whole: list[tuple[Tensor, float]], index: int | None
) -> list[RankMessage]:
    """In each a rank sends its pieces of as many matrices as there are ranks, and as owner the update of one."""
    ranks = int(_one(message.shares))
    number = ceil(sum(count for _, count in whole) / ranks)
    if not (number and _one(message.count)):
        return []
    held = [_one(p.rows) * _one(p.columns) for p in (pieces_of(tensor, work.layout) for tensor, _ in whole)]
    share = back = sum(size * count for size, (_, count) in zip(held, whole, strict=True)) / ranks
    if index is not None:
        back = sum(held[kind] for kind, owner in _dealt(whole, ranks, in_turn=True) if owner == index)
    return [_sent_by_rank(message, message.bytes * sent / number, float(number)) for sent in (share, back)]


def _frozen_beside(work: Work, piece: Piece) -> list[tuple[tuple[Frozen, ...], bool]]:
    """Of each unit: what in it is not trained, and whether a gradient passes it."""
    first, last = _ends(work, piece)
    counts, tied = work.counts, work.model.tied
    head = counts.head_alone if first or piece.ends_together else counts.head
    units: list[tuple[tuple[Counts, ...], bool]] = [
        ((part,), not kind.forward_only) for part, kind in zip(counts.kinds, work.kinds, strict=True)
    ]
    if last and work.model.mtp_layers:
        units.append(((), True))
    if first and last and tied:
        units.append(((counts.embedding, head), True))
    else:
        units += [((counts.embedding,), not work.embedding.forward_only)] * first + [((head,), True)] * last
    return [(tuple(p.frozen for p in parts if p.frozen is not None), passed) for parts, passed in units]


def _units(work: Work, piece: Piece) -> _Units:
    """What is gathered as one, and how often the piece has it."""
    model, stages, at = work.model, work.stages, piece.index
    found = [(trained_layer(model, kind), float(number[0, at])) for kind, number in enumerate(stages.kinds)]
    embedding, head = trained_embedding(model), trained_head(model)
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


def _table(work: Work) -> Tensor:
    return next(t for t in trained_embedding(work.model) if t.split == "vocab")


def _tied_apart(work: Work, piece: Piece) -> bool:
    """Whether the other end has a copy of the table whose gradient is added to this one's."""
    first, last = _ends(work, piece)
    shared = work.model.tied and bool(trained_embedding(work.model))
    return shared and first != last and not piece.ends_together


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
