"""What ranks send each other for parameters and their gradients: data parallelism, ZeRO, and whatever several ranks of
another axis hold alike. One list for many policies; the closed form prices it, and `work.messages` tells it rank by
rank for timelines, links and real runs. What layers send of activations is in their `LayerWork`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.spec.arch.tensors import Tensor, mtp_tensors
from shardwise.spec.arch.tuned import trained_embedding, trained_head, trained_layer
from shardwise.spec.job import Job
from shardwise.spec.message import Message
from shardwise.spec.model import Model
from shardwise.spec.software import Stack
from shardwise.spec.software.parts import NetworkUse
from shardwise.work.layout import Layout, Numbers, copies_held, passing
from shardwise.work.stages import Grid, Stages
from shardwise.work.updates import Updates

Elements = Literal[
    "dense", "expert", "whole", "copied", "table", "kept", "matrices", "cut", "expert_matrices", "cut_experts",
    "sums", "cut_sums", "expert_sums", "cut_expert_sums", "norms", "cut_norms", "expert_norms", "cut_expert_norms",
]  # fmt: skip
"""what a message is made of: parameters that all replicas hold; experts; what every tensor-parallel rank holds whole;
key/value heads that several of them hold; the vocabulary's table; gradients that are left when replicas are summed;
matrices that the optimizer computes with whole, as pieces on a rank, or those that tensor parallelism has cut, whole;
the same of experts; numbers that ranks add up of tensors they have parts of (OF_SUMS)"""
OF_SUMS: dict[Elements, tuple[bool, bool, bool]] = {
    "sums": (False, False, False), "cut_sums": (False, True, False),
    "expert_sums": (True, False, False), "cut_expert_sums": (True, True, False),
    "norms": (False, False, True), "cut_norms": (False, True, True),
    "expert_norms": (True, False, True), "cut_expert_norms": (True, True, True),
}  # fmt: skip
"""(of experts, cut, norms of updates)"""
OF_MATRICES: dict[str, tuple[bool, bool]] = {
    "matrices": (False, False), "cut": (False, True), "expert_matrices": (True, False), "cut_experts": (True, True),
}  # fmt: skip
"""(of experts, cut)"""
Mask = NDArray[np.bool_]
GATHERS = ("all_gather", "broadcast")
"""operations that bring ranks what others have"""
GRADIENTS, PARAMETERS = "gradients", "parameters"
"""names of messages"""


class ParameterMessage(Message[Numbers | float], frozen=True, kw_only=True):
    """One message of every policy, as long as the elements of its kind that a rank holds."""

    bytes: float
    """of one element"""
    count: Numbers
    ranks: Numbers
    of: Elements
    shares: Numbers
    """ranks that share the elements: the buffer is filled up to a multiple of them"""
    own_share: bool = False
    """the message is a rank's share, not the buffer of all"""
    packed: Literal["once", "in buckets", "by unit", "by matrix", "by round"] = "once"
    """a long buffer is cut into buckets; ZeRO 3 sends every layer and end as a message of its own, an optimizer every
    matrix, or pieces of as many at once as ranks share them"""

    @property
    def brings_parameters(self) -> bool:
        """New or sharded parameters, not gradients."""
        return self.op in GATHERS

    def bytes_of(self, elements: Grid) -> Grid:
        """Of one message of a rank that holds so many elements (policies x stages)."""
        shared = elements / self.shares[:, None] if self.own_share else elements
        return np.asarray(self.bytes * shared)


def parameter_messages(
    model: Model, job: Job, stack: Stack, layout: Layout, stages: Stages
) -> tuple[ParameterMessage, ...]:
    """Those that at least one of the policies sends."""
    experts = any(kind.experts for kind in model.kinds)
    found = [*_between_replicas(job, stack, layout, experts=experts), *_between_axes(model, job, stack, layout, stages)]
    return tuple(message for message in found if message.count.any())


