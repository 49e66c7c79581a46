"""An inference engine on some GPUs: what its weights and cache take, and how long one decode step and a prefill take.

The matrices are the model's own tensors (`spec.arch.tensors`), so a model that training knows can be rolled out.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.arrays import Floats
from shardwise.cost.curve import Curve, Numbers, curve_of
from shardwise.cost.decode import CACHE_BYTES, all_reduce_seconds, attention_seconds, decode_law, experts_seconds
from shardwise.cost.gpu import attention_seconds as flash_seconds
from shardwise.cost.gpu import gemm_seconds, memory_seconds
from shardwise.cost.network import Network
from shardwise.spec.arch.tensors import (
    Tensor,
    embedding_tensors,
    head_tensors,
    layer_tensors,
)
from shardwise.spec.cluster import Cluster
from shardwise.spec.model import Layer, Model
from shardwise.step.posttrain.facts import EngineFacts

PREFILL_ROWS = 8192
"""tokens of one chunk of a prefill, as engines batch them"""
MOST_HOST_GPUS, HOST_GPUS = 8, 4
"""where more GPUs than these share NVLink, they stand in hosts of four (GB200 NVL72); an engine's own all-reduce
kernels work inside one host, beyond it NCCL is called"""
ONE_PRODUCT = {
    "q": "qkv", "k": "qkv", "v": "qkv", "q_a": "latents", "kv_a": "latents", "gate": "gate_up", "up": "gate_up",
    "shared.gate": "shared.gate_up", "shared.up": "shared.gate_up",
}  # fmt: skip
"""matrices that engines hold as one"""
STATE_BYTES, RECURRENT_KERNELS = 4.0, 3
"""of a recurrence: an element of its state, and its kernels: convolution, state, gated norm"""
POINTWISE_KERNELS = 6
"""of a layer beside its products and attention: norms, rotation, cache write, activation, additions"""


@dataclass(frozen=True)
class RolloutEngine:
    """One replica: `tp` GPUs that hold the model once."""

    model: Model
    cluster: Cluster
    network: Network
    facts: EngineFacts
    tp: int
    precision: str = "bf16"
    """of weights and products: bf16 or fp8; the cache has 16 bits"""

    @property
    def element_bytes(self) -> float:
        return 1.0 if self.precision == "fp8" else 2.0

    @cached_property
    def weights_bytes(self) -> float:
        """Of one GPU."""
        model = self.model
        layers = sum(
            model.pattern.count(kind) * sum(self._held(tensor) for tensor in layer_tensors(model, kind))
            for kind in range(len(model.kinds))
        )
        ends = sum(self._held(tensor, 2.0) for tensor in embedding_tensors(model) + head_tensors(model))
        return layers + ends

    @cached_property
    def token_bytes(self) -> float:
        """Of the cache of one token on one GPU; 0: no layer has one (its state does not grow)."""
        return CACHE_BYTES * sum(self._cached(kind) for kind in map(self.model.kinds.__getitem__, self.model.pattern))

    @cached_property
    def state_bytes(self) -> float:
        """Of what a sequence leaves in recurrent layers, on one GPU: as much after one token as after many."""
        return sum(self._state(self.model.kinds[kind]) for kind in self.model.pattern)

    def _state(self, layer: Layer) -> float:
        numbers = 0
        if layer.delta is not None:
            numbers = layer.delta.value_heads * layer.delta.key_dim * layer.delta.value_dim
        if layer.mamba is not None:
            numbers = layer.mamba.heads * layer.mamba.head_dim * layer.mamba.state
        return STATE_BYTES * numbers / self.tp

    @property
    def sliding(self) -> int:
        """Tokens beyond which the cache of windowed layers does not grow; 0: it grows in all."""
        return max((kind.attention.window for kind in self.model.kinds if kind.attention), default=0)

    def _cached(self, layer: Layer) -> float:
        attention = layer.attention
        if attention is None or attention.shares_keys:
            return 0.0
        if attention.latent:
            return attention.kv_lora + attention.rope_dim
        heads = max(attention.kv_heads / self.tp, 1.0)
        return heads * (attention.head_dim + attention.value_dim)

    def _held(self, tensor: Tensor, element: float = 0.0) -> float:
        element = element or (self.element_bytes if tensor.product else 2.0)
        return tensor.size * element / self._parts(tensor)

    def _parts(self, tensor: Tensor) -> float:
        if tensor.split in ("none", "first"):
            return 1.0
        return float(min(self.tp, tensor.pieces or self.tp))

    @cached_property
    def curve(self) -> Curve:
        return curve_of(self.cluster.gpu)

    def decode_seconds(self, batch: Numbers, context: Numbers) -> Floats:
        """One token for each of `batch` sequences with `context` tokens before it, on arrays of both."""
        rows = np.maximum(np.asarray(batch, dtype=np.float64), 1.0)
        before = np.asarray(context, dtype=np.float64)
        kinds = range(len(self.model.kinds))
        layers = sum(self.model.pattern.count(kind) * self._layer(kind, rows, before) for kind in kinds)
        host = self.facts.step_s + self.facts.sequence_s * rows
        return np.asarray(layers + self._head(rows) + host)

    def _layer(self, kind: int, rows: Floats, before: Floats) -> Floats:
        attention, gpu = self.model.kinds[kind].attention, self.cluster.gpu
        seconds = self._each_token(kind, rows, duty=0.0)
        if attention is not None:
            seen = np.minimum(before, attention.window) if attention.window else before
            heads = max(attention.heads / self.tp, 1.0)
            kv_heads, width = max(attention.kv_heads / self.tp, 1.0), (attention.head_dim + attention.value_dim) / 2
            if attention.latent:
                kv_heads, width = 1.0, (attention.kv_lora + attention.rope_dim) / 2
            law, _ = decode_law(gpu.name)
            seconds = seconds + attention_seconds(
                gpu, law, rows, seen, heads, kv_heads, width, whole_reach=self.facts.whole_reach
            )
        state = self._state(self.model.kinds[kind])
        if state:
            seconds = seconds + memory_seconds(self.curve, 2.0 * state * rows, kernels=RECURRENT_KERNELS)
        return np.asarray(seconds)

    def _each_token(self, kind: int, rows: Floats, duty: float) -> Floats:
        """A layer without what its tokens ask of each other."""
        layer, gpu = self.model.kinds[kind], self.cluster.gpu
        seconds = np.zeros_like(rows)
        for outputs, inputs in self._products(kind):
            seconds = seconds + gemm_seconds(self.curve, rows, outputs, inputs, self._dtype, duty=duty)
        if layer.experts is not None:
            law, _ = decode_law(gpu.name)
            width = max(layer.experts.width / self.tp, 1.0)
            hidden = layer.experts.latent or self.model.hidden
            seconds = seconds + experts_seconds(
                gpu, law, rows, hidden, width, layer.experts.top_k, layer.experts.count,
                matrices=3 if layer.experts.glu else 2, element_bytes=self.element_bytes,
            )  # fmt: skip
        moved = POINTWISE_KERNELS * 2.0 * CACHE_BYTES * rows * self.model.hidden
        seconds = seconds + memory_seconds(self.curve, moved, kernels=POINTWISE_KERNELS)
        return np.asarray(seconds + layer.blocks * self._reduce(rows * self.model.hidden * CACHE_BYTES))

    def _products(self, kind: int) -> list[tuple[float, float]]:
        """Outputs and inputs of a layer's products on this GPU; matrices that read the same are one."""
        found: dict[str, tuple[float, float]] = {}
        for tensor in layer_tensors(self.model, kind):
            if tensor.product and tensor.split != "expert":
                outputs, inputs = tensor.shape[-2:]
                parts = self._parts(tensor)
                rows, columns = (1.0, parts) if tensor.split == "row" else (parts, 1.0)
                role = tensor.role.removesuffix(".weight")
                name = ONE_PRODUCT.get(role, role)
                already = found.get(name, (0.0, 0.0))[0]
                found[name] = already + max(outputs / rows, 1.0), max(inputs / columns, 1.0)
        return list(found.values())

    @property
    def _dtype(self) -> str:
        return "fp8" if self.precision == "fp8" else "bf16"

    def _head(self, rows: Floats) -> Floats:
        vocab = self.model.vocab / self.tp
        product = gemm_seconds(self.curve, rows, vocab, float(self.model.hidden), "bf16", duty=0.0)
        passes = memory_seconds(self.curve, self.facts.sampler_bytes * rows * self.model.vocab, kernels=4)
        return np.asarray(product + passes)

    def _reduce(self, sent: Numbers) -> Numbers:
        """One all-reduce over the replica: engine kernels inside a node, NCCL beyond it."""
        if self.tp == 1:
            return 0.0 * sent
        if self.tp <= (HOST_GPUS if self.cluster.node_size > MOST_HOST_GPUS else self.cluster.node_size):
            law, _ = decode_law(self.cluster.gpu.name)
            return all_reduce_seconds(self.cluster.gpu, law, sent, float(self.tp))
        return self.network.seconds("all_reduce", sent, self.tp)

    def prefill_token_s(self, prompt: float) -> float:
        """Seconds of a token of prompts this long, in full chunks of them."""
        rows, seconds = np.array([float(PREFILL_ROWS)]), 0.0
        for kind, layer in enumerate(self.model.kinds):
            each = float(self._each_token(kind, rows, duty=1.0)[0])
            if layer.attention is not None:
                heads, width = max(layer.attention.heads / self.tp, 1.0), layer.attention.head_dim
                flops = 2.0 * PREFILL_ROWS * prompt * heads * width
                each += float(flash_seconds(
                    self.curve, flops, prompt, width, PREFILL_ROWS / prompt * heads, kernel=self.facts.attention
                ))  # fmt: skip
            seconds += self.model.pattern.count(kind) * each
        return seconds / PREFILL_ROWS

    def room(self, share: float) -> float:
        """Bytes for the cache on one GPU when the engine may fill `share` of its memory."""
        return share * self.cluster.gpu.memory_bytes - self.weights_bytes - self.facts.reserve_bytes

    def sequences(self, share: float, tokens: float) -> int:
        """Sequences of so many tokens that decode at once."""
        if self.room(share) <= 0:
            return 0
        cached = self.token_bytes * tokens + self.state_bytes
        most = self.room(share) / cached if cached else float(self.facts.most_sequences)
        return int(min(most, self.facts.most_sequences))


def shard_bytes(model: Model, element: float = 2.0) -> float:
    """All weights, once."""
    kinds = range(len(model.kinds))
    layers = sum(model.pattern.count(kind) * sum(t.size for t in layer_tensors(model, kind)) for kind in kinds)
    ends = sum(t.size for t in embedding_tensors(model) + head_tensors(model))
    return element * (layers + ends)
