"""The parameter tensors of a model, and how many parameters they hold.

Grouped-query attention with fewer key/value heads than tensor-parallel ranks: K and V can be cut into
`kv_heads` pieces only (`Tensor.pieces`), so further ranks hold copies.
"""

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from shardwise.spec.arch._blocks import layer_block, stream_mixer
from shardwise.spec.arch._family import family_named
from shardwise.spec.arch._names import LLAMA
from shardwise.spec.arch._tensor import Maker, Tensor
from shardwise.spec.model import Layer, Model

__all__ = [
    "Tensor",
    "active_parameters",
    "active_share",
    "embedding_tensors",
    "head_share",
    "head_tensors",
    "input_share",
    "layer_tensors",
    "matmul_parameters",
    "mtp_tensors",
    "parameters",
    "products_per_token",
    "tokens_share",
    "whole_head",
]

_CACHED = 512
_CLASS_TOKENS = {0: "cls_token", 1: "distillation_token"}
"""learned tokens before the patches, by the names of ViT and DeiT"""


@lru_cache(_CACHED)
def layer_tensors(model: Model, kind: int) -> tuple[Tensor, ...]:
    """The tensors of one layer of this kind; `{i}` in a name stands for the layer, `{e}` for the expert."""
    layer = model.kinds[kind]
    return tuple(layer_block(_maker(model, "layer"), layer, layer.width or model.hidden, model.streams))


@lru_cache(_CACHED)
def embedding_tensors(model: Model) -> tuple[Tensor, ...]:
    return tuple(_embedding(model, _maker(model, "embedding")))


@lru_cache(_CACHED)
def head_tensors(model: Model) -> tuple[Tensor, ...]:
    """From the final norm to the logits; a tied vocabulary matrix is counted in the embedding, not here."""
    return tuple(_head(model, _maker(model, "head")))


@lru_cache(_CACHED)
def mtp_tensors(model: Model) -> tuple[Tensor, ...]:
    """Layers that predict further tokens: two norms, a 2h x h projection, a layer as the last one (or those that
    `mtp_pattern` says), a norm.

    Embedding and vocabulary matrix are the model's own.
    """
    make, hidden = _maker(model, "mtp"), model.hidden
    found: list[Tensor] = []
    for extra in range(min(model.mtp_layers, 1) if model.mtp_repeated else model.mtp_layers):
        module = [
            *make.norm("mtp.embedding_norm", hidden),
            *make.norm("mtp.hidden_norm", hidden),
            *make.matrix("mtp.projection", hidden, 2 * hidden, "column"),
            *(
                tensor
                for kind in model.mtp_kinds
                for tensor in layer_block(make, model.kinds[kind], hidden, model.streams)
            ),
            *_joined_streams(model, make, "mtp.streams"),
            *make.norm("mtp.final_norm", hidden),
        ]
        index = str(model.layers + extra)
        found += [msgspec.structs.replace(t, name=t.name.replace("{i}", index)) for t in module]
    return tuple(found)


def parameters(model: Model, *, mtp: bool = False) -> int:
    """All parameters; `mtp` adds the extra prediction layers, which published sizes leave out."""
    layers = sum(times * sum(t.size for t in tensors) for tensors, times in _layers(model))
    ends = sum(t.size for t in embedding_tensors(model) + head_tensors(model))
    return layers + ends + (sum(t.size for t in mtp_tensors(model)) if mtp else 0)


def active_parameters(model: Model, *, embedding: bool = True, mtp: bool = False) -> int:
    """Parameters one token meets: `top_k` experts of each expert layer.

    Without `embedding` the tables that are only looked up are left out; a tied table stays, since the head
    multiplies by it.
    """
    active = sum(
        times * sum(_active(model, kind, t) for t in layer_tensors(model, kind)) for kind, times in _kinds(model)
    )
    active += sum(t.size for t in head_tensors(model))
    active += sum(t.size for t in embedding_tensors(model) if embedding or not _only_looked_up(model, t))
    return active + (sum(_active(model, _mtp_experts(model), t) for t in mtp_tensors(model)) if mtp else 0)


def matmul_parameters(model: Model, *, mtp: bool = False, seq: int = 0) -> int:
    """`products_per_token` as a whole number."""
    return round(products_per_token(model, mtp=mtp, seq=seq))


def products_per_token(model: Model, *, mtp: bool = False, seq: int = 0) -> float:
    """Parameters that enter a matrix product for every token: 2 FLOP each forward, 4 backward. With `seq`, those of
    layers that see other tokens count as often as these are there for a token of the sequence; so do the product of
    patches, which tokens for classes do not pass, and a head that sees one row of a sample."""
    active = sum(
        times * active_share(model, kind, t, seq)
        for kind, times in _kinds(model)
        for t in layer_tensors(model, kind)
        if t.product
    )
    tied = model.vocab * _embedding_width(model) if model.tied else 0
    first = input_share(model, seq) * sum(t.size for t in embedding_tensors(model) if t.product)
    ends = first + head_share(model, seq) * (sum(t.size for t in head_tensors(model) if t.product) + tied)
    extra = 0
    if mtp and model.mtp_layers:
        head = model.vocab * _embedding_width(model) * model.mtp_layers
        passes = model.mtp_layers if model.mtp_repeated else 1
        extra = head + passes * sum(_active(model, _mtp_experts(model), t) for t in mtp_tensors(model) if t.product)
    return float(active + ends + extra)


