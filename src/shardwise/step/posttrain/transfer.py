"""How long new weights take from trainer to engine, by the path a program takes."""

from shardwise.spec.model import Model
from shardwise.step.posttrain.engine import RolloutEngine, shard_bytes
from shardwise.step.posttrain.facts import TransferFacts

MATRICES = 3
"""of an expert that an engine loads one by one: gate, up, down"""


def transfer_seconds(path: TransferFacts, engine: RolloutEngine) -> float:
    """Pause and resume, the whole model through what gathers and converts it, each engine GPU's own part over its
    links, and experts that are loaded one at a time."""
    own = engine.weights_bytes / path.gpu_rate if path.gpu_rate else 0.0
    model = shard_bytes(engine.model, engine.element_bytes) / path.rate if path.rate else 0.0
    return path.fixed_s + model + own + path.expert_s * expert_matrices(engine.model)


def expert_matrices(model: Model) -> int:
    return MATRICES * sum(
        model.pattern.count(kind) * layer.experts.count for kind, layer in enumerate(model.kinds) if layer.experts
    )


def sent_bytes(engine: RolloutEngine, replicas: int) -> float:
    """What all engine GPUs receive, once each."""
    return engine.weights_bytes * engine.tp * replicas
