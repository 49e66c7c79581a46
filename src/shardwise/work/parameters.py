"""Parameters each rank holds, per kind of layer and for the two ends, by how parallelism cuts them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from dataclasses import replace as replace_data
from functools import lru_cache
from math import prod

import numpy as np
from msgspec.structs import replace

from shardwise.spec.arch.tensors import Tensor, embedding_tensors, layer_tensors, mtp_tensors
from shardwise.spec.arch.tuned import (
    frozen_embedding,
    frozen_head,
    frozen_layer,
    linear,
    trained_embedding,
    trained_head,
    trained_layer,
)
from shardwise.spec.model import Layer, Model
from shardwise.spec.software import Stack
from shardwise.spec.software.parts import NetworkUse
from shardwise.spec.tuning import BASES
from shardwise.work.layout import Layout, Numbers
from shardwise.work.stages import Grid, Stages


@dataclass(frozen=True)
class Frozen:
    """What of a part is not trained."""

    plain: "Counts"
    """kept as the precision keeps weights"""
    packed: "Counts"
    """quantised"""
    packed_bytes: float

    def bytes_per_rank(self, layout: Layout, plain_bytes: float) -> tuple[Numbers, Numbers]:
        """(dense, expert), where a weight that is not quantised has so many bytes."""
        return (
            self.plain.dense_per_rank(layout) * plain_bytes + self.packed.dense_per_rank(layout) * self.packed_bytes,
            self.plain.expert_per_rank(layout) * plain_bytes + self.packed.expert_per_rank(layout) * self.packed_bytes,
        )


@dataclass(frozen=True)
class Counts:
    """Counts of trained parameters of one part of the model, by the group that divides them."""

    split: float = 0.0
    """divided by tp"""
    kv: float = 0.0
    """divided by tp, but never below one head per rank"""
    kv_heads: int = 1
    whole: float = 0.0
    """on every tp rank"""
    expert: float = 0.0
    """divided by ep x etp"""
    expert_count: int = 1
    tensors: tuple[float, ...] = ()
    """elements of every dense parameter of a program that joins queries, keys and values"""
    expert_tensors: tuple[float, ...] = ()
    """of every expert's"""
    frozen: Frozen | None = None
    """beside them"""

    @property
    def untrained(self) -> bool:
        """All of it is frozen."""
        return self.frozen is not None and not self.tensors and not self.expert_tensors

    def dense_per_rank(self, layout: Layout) -> Numbers:
        kv = self.kv / np.minimum(layout.tp, self.kv_heads) if self.kv else 0.0
        return self.split / layout.tp + kv + self.whole

    def expert_per_rank(self, layout: Layout) -> Numbers:
        if not self.expert:
            return np.zeros_like(layout.tp)
        return self.expert / (np.minimum(layout.ep, self.expert_count) * layout.etp)

    def filled_experts(self, layout: Layout, network: NetworkUse) -> Numbers:
        """The same with ZeRO 3; where it fills them up, every rank of a shard group has as many whole experts."""
        held = self.expert_per_rank(layout)
        if not self.expert or not fills_experts(network):
            return held
        own = self.expert_count / np.minimum(layout.ep, self.expert_count)
        return held * np.ceil(own / layout.expert_shard) * layout.expert_shard / own

    @property
    def _gathered(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Elements of every parameter, dense and of experts, trained or not."""
        if self.frozen is None:
            return self.tensors, self.expert_tensors
        all_ = (self, self.frozen.plain, self.frozen.packed)
        return (
            tuple(size for part in all_ for size in part.tensors),
            tuple(size for part in all_ for size in part.expert_tensors),
        )

    @property
    def largest_share(self) -> float:
        """The largest tensor's part of all elements."""
        sizes = [size for part in self._gathered for size in part]
        return max(sizes) / sum(sizes) if sizes else 1.0

    def messages(self, stack: Stack) -> dict[str, int]:
        """In how many messages ZeRO 3 gathers or reduces this part, dense and expert."""
        least = stack.network.gathers_tensors_above
        if not least:
            return {"dense": 1, "expert": 1}
        dense, expert = self._gathered
        return {
            "dense": max(sum(size > least for size in dense), 1),
            "expert": max(sum(size > least for size in expert), 1),
        }

    def gathered_again(self, stack: Stack) -> float:
        """Share of a recomputed layer that ZeRO 3 has let go of when its backward needs it: a tensor comes back after
        twice what follows it in the layer."""
        dense, expert = self._gathered
        elements, kept = sum(dense) + sum(expert), stack.network.reuse_distance
        return max(1.0 - kept / (2.0 * elements), 0.0) if kept and elements else 0.0


NOTHING = Counts()


def _sizes(tensors: Iterable[Tensor]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Elements of every parameter as its family registers it (the name of a piece ends with [q]): dense ones, and those
    of single experts."""
    dense: dict[str, float] = {}
    experts: list[float] = []
    for tensor in tensors:
        if tensor.split == "expert":
            experts += [float(prod(tensor.shape[1:]))] * tensor.shape[0]
        else:
            name = tensor.name.partition("[")[0]
            dense[name] = dense.get(name, 0.0) + prod(tensor.shape)
    return tuple(dense.values()), tuple(experts)


def fills_experts(network: NetworkUse) -> bool:
    return network.fills_shards and not network.cuts_experts


def rows_and_width(tensor: Tensor, layout: Layout) -> tuple[Numbers, Numbers]:
    """Of a rank's piece of a tensor: its first dimension, and the elements in each row."""
    rows, width = tensor.shape[0] + 0.0 * layout.tp, prod(tensor.shape[1:]) + 0.0 * layout.tp
    if tensor.split == "expert":
        return rows / np.minimum(layout.ep, rows), width / layout.etp
    if tensor.split == "row":
        return rows, width / layout.tp
    if tensor.split in ("none", "first"):
        return rows, width
    return rows / (np.minimum(layout.tp, tensor.pieces) if tensor.pieces else layout.tp), width


def on_first_rank(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The vocabulary table is not cut: the first tensor-parallel rank has it."""
    return tuple(replace(t, split="first") if t.split == "vocab" else t for t in tensors)


def filled_shards(tensors: Iterable[Tensor], layout: Layout, network: NetworkUse) -> tuple[Numbers, Numbers]:
    """Elements of one rank's shard, dense and expert: an equal part of all elements, but where tensors are filled up to
    a multiple of the ranks along their first dimension."""
    whole = np.ceil if network.fills_shards else np.asarray
    whole_experts = np.ceil if fills_experts(network) else np.asarray
    dense, expert = np.zeros_like(layout.tp), np.zeros_like(layout.tp)
    for tensor in tensors:
        rows, width = rows_and_width(tensor, layout)
        if tensor.split == "expert":
            expert = expert + whole_experts(rows / layout.expert_shard) * width
        else:
            dense = dense + whole(rows / layout.shard) * width
    return dense, expert


@dataclass(frozen=True)
class ModelCounts:
    kinds: tuple[Counts, ...]
    embedding: Counts
    head: Counts
    """what the last stage adds when it is not also the first: with tied weights a copy of the table"""
    head_alone: Counts
    """what the last stage adds when the first stage is on the same rank"""
    mtp: Counts


def counted(tensors: Iterable[Tensor], kv: float = 0.0, kv_heads: int = 1, experts: int = 1) -> Counts:
    totals = {"split": 0.0, "whole": 0.0, "expert": 0.0}
    place = {"vocab": "split", "column": "split", "row": "split", "expert": "expert", "none": "whole", "first": "whole"}
    tensors = tuple(tensors)
    for tensor in tensors:
        totals[place[tensor.split]] += prod(tensor.shape)
    dense, of_experts = _sizes(tensors)
    return Counts(
        tensors=dense,
        expert_tensors=of_experts,
        split=totals["split"] - kv,
        kv=kv,
        kv_heads=kv_heads,
        whole=totals["whole"],
        expert=totals["expert"],
        expert_count=experts,
    )


def _kv(model: Model, kind: Layer) -> tuple[float, int]:
    """Parameters of keys and values, and the most ranks they can be cut over."""
    attention = kind.attention
    if attention is None or attention.latent or attention.compressed or attention.shares_keys:
        return 0.0, 1
    inputs = (kind.width or model.hidden) + attention.bias_qkv
    wide = attention.head_dim + (0 if attention.values_are_keys else attention.value_dim)
    kv = float(inputs * attention.kv_heads * wide)
    if attention.qk_norm == "full":
        kv += attention.kv_heads * attention.head_dim
    return kv, attention.kv_heads


@lru_cache(maxsize=256)
def counts_of(model: Model) -> ModelCounts:
    kinds = tuple(_layer_counts(model, index) for index in range(len(model.kinds)))
    if model.tuning is not None:
        return _tuned_counts(model, kinds)
    embedding, head = counted(trained_embedding(model)), counted(trained_head(model))
    table = float(model.vocab * model.hidden) if model.tied else 0.0
    return ModelCounts(
        kinds=kinds,
        embedding=embedding,
        head=replace_data(head, split=head.split + table),
        head_alone=head,
        mtp=_mtp_counts(model),
    )


def _layer_counts(model: Model, index: int) -> Counts:
    kind = model.kinds[index]
    experts = kind.experts.count if kind.experts else 1
    if kind.tuned is None:
        return counted(layer_tensors(model, index), *_kv(model, kind), experts)
    heads = _kv(model, kind)[1]

    def of(tensors: Iterable[Tensor]) -> Counts:
        held = tuple(tensors)
        # of keys and values, which no more ranks can share than there are heads
        kv = sum(float(t.size) for t in held if t.split == "column" and t.role.partition(".")[0] in ("k", "v"))
        return counted(held, kv if heads > 1 else 0.0, heads, experts)

    return replace_data(of(trained_layer(model, index)), frozen=_frozen(model, frozen_layer(model, index), of))


def _frozen(model: Model, tensors: tuple[Tensor, ...], of: Callable[[Iterable[Tensor]], Counts]) -> Frozen | None:
    if not tensors:
        return None
    base = model.tuning.base if model.tuning is not None else ""
    packed = of(t for t in tensors if base and linear(t))
    return Frozen(of(t for t in tensors if not (base and linear(t))), packed, BASES.get(base, 0.0))


def _tuned_counts(model: Model, kinds: tuple[Counts, ...]) -> ModelCounts:
    """A tied table that is frozen is so on both ends."""
    assert model.tuning is not None
    table = embedding_tensors(model)[:1] if model.tied else ()
    mine, other = (table, ()) if not model.tuning.embedding_frozen else ((), table)

    def end(trained: tuple[Tensor, ...], frozen: tuple[Tensor, ...]) -> Counts:
        return replace_data(counted(trained), frozen=_frozen(model, frozen, counted))

    head, still = trained_head(model), frozen_head(model)
    return ModelCounts(
        kinds=kinds,
        embedding=end(trained_embedding(model), frozen_embedding(model)),
        head=end((*head, *mine), (*still, *other)),
        head_alone=end(head, still),
        mtp=NOTHING,
    )


def _mtp_counts(model: Model) -> Counts:
    tensors = mtp_tensors(model)
    experts = next((kind.experts.count for kind in model.kinds if kind.experts), 1)
    # of a hybrid model's; elsewhere they are latent and have no keys of their own to copy
    keys = [_kv(model, model.kinds[kind]) for kind in model.mtp_pattern] if tensors else []
    kv, heads = max(keys, default=(0.0, 1))
    return counted(tensors, kv, heads, experts)


def stage_tensors(model: Model, stages: Stages, stack: Stack) -> list[tuple[tuple[Tensor, ...], Grid]]:
    """Trained tensors of every part of the model, and how many such parts each evaluated stage has."""
    cut_table = stack.loss.embedding == "vocab"
    embedding = trained_embedding(model) if cut_table else on_first_rank(trained_embedding(model))
    # a rank with both ends needs a tied table once
    alone = (stages.first > 0) & (stages.last > 0)
    table = trained_embedding(model)[:1] if model.tied else ()
    return [
        (embedding, stages.first),
        (trained_head(model), stages.last),
        (table, np.where(alone, 0.0, stages.last)),
        *((trained_layer(model, kind), number) for kind, number in enumerate(stages.kinds)),
    ]


def stage_shards(model: Model, layout: Layout, stages: Stages, stack: Stack) -> tuple[Grid, Grid]:
    """As `filled_shards`, on each evaluated stage."""
    dense, expert = np.zeros_like(stages.index), np.zeros_like(stages.index)
    for tensors, times in stage_tensors(model, stages, stack):
        here = filled_shards(tensors, layout, stack.network)
        dense, expert = dense + times * here[0][:, None], expert + times * here[1][:, None]
    return dense, expert


def stage_parameters(counts: ModelCounts, layout: Layout, stages: Stages) -> tuple[Grid, Grid]:
    """Dense and expert parameters on one rank of each evaluated stage."""
    # a rank with both ends needs a tied table once
    alone = (stages.first > 0) & (stages.last > 0)
    dense = stages.first * counts.embedding.dense_per_rank(layout)[:, None]
    dense = dense + stages.last * np.where(
        alone, counts.head_alone.dense_per_rank(layout)[:, None], counts.head.dense_per_rank(layout)[:, None]
    )
    dense = dense + stages.last * counts.mtp.dense_per_rank(layout)[:, None]
    expert = stages.last * counts.mtp.expert_per_rank(layout)[:, None]
    for count, number in zip(counts.kinds, stages.kinds, strict=True):
        dense = dense + number * count.dense_per_rank(layout)[:, None]
        if count.expert:
            expert = expert + number * count.expert_per_rank(layout)[:, None]
    return dense, expert


def frozen_bytes(counts: ModelCounts, layout: Layout, stages: Stages, plain_bytes: float) -> tuple[Grid, Grid] | None:
    """Bytes of dense and expert weights that are not trained, on one rank of each evaluated stage."""
    parts = (*counts.kinds, counts.embedding, counts.head, counts.head_alone)
    if all(part.frozen is None for part in parts):
        return None
    alone = (stages.first > 0) & (stages.last > 0)
    ends = (stages.first, np.where(alone, 0.0, stages.last), np.where(alone, stages.last, 0.0))
    dense, expert = np.zeros_like(stages.index), np.zeros_like(stages.index)
    for part, number in zip(parts, (*stages.kinds, *ends), strict=True):
        if part.frozen is not None:
            own = part.frozen.bytes_per_rank(layout, plain_bytes)
            dense, expert = dense + number * own[0][:, None], expert + number * own[1][:, None]
    return dense, expert
