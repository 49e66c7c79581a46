"""A model as a job tunes it: which layers are trained, frozen or passed by no gradient, and the tensors of each.

A frozen matrix may have an adapter beside it. Where its outputs are cut over tensor-parallel ranks so are those of B,
and every rank has A; where its inputs are, so are those of A, and every rank has B: what ranks add up for the matrix
they add up for its adapter too.
"""

from functools import lru_cache

from msgspec.structs import replace

from shardwise.registry import closest
from shardwise.spec.arch.tensors import Tensor, embedding_tensors, head_tensors, layer_tensors
from shardwise.spec.job import Precision
from shardwise.spec.model import Layer, Model
from shardwise.spec.tuning import GROUPS, Adapters, Tuned, Tuning

_CACHED = 512
_MLP = ("gate", "up", "down", "expert.", "shared.")
_NOT_ATTENTION = (*_MLP, "router", "shared_gate", "latent.", "mamba", "delta", "streams", "further", "indexer")
_NO_LINEAR = ("router", "streams", "head.streams")
"""products that programs do not make with a linear module"""


def tuned(model: Model, tuning: Tuning | None) -> Model:
    """The model with each layer as it is trained; the same where all of it is."""
    if tuning is None or model.tuning is not None:
        return model
    if model.inputs == "features":
        raise ValueError(f"tune: {model.name} reads examples; adapters and frozen layers are of language models")
    layers = _layers(model, tuning)
    if tuning.embedding_frozen and tuning.head_frozen and not any(map(_trains, layers)):
        raise ValueError(f"freeze: {tuning.freeze_text} leaves nothing of {model.name} to train; freeze fewer layers")
    kinds = tuple(dict.fromkeys(layers))
    return replace(
        model, kinds=kinds, pattern=tuple(kinds.index(layer) for layer in layers), tuning=tuning, mtp_layers=0,
        mtp_pattern=(),
    )  # fmt: skip


def tuning_notes(model: Model, tuning: Tuning, precision: Precision) -> list[str]:
    """What is taken for granted of a job that does not train all of a model."""
    if tuning.base and (precision.cast_bytes or precision.param_bytes > 2):
        raise ValueError(
            f"precision: {precision.name} with base={tuning.base}; quantised weights are written out in 16 bits for "
            "each product: write --precision bf16, or tune lora without base="
        )
    notes = []
    if model.mtp_layers:
        notes.append("extra prediction layers: left out where a model is tuned")
    if tuning.base:
        notes.append("quantised: the matrices of layers; embeddings, norms and head stay in 16 bits")
    return notes


def _layers(model: Model, tuning: Tuning) -> list[Layer]:
    text = sum(not model.kinds[kind].tokens for kind in model.pattern)
    if tuning.first > text:
        raise ValueError(f"freeze: first={tuning.first}, but {model.name} has {text} layers; write at most {text}")
    if tuning.vision and text == model.layers:
        raise ValueError(f"freeze: {model.name} has no vision tower; leave vision out")
    if tuning.adapters is not None:
        _check_targets(model, tuning.adapters)
    found: list[Layer] = []
    number, tower_trained, trained = 0, False, not tuning.embedding_frozen
    for kind in model.pattern:
        layer, adapters = model.kinds[kind], tuning.adapters
        tower = bool(layer.tokens)
        kept = tuning.vision if tower else number < tuning.first
        if kept or (adapters is not None and not _adapted(layer_tensors(model, kind), adapters)):
            adapters = None
        before = tower_trained if tower else trained or tower_trained
        frozen = kept or tuning.adapters is not None
        own = adapters is not None or not frozen
        how = Tuned(frozen=frozen, adapters=adapters, backward=before or own, gradient_in=before)
        found.append(replace(layer, tuned=how) if frozen else layer)
        if tower:
            tower_trained |= own
        else:
            number, trained = number + 1, trained or own
    return found


def _trains(layer: Layer) -> bool:
    return layer.tuned is None or layer.tuned.adapters is not None


def module_of(tensor: Tensor) -> str:
    """The module's own name: q_proj."""
    return tensor.name.partition("[")[0].rsplit(".", 2)[-2]


def linear(tensor: Tensor) -> bool:
    """Whether programs have it as a linear module, which may be quantised and have an adapter."""
    return tensor.product and tensor.part == "layer" and not tensor.role.startswith(_NO_LINEAR)


