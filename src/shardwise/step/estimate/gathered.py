"""Weights that are not this rank's own shard: what ZeRO-3 has gathered of them, and copies in compute precision."""

import numpy as np

from shardwise.work import Work
from shardwise.work.ops import element_bytes
from shardwise.work.stages import Grid


def gathered_bytes(work: Work, parameters: Grid, logits: Grid, working: Grid) -> Grid:
    """What ZeRO-3 holds of gathered weights and whole gradients, beside the loss or the working layer.

    At the loss the head's gradient arrives in compute precision; later a buffer of gradients is reduced, or a layer
    works, but not both at their fullest (FSDP2 on one H200, docs/benchmarks/runtime-gpu.md)."""
    layout, precision, stages = work.layout, work.job.precision, work.stages
    casts = _casts(work, parameters)
    sharded = (layout.policies.zero == 3)[:, None]
    if not sharded.any():
        return casts
    table, rest = tables_and_layers(work, parameters)
    layer = rest / np.maximum(stages.layers, 1.0)
    ends = table * np.maximum(stages.first, stages.last)
    weight, reduced, arrives = precision.param_comm_bytes, precision.grad_comm_bytes, element_bytes(precision)
    still_table, still = (sent * work.frozen_sent for sent in frozen_tables_and_layers(work))
    still_layer = still / np.maximum(stages.layers, 1.0)
    still_ends = still_table * np.maximum(stages.first, stages.last)
    beside_head, running, whole = _units(work, layer, rest)
    at_loss = logits + ((ends + beside_head) * weight + (still_ends + still_layer)) + ends * arrives
    later = running * weight + 2.0 * still_layer + np.maximum(working, np.maximum(whole, ends) * reduced)
    gathered = np.maximum(at_loss, later) - np.maximum(working, logits)
    # with pipeline stages the gathered weights and whole gradients stay until the step's last micro-batch
    held = parameters * (precision.param_comm_bytes + precision.grad_bytes)
    held = held + still_table * (stages.first + stages.last) + still
    staged = (layout.pp > 1)[:, None] & (not work.stack.network.regather_with_pp)
    gathered = np.where(staged, held, gathered)
    return np.where(sharded, gathered, casts)


def _units(work: Work, layer: Grid, layers: Grid) -> tuple[Grid, Grid, Grid]:
    """Elements gathered beside the head, gathered while a layer runs, and of one whole gradient.

    A layer at a time: the running one and the prefetched one. Tensor by tensor (DeepSpeed): the tensor at work, and
    those whose next use is near enough to keep them."""
    network = work.stack.network
    if not network.gathers_tensors_above:
        return layer, 2.0 * layer, layer
    largest = layer * max((kind.largest_share for kind in work.counts.kinds), default=1.0)
    kept = np.minimum(largest + network.reuse_distance, layers)
    return kept, kept, largest


def tables_and_layers(work: Work, parameters: Grid) -> tuple[Grid, Grid]:
    """Parameters of one vocabulary table, and of everything that is no table. Where patches become classes the ends
    are not alike, and the larger one stands for both."""
    table = work.counts.embedding.dense_per_rank(work.layout)[:, None]
    if work.model.inputs == "patches":
        head = work.counts.head_alone.dense_per_rank(work.layout)[:, None]
        ends = table * work.stages.first + head * work.stages.last
        return np.maximum(table, head), np.maximum(parameters - ends, 0.0)
    return table, np.maximum(parameters - table * (work.stages.first + work.stages.last), 0.0)


def frozen_tables_and_layers(work: Work) -> tuple[Grid | float, Grid | float]:
    """Bytes of a frozen vocabulary table, and of all other frozen weights, on each evaluated stage."""
    if work.frozen is None:
        return 0.0, 0.0
    none, end = np.zeros_like(work.stages.index), work.counts.embedding.frozen
    table = none if end is None else none + end.bytes_per_rank(work.layout, work.job.precision.param_bytes)[0][:, None]
    whole = work.frozen[0] + work.frozen[1]
    return table, np.maximum(whole - table * (work.stages.first + work.stages.last), 0.0)


def _casts(work: Work, parameters: Grid) -> Grid:
    """Weights in compute precision that stay for the backward pass. A lookup needs none, a recomputed layer makes its
    own again, and the head's product is not among those in eight bits or fewer (copies of 16-bit weights)."""
    precision, policies, stages = work.job.precision, work.layout.policies, work.stages
    if not precision.cast_bytes:
        return np.zeros_like(parameters)
    table, layers = (
        trained + frozen / precision.param_bytes
        for trained, frozen in zip(tables_and_layers(work, parameters), frozen_tables_and_layers(work), strict=True)
    )
    if precision.param_bytes < 4.0:
        return layers * precision.cast_bytes
    again = recomputed_share(work) * (policies.recompute == 2)[:, None]
    return np.asarray((table * stages.last + layers * (1.0 - again)) * precision.cast_bytes)


def recomputed_share(work: Work) -> Grid:
    """Share of a stage's layers."""
    policies, layers = work.layout.policies, work.stages.layers
    asked = np.where(policies.recompute_layers < 0, 1e9, policies.recompute_layers)[:, None]
    repeated = np.where((policies.recompute > 0)[:, None], np.minimum(asked, layers), 0.0)
    return np.asarray(repeated / np.maximum(layers, 1.0))
