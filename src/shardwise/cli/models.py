"""`shardwise models`: the model catalog, or one model in full."""

from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.arch import model_names, model_of
from shardwise.arch.tensors import active_parameters, matmul_parameters, parameters
from shardwise.cli import _notes
from shardwise.cli._html import draw_amounts
from shardwise.cli._options import Explain, Json
from shardwise.cli._output import Cell, print_facts, print_json, print_notes, print_table
from shardwise.cli._state import state_data, state_facts
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import gpu_of
from shardwise.spec.model import Attention, Layer, Model

HEADS = ["name", "family", "params", "active", "layers", "hidden", "heads / kv", "vocab"]


def models(
    name: Annotated[
        str | None, Parameter(help="A catalog name, a Hugging Face id, or a path to a config.json.")
    ] = None,
    /,
    *,
    gpu: Annotated[str, Parameter(help="GPU that the training state is counted on.")] = "h100",
    explain: Explain = False,
    json: Json = False,
) -> None:
    """The models shardwise knows, or everything about one of them."""
    if name is not None:
        _one(model_of(name), gpu_of(gpu), explain, json)
        return
    known = [model_of(each) for each in model_names()]
    if json:
        print_json({"models": [_data(model) for model in known]})
    else:
        print_table("models (parameters in billions)", HEADS, map(_cells, known), words=2, bars=("params",))


def _one(model: Model, gpu: Gpu, explain: bool, json: bool) -> None:
    notes = [*model.notes, *(_notes.on_model(model.name) if explain else [])]
    if json:
        print_json(_data(model) | {"training_state": state_data(model, gpu), "notes": notes})
        return
    print_facts(model.name, [*_facts(model), *state_facts(model, gpu)])
    counted = {"all": parameters(model), "active for a token": active_parameters(model),
               "in matrix products": matmul_parameters(model)}  # fmt: skip
    draw_amounts("parameters", {name: (size, f"{size:,}") for name, size in counted.items()})
    print_notes(notes)


def _attention(model: Model) -> Attention | None:
    return next((layer.attention for layer in model.kinds if layer.attention is not None), None)


def _heads(attention: Attention | None) -> str | None:
    return None if attention is None else f"{attention.heads}/{attention.kv_heads}"


def _cells(model: Model) -> list[Cell]:
    return [
        model.name, model.family, _billions(parameters(model)), _billions(active_parameters(model)),
        model.layers, model.hidden, _heads(_attention(model)), model.vocab,
    ]  # fmt: skip


def _billions(count: int) -> str:
    return f"{count / 1e9:,.2f}" if count >= 1e7 else f"{count / 1e9:.2g}"


def _facts(model: Model) -> list[tuple[str, Cell]]:
    published = f"{model.published_params:,.0f}" if model.published_params else None
    return [
        ("family", model.family),
        ("parameters", f"{parameters(model):,}"),
        ("published", published),
        ("active per token", f"{active_parameters(model):,} ({matmul_parameters(model):,} in matrix products)"),
        ("layers", model.layers),
        *((f"  {model.pattern.count(index)} x", _layer_text(kind))
          for index, kind in enumerate(model.kinds) if index in model.pattern),
        ("hidden", f"{model.hidden:,} in {model.streams} streams" if model.streams > 1 else model.hidden),
        *_ends(model),
        ("positions", f"{model.positions:,} learned" if model.positions else "rotary" if model.rotary else "none"),
        ("weights", f"{4 * parameters(model):,} bytes in fp32, {2 * parameters(model):,} in bf16"),
        ("source", model.source or None),
    ]  # fmt: skip


def _ends(model: Model) -> list[tuple[str, Cell]]:
    if model.inputs != "patches":
        return [("vocabulary", f"{model.vocab:,}{', tied' if model.tied else ''}")]
    learned = f" + {model.class_tokens} learned" if model.class_tokens else ""
    patches = f"{model.sample_tokens - model.class_tokens:,} of" if model.sample_tokens else "of"
    return [
        ("patches", f"{patches} {model.input_width:,} numbers{learned}"),
        ("classes", f"{model.vocab:,}, once a sample") if model.head_once else ("outputs", f"{model.vocab:,} a token"),
    ]


def _layer_text(layer: Layer) -> str:
    own = ((f"width {layer.width:,}", layer.width), (f"{layer.tokens:,} positions", layer.tokens))
    parts = [text for text, stated in own if stated]
    if (attention := layer.attention) is not None:
        text = f"{attention.heads} heads of {attention.head_dim}, {attention.kv_heads} kv"
        parts.append(text + (f", latent {attention.kv_lora}" if attention.latent else "")
                     + (f", window {attention.window:,}" if attention.window else "")
                     + (", gated" if attention.gated else "")
                     + _compressed_text(attention))  # fmt: skip
    if (cross := layer.cross) is not None:
        parts.append(f"{cross.heads} heads of {cross.head_dim} to the encoder")
    if layer.mixer:
        parts.append(f"a recurrent mixer of {sum(matrix.product for matrix in layer.mixer)} products")
    if (mamba := layer.mamba) is not None:
        parts.append(f"Mamba-2: {mamba.heads} heads of {mamba.head_dim}, state {mamba.state}, {mamba.groups} groups")
    if (delta := layer.delta) is not None:
        keys = f"{delta.key_heads} key heads of {delta.key_dim}"
        parts.append(f"gated delta rule: {delta.value_heads} heads of {delta.value_dim}, {keys}")
    if (dense := layer.feed_forward) is not None:
        parts.append(f"feed-forward {dense.width:,}{' gated' if dense.glu else ''}")
    if (experts := layer.experts) is not None:
        shared = f" + shared {experts.shared_width:,}" if experts.shared_width else ""
        latent = f" in a latent of {experts.latent:,}" if experts.latent else ""
        parts.append(f"{experts.count} experts of {experts.width:,}{latent}, {experts.top_k} active{shared}")
    if layer.further:
        number = len(layer.further)
        parts.append(f"{number} further {'matrix' if number == 1 else 'matrices'}")
    return "; ".join(parts)


def _compressed_text(attention: Attention) -> str:
    parts = attention.compressed
    if parts is None or not parts.ratio:
        return ""
    chosen = f", the first {parts.top_k} by {parts.index_heads} index heads of {parts.index_dim}" if parts.top_k else ""
    return f", and one key of {parts.ratio} pooled{chosen}"


def _data(model: Model) -> dict[str, Any]:
    attention = _attention(model)
    return {
        "name": model.name, "family": model.family, "parameters": parameters(model),
        "active_parameters": active_parameters(model), "matmul_parameters": matmul_parameters(model),
        "published_parameters": model.published_params or None, "layers": model.layers, "hidden": model.hidden,
        "heads": attention.heads if attention else None, "kv_heads": attention.kv_heads if attention else None,
        "vocab": model.vocab, "tied": model.tied, "source": model.source,
        "kinds": [{"count": model.pattern.count(i), "layer": _layer_text(kind)} for i, kind in enumerate(model.kinds)
                  if i in model.pattern],
    }  # fmt: skip