def worker_messages(job: Job, stack: Stack, layout: Layout) -> tuple[ParameterMessage, ...]:
    """Where a strategy works across replicas: what the ranks of one worker send among themselves. With ZeRO they are a
    shard group, without it the context-parallel ranks."""
    sharded = replace(layout, grad_ranks=layout.shard, expert_ranks=layout.expert_shard)
    zero, none = layout.policies.zero, np.zeros_like(layout.cp)
    found = [
        structs.replace(m, count=np.where(zero > 0, m.count, none))
        for m in _between_replicas(job, stack, sharded, experts=False)
    ]
    summed = ParameterMessage(
        name=GRADIENTS, of="dense", axis="dp", op="all_reduce", phase="backward", group="cp", ranks=layout.cp,
        bytes=job.precision.grad_comm_bytes, count=np.where((zero == 0) & (layout.cp > 1.0), 1.0, none),
        shares=np.ones_like(layout.cp), packed="in buckets",
    )  # fmt: skip
    return tuple(message for message in (*found, summed) if message.count.any())


def update_messages(updates: Updates) -> tuple[ParameterMessage, ...]:
    """What ranks that share matrices send each other before an optimizer can compute with whole ones: their pieces, of
    the momentum. First those that ZeRO shards, then those that tensor parallelism has cut."""
    layout, rule, found = updates.work.layout, updates.rule, list[ParameterMessage]()
    for expert in sorted({each.expert for each in updates.matrices}):
        gathered = ParameterMessage(
            name="matrices", of="expert_matrices" if expert else "matrices", axis="dp", op="all_gather", phase="update",
            group="edp" if expert else "dp_cp", ranks=layout.expert_shard if expert else layout.shard,
            bytes=rule.sent_bytes, count=np.where(updates.sent("gather", expert=expert), 1.0, 0.0),
            shares=np.ones_like(layout.tp), part="shard", packed="by matrix",
        )  # fmt: skip
        found.append(gathered)
        # to an owner and back, in rounds of as many matrices as there are owners
        found.append(structs.replace(
            gathered, op="all_to_all", shares=gathered.ranks, own_share=True, packed="by round",
            count=np.where(updates.sent("all-to-all", expert=expert), 2.0, 0.0),
        ))  # fmt: skip
        cut = layout.etp if expert else layout.tp
        found.append(structs.replace(
            gathered, of="cut_experts" if expert else "cut", axis="etp" if expert else "tp",
            group="etp" if expert else "tp", ranks=cut, part="whole",
            count=np.where(updates.gathers_cut & (cut > 1.0), updates.computing_share(expert=expert), 0.0),
        ))  # fmt: skip
    return tuple(message for message in found if message.count.any())


def sum_messages(updates: Updates) -> tuple[ParameterMessage, ...]:
    """Where an optimizer keeps means of rows and columns: first what ZeRO shards is added up, then what tensor
    parallelism has cut; the same for norms of the updates."""
    layout, found, none = updates.work.layout, list[ParameterMessage](), np.zeros_like(updates.work.layout.tp)
    for of, (expert, cut, _) in OF_SUMS.items():
        shard, parts = (layout.expert_shard, layout.etp) if expert else (layout.shard, layout.tp)
        ranks = parts if cut else shard
        group = ("etp" if expert else "tp") if cut else "edp" if expert else "dp_cp"
        shared = (ranks > 1.0) & (cut | (layout.policies.zero > 0))
        found.append(ParameterMessage(
            name="sums", of=of, axis=("etp" if expert else "tp") if cut else "dp", op="all_reduce", phase="update",
            group=group, ranks=ranks, bytes=updates.rule.sent_bytes, count=np.where(shared, 1.0, none),
            shares=np.ones_like(layout.tp), part="whole" if cut else "shard",
        ))  # fmt: skip
    return tuple(m for m in found if m.count.any() and updates.work.elements(m.of).any())


def reduced_each(layout: Layout, network: NetworkUse) -> Mask:
    """Where ZeRO 2 reduces gradients in every micro-batch: a sharded buffer can only add up shards."""
    return np.asarray((layout.policies.zero == 2) & (layout.shard > 1.0) & ~reduced_last(layout, network))


