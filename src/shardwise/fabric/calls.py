"""Every collective of one training step: what is called over which ranks, how large, how often. No seconds yet.

The messages are work/messages.py's, piece by piece, which real runs are held against; here they get the ranks that take
part and the lane of the timeline they run on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardwise.cost.placement import Placement
from shardwise.schedules import held_pieces, schedules
from shardwise.spec.policy import Policies, Policy
from shardwise.work import Work
from shardwise.work.experts import fullest_share
from shardwise.work.messages import Piece, StepMessage, messages
from shardwise.work.pieces import Ints, cut_into

AXES = ("tp", "cp", "ep", "pp", "dp")
"""kinds of parallelism traffic is told by"""
STAGE_PAIRS = ("ends", "mirror")
"""groups of two pipeline stages: the first and the last; those that are as far from either end"""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A collective and how often a GPU of one pipeline stage takes part in it in one step."""

    axis: str
    """of AXES"""
    lane: str
    """of the timeline's lanes: when it happens"""
    phase: str = "step"
    """forward, backward, recompute, or step: once, around the pipeline"""
    op: str
    bytes: float
    times: float
    group: str
    """of Placement.sizes: who takes part; or a pair of stages (`STAGE_PAIRS`)"""
    part: str = "whole"
    """whole group, `shard` (consecutive ranks of it) or `replicas` (the same place in each shard)"""
    size: int
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


def calls_of(work: Work) -> list[Call]:
    """For the one policy `work` was made for (with every stage)."""
    policy, placed = work.layout.policies[0], _placed(work.layout.policies)
    return [
        call
        for chunk, _, its_messages in _sent(work, policy)
        for call in _calls(work, policy, placed, chunk, its_messages)
    ]


def lane_bytes_of(work: Work) -> Iterator[tuple[int, int, dict[tuple[str, bool], float]]]:
    """Of every piece: its stage, its number, and what its calls carry in a step by (lane, whether it is a forward).
    Pieces that hold the same and have neighbours alike are counted once."""
    policy, placed = work.layout.policies[0], _placed(work.layout.policies)
    known: dict[int, dict[tuple[str, bool], float]] = {}
    for chunk, kind, its_messages in _sent(work, policy):
        if kind not in known:
            totals = known[kind] = {}
            for call in _calls(work, policy, placed, chunk, its_messages):
                key = (call.lane, call.phase == "forward")
                totals[key] = totals.get(key, 0.0) + call.bytes * call.times
        yield chunk.stage, chunk.piece, known[kind]


def _sent(work: Work, policy: Policy) -> Iterator[tuple[_Chunk, int, list[StepMessage]]]:
    """Every piece on its rank, a number that pieces share which send the same, and what they send."""
    held = held_pieces(policy.schedule, policy.pp, policy.vpp)
    cut = cut_into(work, held)
    repeated, last = repeated_share(work, policy), int(held.max())
    first, final = cut.stages.first[0].tolist(), cut.stages.last[0].tolist()
    kinds = np.array([kind[0] for kind in cut.stages.kinds]).reshape(-1, len(first)).T.tolist()
    together = [{0, last} <= set(row) for row in held.tolist()]
    known: dict[tuple[object, ...], tuple[int, list[StepMessage]]] = {}
    for chunk in _chunks(policy, held):
        number, both = chunk.piece, together[chunk.stage]
        piece = Piece(
            number, repeated * sum(kinds[number]), sends_on=chunk.behind != chunk.stage,
            sends_back=chunk.before != chunk.stage, ends_together=both,
        )  # fmt: skip
        alike = (*kinds[number], first[number], final[number], piece.sends_on, piece.sends_back, both)
        if alike not in known:
            known[alike] = len(known), messages(cut, piece)
        yield chunk, *known[alike]


def _calls(
    work: Work, policy: Policy, placed: dict[str, tuple[int, int]], chunk: _Chunk, sent: list[StepMessage]
) -> Iterator[Call]:
    for call in (_call(work, policy, placed, chunk, message) for message in sent):
        if call.times > 0 and call.size > 1 and call.bytes > 0:
            yield call


def _placed(policies: Policies) -> dict[str, tuple[int, int]]:
    """(size, stride) of every group of the one policy."""
    sizes, strides = Placement().sizes(policies), Placement().strides(policies)
    return {group: (int(size[0]), int(strides[group][0])) for group, size in sizes.items()}


def _chunks(policy: Policy, held: Ints) -> Iterator[_Chunk]:
    ranks = held.tolist()
    homes = [{row[chunk]: rank for rank, row in enumerate(ranks)} for chunk in range(held.shape[1])]
    # where the model is there twice, a micro-batch stays with the copy it entered
    if not schedules()[policy.schedule].both_ends:
        homes = [{piece: rank for home in homes for piece, rank in home.items()}] * len(homes)
    for rank, row in enumerate(ranks):
        for piece, home in zip(row, homes, strict=True):
            yield _Chunk(rank, piece, home.get(piece - 1, rank), home.get(piece + 1, rank))


def repeated_share(work: Work, policy: Policy) -> float:
    """Share of the layers whose forward collectives run again in full recompute."""
    if policy.recompute != "full":
        return 0.0
    if policy.recompute_layers < 0:
        return 1.0
    return min(policy.recompute_layers / max(work.model.layers / policy.pp, 1.0), 1.0)


def _call(work: Work, policy: Policy, placed: dict[str, tuple[int, int]], chunk: _Chunk, sent: StepMessage) -> Call:
    group = sent.group or sent.axis
    if group in STAGE_PAIRS:
        first, last = paired_stages(group, chunk.stage, policy.pp)
        size, stride = 2, placed["pp"][1] * abs(last - first)
    else:
        size, stride = placed[group]
    if sent.part == "replicas":
        stride *= size // sent.size
    target = -1
    if sent.op == "send" and group == "pp":
        size, target = 2, chunk.behind if sent.phase == "forward" else chunk.before
    axis = "ep" if sent.axis == "etp" else sent.axis
    return Call(
        axis=axis, lane=_lane(axis, sent, policy), phase=sent.phase, op=sent.op, bytes=sent.bytes,
        times=sent.count, group=group, part=sent.part,
        size=sent.size or size, stride=stride, skew=_skew(work, policy, sent),
        stage=chunk.stage, piece=chunk.piece, target=target,
    )  # fmt: skip


def paired_stages(group: str, stage: int, pp: int) -> tuple[int, int]:
    """Of a stage's group of two."""
    return (0, pp - 1) if group == "ends" else (stage, pp - 1 - stage)


def _skew(work: Work, policy: Policy, sent: StepMessage) -> float:
    return float(fullest_share(work.stack, policy.ep)) if sent.op == "all_to_all" else 1.0


def _lane(axis: str, sent: StepMessage, policy: Policy) -> str:
    if axis != "dp":
        return "grad" if sent.phase == "step" else axis
    if policy.zero == 3 and sent.op != "all_reduce":
        return "fsdp"
    return "param" if sent.op == "all_gather" else "grad"
