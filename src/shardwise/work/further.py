"""Parts of a layer beside its own mixer and feed-forward: matrices that stand for themselves, and a second attention to
what an encoder made.

What a mixer does between its matrices is not known and not priced; the model's notes say so.
"""

from dataclasses import replace

import numpy as np

from shardwise.spec.job import Precision
from shardwise.spec.model import Attention, Layer, Matrix, Model
from shardwise.work.layout import Layout
from shardwise.work.ops import Attend, Gemm, LayerWork, SavedTensor, element_bytes


def seen_by(model: Model, layer: Layer, layout: Layout, seq: int) -> tuple[Model, Layout, int]:
    """The model's width, the tokens and the sequence as a layer with its own has them."""
    if layer.tokens:
        local = layer.tokens / layout.cp
        layout, seq = replace(layout, local_seq=local, tokens=layout.sequences * local), layer.tokens
    return (model.with_width(layer.width) if layer.width else model), layout, seq


def matrices_work(matrices: tuple[Matrix, ...], layout: Layout, precision: Precision) -> LayerWork:
    """A matrix that is not cut is applied by every rank to its part of the sequence."""
    gemms, saved = [], []
    for matrix in matrices:
        if not matrix.product:
            continue
        cut = matrix.split != "none"
        tokens = layout.tokens if cut else layout.tokens / layout.sp
        outputs = matrix.outputs / layout.tp if matrix.split == "column" else matrix.outputs + 0.0 * layout.tp
        inputs = matrix.inputs / layout.tp if matrix.split == "row" else matrix.inputs + 0.0 * layout.tp
        gemms.append(Gemm(matrix.name, tokens, outputs, inputs))
        if matrix.split != "row":
            saved.append(SavedTensor(f"output of {matrix.name}", element_bytes(precision) * tokens * outputs))
    return LayerWork(gemms=tuple(gemms), saved=tuple(saved))


def cross_work(model: Model, layer: Layer, cross: Attention, layout: Layout, element: float, seq: int) -> LayerWork:
    """Queries of the layer's own tokens, keys and values of the encoder's, which all of them see."""
    source = layer.cross_tokens or seq
    keys_tokens = layout.sequences * source / layout.cp
    query = cross.heads * cross.head_dim / layout.tp
    out = cross.heads * cross.value_dim / layout.tp
    kv_heads = np.maximum(cross.kv_heads / layout.tp, 1.0)
    both = kv_heads * (cross.head_dim + cross.value_dim)
    attend = Attend(
        layout.sequences,
        layout.local_seq,
        float(source),
        cross.heads / layout.tp,
        float(cross.head_dim),
        float(cross.value_dim),
        source / layout.cp,
        1.0,
    )
    return LayerWork(
        gemms=(
            Gemm("cross query", layout.tokens, query, model.hidden),
            Gemm("cross key, value", keys_tokens, both, layer.cross_width or model.hidden),
            Gemm("cross out", layout.tokens, model.hidden, out),
        ),
        cross=attend,
        saved=(
            SavedTensor("cross query", element * layout.tokens * query),
            SavedTensor("cross key, value", element * keys_tokens * both),
            SavedTensor("cross output", element * layout.tokens * out),
        ),
        working_bytes=element * (layout.tokens * query + keys_tokens * both),
        deferred_bytes=element * layout.tokens * (model.hidden / layout.sp + query + out + model.hidden),
    )