def reduced_last(layout: Layout, network: NetworkUse) -> Mask:
    """Where ZeRO 2 and 3 reduce behind the last micro-batch. With stages ZeRO 3 does so wherever it holds what it has
    gathered."""
    staged = (layout.pp > 1.0) & (network.reduces_last in ("rounds", "stages")) & (layout.policies.zero == 2)
    return np.asarray(staged | (network.reduces_last == "always"))


def rounds(layout: Layout, network: NetworkUse) -> Numbers:
    """How often ZeRO 2 reduces where it does not in every micro-batch: behind each round of a chunk, or once."""
    several = (network.reduces_last == "rounds") & (layout.vpp > 1.0) & (layout.policies.zero == 2)
    return np.where(several, np.ceil(layout.micro_batches / layout.pp), 1.0)


def _zero(layout: Layout) -> Ints:
    """The stage of ZeRO, 0 where there is nothing to shard over."""
    return np.where(layout.grad_ranks > 1.0, layout.policies.zero, 0)


def _between_replicas(job: Job, stack: Stack, layout: Layout, *, experts: bool) -> Iterator[ParameterMessage]:
    """ZeRO 0 sums whole gradients, 1 and 2 leave every rank its share of the sum and gather the new parameters, 3
    gathers and reduces inside the layers. Replicas of shards add up theirs."""
    replicas: tuple[tuple[Elements, str, Numbers, Numbers], ...] = (
        ("dense", "dp_cp", layout.grad_ranks, layout.shard),
        ("expert", "edp", layout.expert_ranks, layout.expert_shard),
    )
    for of, group, ranks, shard in replicas[: 1 + experts]:
        yield from _of_replicas(job, stack, layout, ParameterMessage(
            name=GRADIENTS, of=of, axis="dp", op="all_reduce", phase="backward", group=group, ranks=ranks,
            bytes=job.precision.grad_comm_bytes, count=np.zeros_like(layout.tp), shares=np.ones_like(layout.tp),
            packed="in buckets",
        ), shard)  # fmt: skip


def _of_replicas(
    job: Job, stack: Stack, layout: Layout, whole: ParameterMessage, shard: Numbers
) -> Iterator[ParameterMessage]:
    """`whole`: the sum of all gradients among all of them; `shard`: ranks that share one copy."""
    precision, zero, ranks, network = job.precision, _zero(layout), whole.ranks, stack.network
    micro, held = passing(layout), (layout.pp > 1.0) & (not network.regather_with_pp)
    each = np.where(reduced_each(layout, network), micro, rounds(layout, network))
    # shards of one rank are whole: there is nothing to gather, and nothing that each micro-batch must have summed
    sharded = ((zero == 1) | (zero == 2)) & (shard > 1.0)
    whole_sum = ((zero == 1) & network.by_owner) | network.sums_whole
    summed = ((zero < 3) & ~sharded & (ranks > 1.0)) | (sharded & whole_sum)
    if summed.any():
        yield structs.replace(whole, count=summed * np.where(sharded, each, 1.0))
    several = ranks > shard
    between = structs.replace(whole, shares=shard, part="replicas", ranks=ranks / shard, own_share=True, packed="once")
    shares = structs.replace(whole, shares=shard, part="shard", ranks=shard)
    if sharded.any():
        often = np.where(sharded & ~summed, each, 0.0)
        yield structs.replace(shares, op="reduce_scatter", count=often)
        yield structs.replace(between, count=np.where(several, often, 0.0))
        gather: Literal["broadcast", "all_gather"] = "broadcast" if network.by_owner else "all_gather"
        yield structs.replace(
            shares, name=PARAMETERS, op=gather, phase="step", bytes=precision.param_comm_bytes, count=1.0 * sharded
        )
    if not (zero == 3).any():
        return
    yield structs.replace(between, phase="step", count=1.0 * (several & (zero == 3)))
    # gathered before the forward and again before the backward, or once for a whole pass through the pipeline; reduced
    # as often, or once a step
    once = np.where((zero == 3) & (shard > 1.0), np.where(held, layout.passes, micro), 0.0)
    unit = structs.replace(shares, packed="by unit", count=once)
    gathered = structs.replace(unit, name=PARAMETERS, op="all_gather", bytes=precision.param_comm_bytes)
    yield structs.replace(gathered, phase="forward")
    yield structs.replace(gathered, phase="backward", count=np.where(held, 0.0, once))
    yield structs.replace(
        unit, op="reduce_scatter", count=np.where(reduced_last(layout, network), np.minimum(once, 1.0), once)
    )


