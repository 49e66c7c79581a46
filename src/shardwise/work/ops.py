"""The pieces a layer is made of. No seconds here: shapes, bytes and who takes part.

Every number may be an array with one element per policy.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from shardwise.arrays import Ints
from shardwise.spec.job import Precision
from shardwise.spec.message import Message
from shardwise.work.layout import Numbers

Value = Numbers | float


def element_bytes(precision: Precision) -> float:
    """One element of a tensor between two products: the compute dtype, and 16 bits where products read fp8 or fp4."""
    return max(precision.act_bytes, 2.0)


@dataclass(frozen=True)
class Gemm:
    """A matrix product with weights: [m, k] x [k, n], `batch` times, one after the other unless they are grouped; its
    backward is two products of the same size."""

    name: str
    m: Value
    n: Value
    k: Value
    batch: Value = 1.0
    low_precision: bool = True
    """may run in fp8/fp4 when the recipe says so"""
    grouped: bool = False
    """many small products in one launch (experts)"""
    latent_up: bool = False
    """raises a latent to heads: what selective recompute may repeat in place of the attention core"""
    repeated_by: int = 0
    """bits of the modules (`spec.policy.MODULES`) whose recompute runs it again; so of the pieces below"""
    input_grad: bool = True
    """something before it is trained"""
    weight_grad: bool = True
    """its weights are trained"""
    of_adapter: bool = False
    """launched beside a product of the model, and counted there (`LayerWork.extra_ops`)"""


@dataclass(frozen=True)
class Attend:
    """Softmax attention of `queries` tokens per sequence over `keys` tokens."""

    sequences: Value
    queries: Value
    keys: Value
    heads: Value
    head_dim: float
    value_dim: float
    block: Value
    """length of the causal sequence that a kernel call is like: with ring attention a rank's own share, with a window
    twice its keys"""
    causal_share: float
    """share of the queries x keys square a fused kernel computes: about half when causal"""
    gathered: bool = False
    """each query has keys of its own"""

    def forward_flops(self) -> Value:
        """FLOPs a fused kernel does; plain attention computes the whole square."""
        return self.square_flops() * self.causal_share

    def square_flops(self) -> Value:
        return 2.0 * self.sequences * self.heads * self.queries * self.keys * (self.head_dim + self.value_dim)


@dataclass(frozen=True)
class Index:
    """An indexer: scores of all pooled vectors, and what it learns from those it picks."""

    heads: float
    head_dim: float
    groups: Value
    """sequences x heads"""
    keys: float
    """pooled vectors of a sequence"""
    score_flops: Value
    picked: float
    taught: "Attend"
    """the heads it stands for, with what it picked"""
    gradient_flops: Value


SCAN_BYTES_PER_SM_S = {"state space": 10e9, "delta": 15.5e9}
"""bytes/s that one multiprocessor moves in a recurrence: what its kernels keep in flight over the latency of memory.
Mamba-2: chosen on Nemotron 3 Nano and Super of Megatron-Bridge (docs/decisions/0017). Gated delta rule: the median over
passes that keep an H200 busy, flash-linear-attention's kernels alone (evidence/timed/delta-h200.csv); on no published
run"""


@dataclass(frozen=True)
class Scan:
    """The chunked recurrence of a mixer by what its kernels move: bytes read and written, forward and backward."""

    forward_bytes: Value
    backward_bytes: Value
    kernels: float
    """of the forward pass, one after the other"""
    rule: Literal["state space", "delta"] = "state space"


@dataclass(frozen=True)
class Pointwise:
    """Element-wise passes over memory: bytes read and written, forward and backward."""

    name: str
    forward_bytes: Value
    backward_bytes: Value
    cheap_to_repeat: bool = False
    """selective recompute repeats it: its output is large, its time short"""
    repeated_by: int = 0


@dataclass(frozen=True)
class UnfusedOperations:
    """Operations around a product that run one by one: bytes as timed, so no stack's passes multiply them."""

    name: str
    forward_bytes: Value
    backward_bytes: Value
    launches: Value
    """forward and backward"""
    of_experts: bool = False
    """a program that puts the experts' element-wise work into their products has it there"""
    cheap_to_repeat: bool = False
    """as of `Pointwise`"""
    repeated_by: int = 0
    atomic_adds: Value = 0.0
    """numbers of 16 bits that are added one at a time, in the forward pass and again in the backward"""


@dataclass(frozen=True)
class SavedTensor:
    """A tensor kept from the forward pass for the backward."""

    name: str
    bytes: Value
    dropped_by: Literal["selective", "full", "never"] = "full"
    repeated_by: int = 0
    """of the modules that make it again and so need not keep it"""


@dataclass(frozen=True)
class LayerWork:
    """One layer of one kind, for one micro-batch on one rank."""

    gemms: tuple[Gemm, ...] = ()
    attention: Attend | None = None
    cross: Attend | None = None
    """a second attention, to what an encoder made"""
    index: Index | None = None
    scan: Scan | None = None
    pointwise: tuple[Pointwise, ...] = ()
    unfused: tuple[UnfusedOperations, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    collectives: tuple[Message[Value], ...] = ()
    ops_share: float = 1.0
    """launches of a dense layer that it has, `extra_ops` aside: half where it is one block, not two"""
    extra_ops: Value = 0.0
    """launches beyond those of a dense layer"""
    routed: bool = False
    """has experts; what their routing, permutation and products launch depends on where the experts lie"""
    working_bytes: Value = field(default=0.0)
    """largest short-lived tensors of the layer's backward, not saved"""
    deferred_bytes: Value = field(default=0.0)
    """what waits for weight gradients that are put off: inputs and output gradients of the dense products"""
    modules: Ints | None = None
    """bits of those that selective recompute repeats, where any policy names some"""
    regions: Value = 0.0
    """how many of these it has"""
    repeated: Value = 0.0
    """times that the forward pass of an end runs again in its backward"""
    forward_only: bool = False
    """nothing in it or before it is trained: it has no backward and keeps nothing for one"""

    def saved_bytes(self) -> tuple[Value, Value, Value]:
        """Bytes kept for the backward with no recompute, with selective, and with full recompute."""
        none: Value = 0.0
        selective: Value = 0.0
        full: Value = 0.0
        for tensor in self.saved:
            none = none + tensor.bytes
            if self.modules is not None:
                kept = np.where(self.modules > 0, (self.modules & tensor.repeated_by) == 0, _kept_by_itself(tensor))
                selective = selective + tensor.bytes * kept
            elif _kept_by_itself(tensor):
                selective = selective + tensor.bytes
            if tensor.dropped_by == "never":
                full = full + tensor.bytes
        return none, selective, full


def _kept_by_itself(tensor: SavedTensor) -> bool:
    """By selective recompute of what the program chooses."""
    return tensor.dropped_by != "selective"
