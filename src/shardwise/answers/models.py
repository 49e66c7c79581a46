"""`models`: the models of the catalog, or one of them in full with the state its training holds."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, Bars, Cell, FactList, Part, shown, table
from shardwise.spec.arch import model_names, model_of
from shardwise.spec.arch.tensors import active_parameters, matmul_parameters, parameters
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import Job, precision_of, usual_precision
from shardwise.spec.model import Attention, Layer, Model, PublishedTraining
from shardwise.step.estimate.state import lasting_state, saved_state, state_of


class LayerKind(Struct, frozen=True, kw_only=True):
    count: int
    layer: str


class StateRow(Struct, frozen=True, kw_only=True):
    """Bytes that have to be held somewhere before the first activation."""

    recipe: str
    bytes_per_parameter: dict[str, float]
    total_bytes: float
    gpu: str
    gpus: int
    """the fewest that hold it with nothing else on them"""
    text: str


class ModelAnswer(Answer, frozen=True, kw_only=True):
    name: Annotated[str, shown("name")]
    family: Annotated[str, shown("family")]
    parameters: Annotated[int, shown("params", "billions")]
    active_parameters: Annotated[int, shown("active", "billions")]
    matmul_parameters: int
    published_parameters: float | None
    published_training: PublishedTraining | None
    layers: Annotated[int, shown("layers")]
    hidden: Annotated[int, shown("hidden")]
    streams: int
    heads: int | None
    kv_heads: int | None
    heads_and_kv: Annotated[str | None, shown("heads / kv")]
    vocab: Annotated[int, shown("vocab")]
    tied: bool
    ends: dict[str, str]
    """what the model reads and writes"""
    positions: str
    source: str
    kinds: Sequence[LayerKind]
    training_state: Sequence[StateRow] = ()

    def parts(self) -> Iterator[Part]:
        yield FactList(self.name, list(self._facts()))
        counts = {
            "all": self.parameters,
            "active for a token": self.active_parameters,
            "in GEMMs": self.matmul_parameters,
        }
        yield Bars("parameters", {name: (count, f"{count:,}") for name, count in counts.items()})

    def _facts(self) -> Iterator[tuple[str, Cell]]:
        yield "family", self.family
        yield "parameters", f"{self.parameters:,}"
        yield "published", f"{self.published_parameters:,.0f}" if self.published_parameters else None
        if (trained := self.published_training) is not None:
            rate = f"learning rate {trained.learning_rate:g}, batch {trained.batch_tokens / 1e6:g}M tokens"
            yield "trained with", f"{rate}, {trained.tokens / 1e9:,.0f}B tokens"
        yield "active per token", f"{self.active_parameters:,} ({self.matmul_parameters:,} in GEMMs)"
        yield "layers", self.layers
        yield from ((f"  {kind.count} x", kind.layer) for kind in self.kinds)
        yield "hidden", f"{self.hidden:,} in {self.streams} streams" if self.streams > 1 else self.hidden
        yield from self.ends.items()
        yield "positions", self.positions
        yield "weights", f"{4 * self.parameters:,} bytes in fp32, {2 * self.parameters:,} in bf16"
        yield "source", self.source or None
        if self.training_state:
            lasting, whole, saved = self.training_state
            held = f"{whole.text}, in {whole.recipe}: {whole.gpus:,} {whole.gpu} at least; activations come on top"
            yield "state while training", held
            yield "  in a checkpoint", saved.text
            yield "  weights, moments", f"{lasting.text}: {lasting.gpus:,} {lasting.gpu} at least"


class ModelsAnswer(Answer, frozen=True, kw_only=True):
    models: Sequence[ModelAnswer]

    def parts(self) -> Iterator[Part]:
        yield table("models (parameters in billions)", self.models, words=2, bars=("params",))


ANSWERS = (ModelsAnswer, ModelAnswer)


def models_answer() -> ModelsAnswer:
    return ModelsAnswer(models=[model_answer(model_of(name)) for name in model_names()])


def model_answer(model: Model, gpu: Gpu | None = None, notes: Sequence[str] = ()) -> ModelAnswer:
    """With `gpu`, also its training state and how many such GPUs hold it."""
    attention = next((layer.attention for layer in model.kinds if layer.attention is not None), None)
    return ModelAnswer(
        name=model.name, family=model.family, parameters=parameters(model), active_parameters=active_parameters(model),
        matmul_parameters=matmul_parameters(model), published_parameters=model.published_params or None,
        published_training=model.published_training,
        layers=model.layers, hidden=model.hidden, streams=model.streams, heads=attention.heads if attention else None,
        kv_heads=attention.kv_heads if attention else None,
        heads_and_kv=f"{attention.heads}/{attention.kv_heads}" if attention else None, vocab=model.vocab,
        tied=model.tied, ends=_ends(model),
        positions=f"{model.positions:,} learned" if model.positions else "rotary" if model.rotary else "none",
        source=model.source,
        kinds=[LayerKind(count=model.pattern.count(i), layer=_layer_text(kind)) for i, kind in enumerate(model.kinds)
               if i in model.pattern],
        training_state=[] if gpu is None else _states(model, gpu), notes=notes,
    )  # fmt: skip


def _states(model: Model, gpu: Gpu) -> list[StateRow]:
    """The least that lasts from step to step, all that the usual recipe holds, and the part of it in a checkpoint."""
    usual = precision_of(usual_precision(model))
    job = Job(seq=1, global_batch=1, precision=usual)
    return [
        StateRow(recipe=state.recipe, bytes_per_parameter=state.bytes_per_parameter, total_bytes=state.total,
                 gpu=gpu.name, gpus=state.gpus_for(gpu), text=str(state))
        for state in (lasting_state(model, usual), state_of(model, job), saved_state(model, job))
    ]  # fmt: skip


def _ends(model: Model) -> dict[str, str]:
    if model.inputs != "patches":
        return {"vocabulary": f"{model.vocab:,}{', tied' if model.tied else ''}"}
    learned = f" + {model.class_tokens} learned" if model.class_tokens else ""
    patches = f"{model.sample_tokens - model.class_tokens:,} of" if model.sample_tokens else "of"
    return {
        "patches": f"{patches} {model.input_width:,} numbers{learned}",
        **(
            {"classes": f"{model.vocab:,}, once a sample"}
            if model.head_once
            else {"outputs": f"{model.vocab:,} a token"}
        ),
    }


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
        parts.append(f"a recurrent mixer of {sum(matrix.product for matrix in layer.mixer)} GEMMs")
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
