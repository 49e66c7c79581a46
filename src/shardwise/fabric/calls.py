"""Every collective of one training step: what is called over which ranks, how large, how often. No seconds yet.

The messages are work/messages.py's, piece by piece, which real runs are held against; here they get the ranks that take
part and the lane of the timeline they run on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.cost.placement import Placement
from shardwise.plugins.schedules import held_pieces, schedules
from shardwise.spec.message import Axis, Message
from shardwise.spec.policy import Policies, Policy
from shardwise.work import Work
from shardwise.work.experts import fullest_share
from shardwise.work.messages import Piece, RankMessage, messages
from shardwise.work.parameter_messages import GATHERS
from shardwise.work.pieces import cut_into

STAGE_PAIRS = ("ends", "mirror")
"""groups of two pipeline stages: the first and the last; those that are as far from either end"""


class PlacedMessage(Message[float], frozen=True, kw_only=True):
    """A message and where a GPU of one pipeline stage sends it: over which ranks, on which lane of the timeline."""

    lane: str
    """of the timeline's lanes: when it happens"""
    ranks: int
    stride: int
    skew: float = 1.0
    """bytes of the fullest rank over the mean: all wait for it"""
    stage: int = -1
    """the pipeline stage whose GPUs send it; -1: every one"""
    piece: int = -1
    """the part of the model it belongs to"""
    target: int = -1
    """of a send between stages: who receives it"""


@dataclass(frozen=True)
class _Chunk:
    """A piece of the model on a rank of the pipeline, and the ranks of its neighbours."""

    stage: int
    piece: int
    before: int
    behind: int


@dataclass(frozen=True)
class _Sent:
    """What every rank of the pipeline sends for each of its pieces: told once for all that send the same."""

    chunks: list[_Chunk]
    """rank by rank"""
    kind: Ints
    """ranks x chunks: which of these messages are its"""
    messages: list[list[RankMessage]]
    firsts: list[int]
    """a chunk that sends each of them"""


def calls_of(work: Work) -> list[PlacedMessage]:
    """For the one policy `work` was made for (with every stage)."""
    policy, placed = work.layout.policies[0], _placed(work.layout.policies)
    sent = _sent(work, policy, None)
    return [
        call
        for chunk, kind in zip(sent.chunks, sent.kind.ravel().tolist(), strict=True)
        for call in _calls(work, policy, placed, chunk, sent.messages[kind])
    ]


def lane_bytes_of(work: Work, rank_layers: Ints | None = None) -> dict[tuple[str, bool], Floats]:
    """What calls carry in a step by (lane, whether it is a forward): ranks x chunks. `rank_layers`: where stages hold
    others than the program deals out."""
    policy, placed = work.layout.policies[0], _placed(work.layout.policies)
    sent = _sent(work, policy, rank_layers)
    found: dict[tuple[str, bool], Floats] = {}
    for kind, (first, its) in enumerate(zip(sent.firsts, sent.messages, strict=True)):
        for call in _calls(work, policy, placed, sent.chunks[first], its):
            totals = found.setdefault((call.lane, call.phase == "forward"), np.zeros(len(sent.firsts)))
            totals[kind] += call.bytes * call.count
    return {key: totals[sent.kind] for key, totals in found.items()}


def _sent(work: Work, policy: Policy, rank_layers: Ints | None) -> _Sent:
    held = held_pieces(policy.schedule, policy.pp, policy.vpp)
    cut = cut_into(work, held, rank_layers)
    repeated, stages = repeated_share(work, policy), cut.stages
    rank = np.broadcast_to(np.arange(len(held))[:, None], held.shape)
    before, behind = _neighbours(policy, held, rank)
    both = np.asarray((held == 0).any(axis=1) & (held == held.max()).any(axis=1))
    columns = [
        *(kind[0][held] for kind in stages.kinds), stages.first[0][held], stages.last[0][held],
        behind != rank, before != rank, np.broadcast_to(both[:, None], held.shape),
    ]  # fmt: skip
    _, firsts, kind = np.unique(
        np.stack([column.ravel() for column in columns], axis=1), axis=0, return_index=True, return_inverse=True
    )
    chunks = [
        _Chunk(*each)
        for each in zip(*(column.ravel().tolist() for column in (rank, held, before, behind)), strict=True)
    ]
    found = []
    for chunk in (chunks[first] for first in firsts):
        layers = float(stages.layers[0, chunk.piece])
        piece = Piece(
            chunk.piece, repeated * layers, sends_on=chunk.behind != chunk.stage,
            sends_back=chunk.before != chunk.stage, ends_together=bool(both[chunk.stage]),
        )  # fmt: skip
        found.append(messages(cut, piece))
    return _Sent(chunks, kind.reshape(held.shape), found, firsts.tolist())