def _check_targets(model: Model, adapters: Adapters) -> None:
    known = [t for kind in set(model.pattern) for t in layer_tensors(model, kind) if linear(t)]
    modules = sorted({module_of(t) for t in known})
    for target in adapters.targets:
        if not any(_meant(tensor, target) for tensor in known):
            near = closest(target, [*GROUPS, *modules])
            raise ValueError(f"tune: {model.name} has no {target!r} to adapt; {near}")


def _meant(tensor: Tensor, target: str) -> bool:
    if target == "attention":
        return not tensor.role.startswith(_NOT_ATTENTION)
    if target == "mlp":
        return tensor.role.startswith(_MLP)
    return target in ("all", module_of(tensor))


def _adapted(tensors: tuple[Tensor, ...], adapters: Adapters) -> tuple[Tensor, ...]:
    return tuple(t for t in tensors if linear(t) and any(_meant(t, target) for target in adapters.targets))


@lru_cache(_CACHED)
def adapted_tensors(model: Model, kind: int) -> tuple[Tensor, ...]:
    """Matrices of a layer that have an adapter beside them."""
    how = model.kinds[kind].tuned
    if how is None or how.adapters is None:
        return ()
    return _adapted(layer_tensors(model, kind), how.adapters)


@lru_cache(_CACHED)
def trained_layer(model: Model, kind: int) -> tuple[Tensor, ...]:
    """The tensors of one layer of this kind that have a gradient."""
    how = model.kinds[kind].tuned
    if how is None or not how.frozen:
        return layer_tensors(model, kind)
    if how.adapters is None:
        return ()
    found: list[Tensor] = []
    seen: set[str] = set()
    for tensor in adapted_tensors(model, kind):
        # parts of a matrix that programs keep as one read the same A
        whole = tensor.name.partition("[")[0]
        found += _adapter(tensor, how.adapters, shared=whole in seen)
        seen.add(whole)
    return tuple(found)


def _adapter(tensor: Tensor, adapters: Adapters, *, shared: bool) -> list[Tensor]:
    *experts, outputs, inputs = tensor.shape
    split, role = tensor.split, tensor.role.removesuffix(".weight")
    narrow, wide = ("row", "none") if split == "row" else ("none", split) if split != "expert" else (split, split)
    found = [] if shared else [_piece(tensor, f"{role}.lora_a", (*experts, adapters.rank, inputs), narrow)]
    found.append(_piece(tensor, f"{role}.lora_b", (*experts, outputs, adapters.rank), wide))
    if adapters.magnitudes:
        found.append(_piece(tensor, f"{role}.magnitude", (*experts, outputs), wide))
    return found


def _piece(tensor: Tensor, role: str, shape: tuple[int, ...], split: str) -> Tensor:
    cut = tensor.pieces if split == tensor.split else 0
    return Tensor(
        name=f"{tensor.name.partition('.weight')[0]}.{role.rpartition('.')[2]}.weight", role=role, shape=shape,
        part=tensor.part, split=split, product=len(shape) > 1 and not role.endswith("magnitude"), pieces=cut,
    )  # fmt: skip


def frozen_layer(model: Model, kind: int) -> tuple[Tensor, ...]:
    how = model.kinds[kind].tuned
    return layer_tensors(model, kind) if how is not None and how.frozen else ()


def trained_embedding(model: Model) -> tuple[Tensor, ...]:
    return () if model.tuning is not None and model.tuning.embedding_frozen else embedding_tensors(model)


def frozen_embedding(model: Model) -> tuple[Tensor, ...]:
    return embedding_tensors(model) if model.tuning is not None and model.tuning.embedding_frozen else ()


def trained_head(model: Model) -> tuple[Tensor, ...]:
    return () if model.tuning is not None and model.tuning.head_frozen else head_tensors(model)


def frozen_head(model: Model) -> tuple[Tensor, ...]:
    return head_tensors(model) if model.tuning is not None and model.tuning.head_frozen else ()


def trained_parameters(model: Model) -> int:
    ends = sum(t.size for t in trained_embedding(model) + trained_head(model))
    return ends + sum(model.pattern.count(k) * sum(t.size for t in trained_layer(model, k))
                      for k in range(len(model.kinds)))  # fmt: skip
