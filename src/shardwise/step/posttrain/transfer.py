"""How long new weights take from trainer to engine, by the path a program takes."""

from dataclasses import replace
from typing import NamedTuple

from shardwise.spec.arch.tensors import layer_tensors
from shardwise.spec.model import Model
from shardwise.step.posttrain.engine import RolloutEngine, shard_bytes
from shardwise.step.posttrain.facts import TransferFacts

MATRICES = 3
"""of an expert that an engine loads one by one: gate, up, down"""
HOST_BYTES = 4.0
"""of a weight that waits in host memory: the optimizer's copy"""


ROUNDED_KERNELS = 6.0
"""that round a matrix to 8 bits in blocks, one by one: absolute values, largest, scale, product, limits, cast; in place
of one copy"""


class Senders(NamedTuple):
    """The trainer's ranks, as far as a transfer sees them."""

    gpus: int
    offloaded: bool = False
    """weights wait in host memory"""
    own_experts: int = 1
    """groups of ranks that each find the changes of the experts they have and send those alone"""


def transfer_seconds(path: TransferFacts, engine: RolloutEngine, senders: Senders) -> float:
    """Pause and resume, weights back from the host, the whole model through what gathers and converts it, each engine
    GPU's part over its links, and experts that are loaded one at a time."""
    model, seconds = engine.model, path.fixed_s
    if path.host_rate and senders.offloaded:
        seconds += shard_bytes(model, HOST_BYTES) / senders.gpus / path.host_rate
    apart = senders.own_experts if path.shared_experts else 1
    if path.rate:
        elsewhere = (1.0 - 1.0 / apart) * expert_parameters(model)
        seconds += (shard_bytes(model, engine.element_bytes) - elsewhere * engine.element_bytes) / path.rate
    if path.gpu_rate:
        seconds += replace(engine, precision="bf16").weights_bytes / path.gpu_rate
    if apart > 1:
        return seconds
    kernels = ROUNDED_KERNELS if path.gpu_rate and engine.precision == "fp8" else 1.0
    return seconds + kernels * path.expert_s * expert_matrices(model)


def expert_parameters(model: Model) -> int:
    return sum(
        model.pattern.count(kind) * tensor.size
        for kind in range(len(model.kinds))
        for tensor in layer_tensors(model, kind)
        if tensor.split == "expert"
    )


def expert_matrices(model: Model) -> int:
    return MATRICES * sum(
        model.pattern.count(kind) * layer.experts.count for kind, layer in enumerate(model.kinds) if layer.experts
    )