def _calls(
    work: Work, policy: Policy, placed: dict[str, tuple[int, int]], chunk: _Chunk, sent: list[RankMessage]
) -> Iterator[PlacedMessage]:
    for call in (_call(work, policy, placed, chunk, message) for message in sent):
        if call.count > 0 and call.ranks > 1 and call.bytes > 0:
            yield call


def _placed(policies: Policies) -> dict[str, tuple[int, int]]:
    """(size, stride) of every group of the one policy."""
    sizes, strides = Placement().sizes(policies), Placement().strides(policies)
    return {group: (int(size[0]), int(strides[group][0])) for group, size in sizes.items()}


def _neighbours(policy: Policy, held: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Ranks of the pieces before and behind each; its own where there is none."""
    home = np.full((held.shape[1], int(held.max()) + 3), -1, dtype=np.int64)
    for chunk, pieces in enumerate(held.T):
        home[chunk, pieces + 1] = rank[:, chunk]
    # where the model is there twice, a micro-batch stays with the copy it entered
    if not schedules()[policy.schedule].both_ends:
        home[:] = home.max(axis=0)
    columns = np.arange(held.shape[1])
    before, behind = home[columns, held], home[columns, held + 2]
    return np.where(before < 0, rank, before), np.where(behind < 0, rank, behind)


def repeated_share(work: Work, policy: Policy) -> float:
    """Share of the layers whose forward collectives run again in full recompute."""
    if policy.recompute != "full":
        return 0.0
    if policy.recompute_layers < 0:
        return 1.0
    return min(policy.recompute_layers / max(work.model.layers / policy.pp, 1.0), 1.0)


def _call(
    work: Work, policy: Policy, placed: dict[str, tuple[int, int]], chunk: _Chunk, sent: RankMessage
) -> PlacedMessage:
    group = sent.group or sent.axis
    if group in STAGE_PAIRS:
        first, last = paired_stages(group, chunk.stage, policy.pp)
        size, stride = 2, placed["pp"][1] * abs(last - first)
    else:
        size, stride = placed[group]
    if sent.part == "replicas":
        stride *= size // int(sent.ranks)
    target = -1
    if sent.op == "send" and group == "pp":
        size, target = 2, chunk.behind if sent.phase == "forward" else chunk.before
    axis: Axis = "ep" if sent.axis == "etp" else sent.axis
    return PlacedMessage(
        name=sent.name, op=sent.op, axis=axis, bytes=sent.bytes, count=sent.count, phase=sent.phase, group=group,
        part=sent.part, ranks=int(sent.ranks) or size, copies=sent.copies, experts=sent.experts,
        lane=_lane(axis, sent, policy), stride=stride, skew=_skew(work, policy, sent), stage=chunk.stage,
        piece=chunk.piece, target=target,
    )  # fmt: skip


def paired_stages(group: str, stage: int, pp: int) -> tuple[int, int]:
    """Of a stage's group of two."""
    return (0, pp - 1) if group == "ends" else (stage, pp - 1 - stage)


def _skew(work: Work, policy: Policy, sent: RankMessage) -> float:
    return float(fullest_share(work.stack, policy.ep)) if sent.op == "all_to_all" else 1.0


def _lane(axis: str, sent: RankMessage, policy: Policy) -> str:
    if sent.phase == "update":
        return "grad"
    if axis != "dp":
        return "grad" if sent.phase == "step" else axis
    if policy.zero == 3 and sent.op != "all_reduce":
        return "fsdp"
    return "param" if sent.op in GATHERS else "grad"
