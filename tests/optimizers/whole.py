"""Every tensor of a model as torch parameters, and what a real optimizer keeps of them after one step."""

import torch

from shardwise.spec.arch.tensors import embedding_tensors, head_tensors, layer_tensors
from shardwise.work.updates import kind_of


def tensors_of(model):
    layers = [tensor for kind in model.pattern for tensor in layer_tensors(model, kind)]
    return [*layers, *embedding_tensors(model), *head_tensors(model)]


def parameters_of(model, *, experts_apart):
    """(kind, parameter)"""
    found = []
    for tensor in tensors_of(model):
        apart = experts_apart and tensor.split == "expert"
        shapes = [tensor.shape[1:]] * tensor.shape[0] if apart else [tensor.shape]
        found += [(kind_of(tensor), torch.nn.Parameter(torch.randn(shape) * 0.1)) for shape in shapes]
    for _, parameter in found:
        parameter.grad = torch.randn_like(parameter)
    return found


def kept_after_a_step(optimizers):
    """Bytes of all but step counters."""
    for optimizer in optimizers:
        optimizer.step()
    states = (state for optimizer in optimizers for state in optimizer.state.values())
    return sum(value.nbytes for state in states for name, value in state.items() if name != "step")