def _between_axes(model: Model, job: Job, stack: Stack, layout: Layout, stages: Stages) -> Iterator[ParameterMessage]:
    """Gradients that ranks of other axes share: with sequence parallelism those of what every tensor-parallel rank
    holds whole, those of key/value heads that several hold, a tied table's on the first and the last stage, and all of
    a model that is there twice."""
    zero, one = _zero(layout), np.ones_like(layout.tp)
    often = np.where(reduced_each(layout, stack.network), passing(layout), 1.0)
    shares = np.where(zero == 3, layout.shard, 1.0)
    # without sequence parallelism ranks compute the same gradient of what they hold alike, but each its part of an
    # adapter's
    unlike = layout.sp if model.tuning is None or model.tuning.adapters is None else layout.tp
    summed = ParameterMessage(
        name=GRADIENTS, of="whole", axis="tp", op="all_reduce", phase="step", group="tp", ranks=layout.tp,
        bytes=job.precision.grad_bytes, count=np.where(unlike > 1.0, often, 0.0), shares=shares,
        own_share=True,
    )  # fmt: skip
    yield summed
    yield structs.replace(summed, of="copied", count=np.where(_copies_some(model, layout), often, 0.0))
    two = structs.replace(summed, axis="pp", ranks=2.0 * one)
    if model.tied and trained_embedding(model):
        apart = (layout.pp > 1.0) & ((stages.first > 0) != (stages.last > 0)).any(axis=1)
        # ZeRO 2 keeps shares of the table's sum too, and adds those up
        kept = np.where(zero > 1, layout.shard, 1.0)
        yield structs.replace(two, of="table", group="ends", count=1.0 * apart, shares=kept)
    yield structs.replace(two, of="kept", group="mirror", count=copies_held(layout.policies) - 1.0, shares=one)


@dataclass(frozen=True)
class _HeldAlike:
    """Elements of one layer or end that several tensor-parallel ranks hold."""

    whole: float
    heads: tuple[tuple[int, float], ...]
    """(pieces they are cut into at most, elements)"""


def _held_alike(tensors: tuple[Tensor, ...]) -> _HeldAlike:
    heads: dict[int, float] = {}
    for tensor in tensors:
        if tensor.pieces:
            heads[tensor.pieces] = heads.get(tensor.pieces, 0.0) + prod(tensor.shape)
    return _HeldAlike(sum(float(prod(t.shape)) for t in tensors if t.split == "none"), tuple(heads.items()))


@lru_cache(maxsize=256)
def _parts_alike(model: Model) -> tuple[_HeldAlike, ...]:
    """Of every kind of layer, then the embedding, the head, and the extra prediction layers."""
    layers = [trained_layer(model, kind) for kind in range(len(model.kinds))]
    mtp = mtp_tensors(model) if model.mtp_layers else ()
    return tuple(map(_held_alike, [*layers, trained_embedding(model), trained_head(model), mtp]))


def _copies_some(model: Model, layout: Layout) -> Mask:
    fewest = min((pieces for part in _parts_alike(model) for pieces, _ in part.heads), default=0)
    return np.asarray((layout.tp > fewest) & (fewest > 0))


def held_alike(model: Model, layout: Layout, stages: Stages) -> tuple[Grid, Grid]:
    """(whole, copied): elements on one rank of each evaluated stage."""
    times = (*stages.kinds, stages.first, stages.last, stages.last)
    whole, copied = np.zeros_like(stages.index), np.zeros_like(stages.index)
    for part, number in zip(_parts_alike(model), times, strict=True):
        whole = whole + part.whole * number
        for pieces, elements in part.heads:
            copied = copied + number * np.where(layout.tp > pieces, elements / pieces, 0.0)[:, None]
    copies = copies_held(layout.policies)[:, None]
    return whole * copies, copied * copies
