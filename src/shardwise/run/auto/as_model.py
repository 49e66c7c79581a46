"""The planner's Model of a user's module, told by what runs in its blocks: no name of a family is looked at."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from msgspec.structs import replace
from torch import nn

from shardwise.run.auto.blocks import BlockKind, block_kinds
from shardwise.run.auto.picture_ends import NotRecognised, picture_ends, rows_seen, wide_norm
from shardwise.run.auto.seen_blocks import AttentionSeen, BlockSeen, ExpertsSeen, ProductSeen, blocks_seen
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.arch.traced import TRACED
from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Matrix, Model


def traced_model(model: nn.Module, run: Callable[[], object], name: str) -> Model:
    """`run` makes one forward pass. Every parameter is accounted for, or it is refused."""
    kinds = block_kinds(model)
    if not kinds:
        raise NotRecognised("no module repeats")
    outside = _outside(model, kinds)
    with rows_seen(outside) as rows:
        seen = blocks_seen(kinds, run)
    widths = {block.hidden for block in seen}
    if len(widths) != 1:
        raise NotRecognised(f"blocks of different widths ({', '.join(map(str, sorted(widths)))})")
    hidden = widths.pop()
    of_kinds = [_layer(block, hidden) for block in seen]
    layers = [layer for at, layer in enumerate(of_kinds) if layer not in of_kinds[:at]]
    order = sorted(
        (
            (_place(each), layers.index(layer))
            for kind, layer in zip(kinds, of_kinds, strict=True)
            for each in kind.names
        ),
        key=lambda pair: pair[0],
    )
    pattern = [i for _, i in order]
    ends = _word_ends(outside, hidden) or picture_ends(outside, hidden, seen[of_kinds.index(layers[pattern[0]])], rows)
    before = ends.pop("before", ())
    if before:  # what leads into the first layer is told as a part of it
        layers.append(replace(layers[pattern[0]], further=(*layers[pattern[0]].further, *before)))
        pattern[0] = len(layers) - 1
    found = Model(name=name, family=TRACED, hidden=hidden, kinds=tuple(layers), pattern=tuple(pattern),
                  norm=_norm_of(kinds, seen), norm_bias=bool(seen[0].norms and seen[0].norms[0][2]),
                  dropout=any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules()), **ends)  # fmt: skip
    held = sum(p.numel() for p in model.parameters())
    if parameters(found) != held:
        raise NotRecognised(f"{held:,} parameters, of which {parameters(found):,} are recognised by what runs")
    return found


def _place(name: str) -> tuple[str, int]:
    holder, _, number = name.rpartition(".")
    return holder, int(number) if number.isdigit() else 0


def _layer(seen: BlockSeen, hidden: int) -> Layer:
    places = [i for i, event in enumerate(seen.events) if isinstance(event, AttentionSeen)]
    if len(places) != 1:
        raise NotRecognised(f"a block with {len(places)} scaled dot-product attentions; one is known")
    at = places[0]
    before = [e for e in seen.events[:at] if isinstance(e, ProductSeen) and e.every_token]
    after = [e for e in seen.events[at + 1 :] if isinstance(e, ProductSeen) and e.every_token]
    further = tuple(_conditions(seen))
    kept = [e for e in seen.events if isinstance(e, ExpertsSeen)]
    if not before or not after:
        raise NotRecognised("attention without GEMMs before and after it")
    attention = _attention(seen.events[at], before, after[0], seen)  # type: ignore[arg-type]
    norms = sum(width == (hidden,) for _, width, _ in seen.norms)
    if attention.qk_norm == "full" and attention.heads * attention.head_dim == hidden:
        norms -= 1 + (attention.kv_heads == attention.heads)
    if kept:
        return Layer(attention=attention, experts=_experts(kept[0], after[1:], hidden), norms=norms, further=further)
    return Layer(attention=attention, feed_forward=_feed_forward(after[1:], hidden), norms=norms, further=further)


def _conditions(seen: BlockSeen) -> Iterator[Matrix]:
    """Products of one row a sample, such as shifts and scales of a condition: held, and next to nothing to compute."""
    beside = [each for each in seen.events if isinstance(each, ProductSeen) and not each.every_token]
    for place, each in enumerate(beside):
        yield Matrix(name=f"condition.{place}", outputs=each.outputs, inputs=each.inputs, bias=each.bias, product=False)


def _norm_of(kinds: list[BlockKind], seen: list[BlockSeen]) -> Literal["rms", "layer"]:
    first = seen[0].norms[0][0] if seen[0].norms else ""
    plain = any(isinstance(m, nn.LayerNorm) for m in kinds[0].first.modules())
    return "layer" if "LayerNorm" in first or (not first and plain) else "rms"


def _attention(at: AttentionSeen, before: list[ProductSeen], out: ProductSeen, seen: BlockSeen) -> Attention:
    queries = at.heads * at.head_dim
    keys, rest = divmod(sum(each.outputs for each in before) - queries, at.head_dim + at.value_dim)
    if rest or keys < 1 or at.heads % keys or out.inputs != at.heads * at.value_dim:
        raise NotRecognised("the GEMMs around attention are not those of queries, keys, values and an output")
    sizes = [width for _, width, _ in seen.norms]
    full = sizes.count((queries,)) > 2 if queries == seen.hidden else (queries,) in sizes
    norm = "head" if (at.head_dim,) in sizes else "full" if full else "none"
    return Attention(
        heads=at.heads, kv_heads=keys, head_dim=at.head_dim,
        v_head_dim=0 if at.value_dim == at.head_dim else at.value_dim,
        bias_qkv=any(each.bias for each in before), bias_out=out.bias, qk_norm=norm,  # type: ignore[arg-type]
        causal=at.causal,
    )  # fmt: skip


def _feed_forward(products: list[ProductSeen], hidden: int) -> FeedForward:
    if len(products) < 2 or products[-1].outputs != hidden or any(e.inputs != hidden for e in products[:-1]):
        raise NotRecognised("attention is not followed by a feed-forward of two or three GEMMs")
    width, into = products[-1].inputs, sum(each.outputs for each in products[:-1])
    if into not in (width, 2 * width):
        raise NotRecognised(f"a feed-forward whose GEMMs make {into} and take {width} channels")
    return FeedForward(width=width, glu=into == 2 * width, bias=products[-1].bias)


def _experts(seen: ExpertsSeen, products: list[ProductSeen], hidden: int) -> Experts:
    last = seen.shapes[-1]
    width = next((size for size in last[1:] if size != hidden), hidden)
    into = sum(size for shape in seen.shapes[:-1] for size in shape[1:] if size != hidden)
    router = ProductSeen(hidden, seen.count, bias=False)  # one that is no module of its own is not among them
    if not seen.top_k or [each for each in products if each != router]:
        raise NotRecognised("experts whose choice or whose neighbours are not known")
    return Experts(count=seen.count, top_k=seen.top_k, width=width, glu=into == 2 * width)


def _outside(model: nn.Module, kinds: list[BlockKind]) -> dict[str, nn.Module]:
    inside = {id(m) for kind in kinds for name in kind.names for m in model.get_submodule(name).modules()}
    return {name: m for name, m in model.named_modules() if id(m) not in inside}


def _word_ends(outside: Mapping[str, nn.Module], hidden: int) -> dict[str, Any] | None:
    """What is outside the blocks: tables, norms, heads. None where no head has an output a row of a table."""
    tables = [m for m in outside.values() if isinstance(m, nn.Embedding)]
    heads = [m for m in outside.values() if type(m) is nn.Linear]
    if not any(h.out_features == m.num_embeddings for h in heads for m in tables):
        return None
    words = max(tables, key=lambda m: (any(h.out_features == m.num_embeddings for h in heads), m.num_embeddings))
    head = next(h for h in heads if h.out_features == words.num_embeddings)
    others = [m.num_embeddings for m in tables if m is not words]
    square = [h for h in heads if h is not head and h.in_features == h.out_features == hidden]
    norms = [m for m in outside.values() if wide_norm(m, hidden)]
    transform = bool(square) and len(norms) > 1
    pooler = len(square) > int(transform)
    return {
        "vocab": words.num_embeddings, "tied": head.weight is words.weight,
        "positions": max((rows for rows in others if rows > 8), default=0),
        "token_types": max((rows for rows in others if rows <= 8), default=0),
        "rotary": not any(rows > 8 for rows in others), "head_bias": head.bias is not None,
        "pooler": pooler, "head_transform": transform, "embedding_norm": len(norms) - int(transform) > 1 or transform,
        "final_norm": not transform and len(norms) > 0,
    }  # fmt: skip
