"""Where Hugging Face keeps each of the runtime's tensors: its name, which way round, and which part of a fused one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shardwise.spec.arch.tensors import Tensor as Shape
from shardwise.spec.arch.tensors import embedding_tensors, head_tensors, layer_tensors
from shardwise.spec.arch.tuned import trained_layer
from shardwise.spec.model import Model

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "gpt2")
"""those whose arithmetic the runtime repeats exactly"""
_PART = re.compile(r"(.*)\[([qkv])\]")
_TURNED = ("q", "k", "v", "o", "up", "down")
"""GPT-2's Conv1D stores (inputs, outputs)"""


@dataclass(frozen=True)
class FileTensor:
    """One tensor of the runtime."""

    runtime: str
    shape: tuple[int, ...]
    name: str
    """with {e} where every expert has a tensor of its own"""
    turned: bool = False
    part: int = 0
    parts: int = 1
    """of the outputs of a fused tensor: query, key, value"""

    @property
    def experts(self) -> bool:
        return "{e}" in self.name

    @property
    def stored_shape(self) -> tuple[int, ...]:
        shape = self.shape[1:] if self.experts else self.shape
        shape = (shape[0] * self.parts, *shape[1:])
        return shape[::-1] if self.turned else shape

    def names(self) -> list[str]:
        return [self.name.replace("{e}", str(e)) for e in range(self.shape[0])] if self.experts else [self.name]

    def places(
        self, offsets: Sequence[int], sizes: Sequence[int]
    ) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
        """Stored blocks (name, offsets, sizes) that hold this block of the runtime's tensor, in its order."""
        first, end = (tuple(offsets), tuple(sizes))
        if self.experts:
            names = self.names()[first[0] : first[0] + end[0]]
            return [(name, first[1:], end[1:]) for name in names]
        first = (first[0] + self.part * self.shape[0], *first[1:])
        return [(self.name, first[::-1], end[::-1]) if self.turned else (self.name, first, end)]

    def joined(self, blocks: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
        """The runtime's block from the stored ones."""
        if self.experts:
            return torch.stack(list(blocks))
        return (blocks[0].t() if self.turned else blocks[0]).reshape(tuple(sizes))


def stored_tensors(model: Model) -> dict[str, FileTensor]:
    """By the runtime's name."""
    if model.family not in FAMILIES:
        raise ValueError(
            f"model: weights of the family {model.family} are in a form this runtime neither reads nor writes; "
            f"write a model of {', '.join(FAMILIES)}"
        )
    found = [_stored("embedding.", t, model) for t in embedding_tensors(model)]
    for index, kind in enumerate(model.pattern):
        found += [_stored(f"layers.{index}.", t, model, index) for t in layer_tensors(model, kind)]
    found += [_stored("head.", t, model) for t in head_tensors(model)]
    return {one.runtime: one for one in found}


def adapter_tensors(model: Model) -> dict[str, FileTensor]:
    """Where PEFT keeps each adapter of a model that is tuned, by the runtime's name."""
    found = [
        FileTensor(f"layers.{index}.{t.role}", t.shape, f"base_model.model.{t.name.replace('{i}', str(index))}")
        for index, kind in enumerate(model.pattern)
        for t in trained_layer(model, kind)
    ]
    cased = {"lora_a": "lora_A", "lora_b": "lora_B"}
    return {
        one.runtime: replace(one, name=re.sub(r"lora_[ab]", lambda name: cased[name[0]], one.name)) for one in found
    }


def _stored(prefix: str, tensor: Shape, model: Model, index: int = 0) -> FileTensor:
    name = tensor.name.replace("{i}", str(index))
    turned = model.family == "gpt2" and len(tensor.shape) == 2 and tensor.role.split(".")[0] in _TURNED
    if fused := _PART.fullmatch(name):
        return FileTensor(prefix + tensor.role, tensor.shape, fused[1], turned, "qkv".index(fused[2]), 3)
    return FileTensor(prefix + tensor.role, tensor.shape, name, turned)
