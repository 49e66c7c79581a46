"""Routed experts as work: the router, the exchange of tokens, and the experts' products."""

from typing import Literal

import numpy as np

from shardwise.arrays import Ints
from shardwise.spec.job import Precision
from shardwise.spec.message import Message
from shardwise.spec.model import Experts, FeedForward, Model
from shardwise.spec.software import Stack
from shardwise.work.layout import Layout, Numbers
from shardwise.work.modules import EXPERT_ACTIVATION
from shardwise.work.ops import Gemm, LayerWork, Pointwise, SavedTensor, Value, element_bytes
from shardwise.work.unfused import around_experts, atomic_sums, moved_by_indices
from shardwise.work.unfused_passes import activation_passes


def experts_work(
    model: Model, experts: Experts, layout: Layout, precision: Precision, stack: Stack, cheap_to_repeat: bool = False
) -> LayerWork:
    """Routed experts. A rank routes its own sequence shard; with ep ranks it owns count/ep experts and receives as many
    token copies as it sends. Products and exchanges are of that balanced routing (imbalance is a factor on their cost);
    what is held is of the fullest rank. `cheap_to_repeat`: selective recompute repeats their activation."""
    local = layout.tokens / layout.tp
    places = experts.top_k * (stack.experts.capacity_factor or 1.0)
    copies = local * layout.etp * places
    width = experts.width / layout.etp
    up = width * (2.0 if experts.glu else 1.0)
    received = copies * fullest_share(stack, layout.ep)
    owned = np.maximum(experts.count / layout.ep, 1.0)
    per_expert = copies / owned
    # what the experts read and write: routing and the shared expert see the model's width
    hidden, element = experts.latent or model.hidden, element_bytes(precision)
    gate = (Gemm("shared gate", layout.tokens / layout.sp, 1.0, model.hidden, low_precision=False),)
    gemms = (
        Gemm("router", local, float(experts.count), model.hidden, low_precision=False),
        *(gate if experts.shared_gate else ()),
        *(_to_and_from_latent(local, model.hidden, hidden) if experts.latent else ()),
        *(_by_masks(layout, local, places, hidden) if _masked(stack) else ()),
        Gemm("expert up", per_expert, up, hidden, owned, grouped=True),
        Gemm("expert down", per_expert, hidden, width, owned, grouped=True),
    )
    # apart: rows are picked in the residual's precision and rounded, and outputs weighted, widened and added up
    permute = element * (12.0 if stack.kernels.one_kernel_per_op else 4.0) * copies * hidden
    moved = element * copies * width
    forward, backward = activation_passes(FeedForward(width=experts.width, glu=experts.glu), stack)
    etp_on = (layout.etp > 1).astype(np.float64)
    # copies cross to the expert's ranks first and are gathered over etp there, or tokens are before they are copied
    gathered = element * hidden * (local * layout.etp if stack.experts.dispatch == "gather" else copies)
    collectives: list[Message[Value]] = []
    for phase in ("forward", "backward"):
        collectives += [
            *_exchange(experts, stack, layout, element * local * hidden, places, phase),
            Message("expert all-gather", "all_gather", "etp", gathered, etp_on, phase),
            Message("expert reduce-scatter", "reduce_scatter", "etp", gathered, etp_on, phase),
        ]
    kept = element * received * (width * experts.glu + hidden)
    apart: tuple[SavedTensor, ...] = (
        () if stack.kernels.fused_glu else (SavedTensor("expert gate and unweighted output", kept),)
    )
    dropped: Literal["selective", "full"] = "selective" if cheap_to_repeat else "full"
    if experts.clamped and stack.experts.expert_biases == "unfused":
        apart += (SavedTensor("clamped pre-activation", element * received * up, dropped, EXPERT_ACTIVATION),)
    apart_sums = stack.experts.atomic_sums and precision.residual_bytes < 4.0
    return LayerWork(
        gemms=gemms,
        pointwise=(
            *(() if stack.experts.second_sort else (Pointwise("permute", permute, permute),)),
            Pointwise("router", 16.0 * local * experts.count, 16.0 * local * experts.count),
            Pointwise("expert activation", moved * forward, moved * backward, cheap_to_repeat, EXPERT_ACTIVATION),
        ),
        unfused=(
            *around_experts(experts, stack, copies, up, hidden, owned, cheap_to_repeat),
            *((atomic_sums(copies * hidden),) if apart_sums else ()),
            # picked and added up where they come from, sorted and weighted on the rank that received them
            *((moved_by_indices((copies + received) / 2.0 * hidden),) if stack.experts.second_sort else ()),
        ),
        saved=(
            SavedTensor("routed tokens", precision.act_bytes * received * hidden),
            SavedTensor("expert pre-activation", element * received * up),
            SavedTensor("expert activation", precision.act_bytes * received * width, dropped, EXPERT_ACTIVATION),
            SavedTensor("router scores", 8.0 * local * experts.count),
            *apart,
            *((SavedTensor("latent output", precision.act_bytes * local * hidden),) if experts.latent else ()),
        ),
        collectives=tuple(collectives),
        extra_ops=stack.experts.ops_per_expert * owned,
        routed=True,
        working_bytes=element * received * (up + hidden),
    )


def _exchange(
    experts: Experts,
    stack: Stack,
    layout: Layout,
    tokens_bytes: Numbers,
    places: float,
    phase: Literal["forward", "backward"],
) -> tuple[Message[Value], ...]:
    """Tokens to the ranks of their experts and back; `tokens_bytes`: of those that a rank routes; `places`: of each."""
    ep_on = (layout.ep > 1).astype(np.float64)
    if stack.experts.dispatch == "gather":
        whole = tokens_bytes * layout.ep
        return (
            Message("tokens of all", "all_gather", "ep", whole, ep_on, phase),
            Message("sums for all", "reduce_scatter", "ep", whole, ep_on, phase),
        )
    copies = float(experts.top_k)
    name, number = "expert all-to-all", float(experts.count)
    sent = tokens_bytes * places
    return (Message(name, "all_to_all", "ep", sent, 2.0 * ep_on, phase, copies=copies, experts=number),)


def fullest_share(stack: Stack, ranks: Value | Ints) -> Value:
    """Token copies of the fullest of so many expert ranks over the mean: at most all of them."""
    skew = 1.0 if stack.experts.capacity_factor else stack.experts.expert_imbalance
    return 1.0 if skew == 1 else np.asarray(np.minimum(skew, ranks))


def _to_and_from_latent(local: Value, hidden: int, latent: int) -> tuple[Gemm, Gemm]:
    """Every rank projects its own tokens before they leave for the experts and after they are back."""
    return Gemm("latent down", local, float(latent), hidden), Gemm("latent up", local, float(hidden), latent)


def _masked(stack: Stack) -> bool:
    return stack.experts.capacity_masks and stack.experts.capacity_factor > 0.0


def _by_masks(layout: Layout, local: Value, places: float, hidden: int) -> tuple[Gemm, Gemm]:
    """A sequence's tokens times a mask of tokens by places, and the experts' outputs times their weights in that mask:
    masks that are not trained, and weights that are (arXiv:2006.16668, algorithm 1)."""
    sequences = layout.policies.micro_batch.astype(np.float64)
    tokens = local / sequences
    return (
        Gemm("to places", places * tokens, hidden, tokens, sequences, low_precision=False, weight_grad=False),
        Gemm("from places", tokens, hidden, places * tokens, sequences, low_precision=False),
    )