def input_share(model: Model, seq: int) -> float:
    """Rows that the first product takes for a token."""
    length = seq or model.sample_tokens
    return 1.0 - model.class_tokens / length if model.inputs == "patches" and length else 1.0


def head_share(model: Model, seq: int) -> float:
    """Rows that the head takes for a token of a sequence of `seq`."""
    return 1.0 / max(seq or model.sample_tokens, 1) if model.head_once else 1.0


def active_share(model: Model, kind: int, tensor: Tensor, seq: int) -> float:
    """Elements of a layer's tensor that a token of a sequence of `seq` meets."""
    return tokens_share(model.kinds[kind], seq) * _active(model, kind, tensor)


def tokens_share(layer: Layer, seq: int) -> float:
    """Tokens the layer sees for one of a sequence of `seq`."""
    return layer.tokens / seq if layer.tokens and seq else 1


def _embedding(model: Model, make: Maker) -> Iterator[Tensor]:
    if model.inputs == "features":
        yield from make.matrix("input", model.hidden, model.input_width, "column", bias=model.input_bias)
        return
    if model.inputs == "patches":
        yield from _patches(model, make)
        return
    width = _embedding_width(model)
    yield make.plain("token", (model.vocab, width), "vocab")
    if model.positions:
        yield make.plain("position", (model.positions, model.hidden), "none")
    if model.token_types:
        yield make.plain("token_type", (model.token_types, model.hidden), "none")
    if width != model.hidden:
        yield from make.matrix("project_in", model.hidden, width, "none")
    if model.embedding_norm:
        yield from make.norm("embedding_norm", model.hidden)


def _patches(model: Model, make: Maker) -> Iterator[Tensor]:
    """Every tensor-parallel rank has them: programs do not cut them. Tables have a first dimension of one, which is
    the one that FSDP2 would cut."""
    yield from make.matrix("input", model.hidden, model.input_width, "none", bias=model.input_bias)
    for place in range(model.class_tokens):
        kind = _CLASS_TOKENS.get(place, f"register_token_{place}")
        yield make.plain("patch_tables", (1, 1, model.hidden), "none", kind=kind)
    if model.positions:
        yield make.plain("patch_tables", (1, model.positions, model.hidden), "none", kind="position_embeddings")
    if model.embedding_norm:
        yield from make.norm("embedding_norm", model.hidden)


def _head(model: Model, make: Maker) -> Iterator[Tensor]:
    hidden, width = model.hidden, _embedding_width(model)
    yield from _joined_streams(model, make, "head.streams")
    if model.final_norm:
        yield from make.norm("final_norm", hidden)
    if width != hidden:
        yield from make.matrix("project_out", width, hidden, "none")
    if model.pooler:
        yield from make.matrix("pooler", hidden, hidden, "none", bias=True, product=model.head_once)
    if model.head_transform:
        yield from make.matrix("transform", hidden, hidden, "none", bias=True)
        yield from make.norm("transform_norm", hidden)
    if model.pooler and model.head_transform:
        yield from make.matrix("next_sentence", 2, hidden, "none", bias=True, product=False)
    if not model.tied:
        yield make.plain("head", (model.vocab, width), _cut(model), product=True)
    if model.head_bias:
        yield make.plain("head", (model.vocab,), _cut(model), kind="bias")


def _cut(model: Model) -> str:
    """An output for each word is cut by words; classes and pixels are few, and every rank has them all."""
    return "none" if whole_head(model) else "vocab"


def whole_head(model: Model) -> bool:
    """Every tensor-parallel rank has all outputs."""
    return model.inputs == "patches" or model.head_once


def _joined_streams(model: Model, make: Maker, role: str) -> Iterator[Tensor]:
    """Before the last norm the streams become one."""
    if model.streams > 1:
        yield from stream_mixer(make, role, model.streams * model.hidden, model.streams, 1)


def _maker(model: Model, part: str) -> Maker:
    family = family_named(model.family)
    return Maker({**LLAMA, **(family.names if family else {})}, part, model.norm, model.norm_bias)


def _embedding_width(model: Model) -> int:
    return model.embedding_width or model.hidden


def _kinds(model: Model) -> list[tuple[int, int]]:
    """(kind, how many layers are of it)."""
    return [(kind, model.pattern.count(kind)) for kind in range(len(model.kinds))]


def _layers(model: Model) -> list[tuple[tuple[Tensor, ...], int]]:
    return [(layer_tensors(model, kind), times) for kind, times in _kinds(model)]


def _mtp_experts(model: Model) -> int:
    """The kind whose experts an extra prediction layer has."""
    kinds = model.mtp_kinds
    return next((kind for kind in kinds if model.kinds[kind].experts is not None), kinds[-1])


def _active(model: Model, kind: int, tensor: Tensor) -> int:
    experts = model.kinds[kind].experts
    if tensor.split != "expert" or experts is None:
        return tensor.size
    return tensor.size // experts.count * experts.top_k


def _only_looked_up(model: Model, tensor: Tensor) -> bool:
    table = len(tensor.shape) > 1 and not tensor.product
    return table and not (model.tied and tensor.split == "vocab")
