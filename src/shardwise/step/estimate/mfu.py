"""Model FLOPs per token under the conventions in use, and the utilization and time each of them gives.

The same run has several "MFU"s: they differ in whether the embedding counts as a matrix, whether a causal mask halves
the attention square, and whether recomputed work counts. All are per token, forward and backward.

The headline MFU of every verb counts the causal half (`HEADLINE`): no kernel needs the masked half, and counting it
shows long sequences near 100 %. HFU counts what is executed (`executed`): the same, the masked half where a kernel
computes it, and what the backward pass repeats. What a fused attention repeats inside its own backward is not counted,
as in published figures.
"""

from msgspec import Struct

from shardwise.spec.arch.tensors import active_parameters, head_share, products_per_token, tokens_share
from shardwise.spec.model import Attention, Model
from shardwise.spec.policy import Policy
from shardwise.step.estimate.tuned_flops import product_flops, repeated_flops
from shardwise.work.compressed import index_flops_per_token, met_keys
from shardwise.work.delta import delta_flops_per_token
from shardwise.work.mamba import scan_flops_per_token

RECOMPUTE = ("none", "selective", "full")
HEADLINE = "causal_half"


class Convention(Struct, frozen=True, kw_only=True):
    key: str
    what: str
    flops_per_token: float

    def utilization(self, tokens_per_s: float, peak: float) -> float:
        return utilization(self.flops_per_token * tokens_per_s, 1, peak, 1.0)


def attended_keys(attention: Attention, seq: int, *, causal_half: bool) -> float:
    """Keys a query meets on average: the whole sequence (or window), or with the mask counted, half of it."""
    reach = min(attention.window or seq, seq)
    if causal_half and attention.causal:
        return reach - reach * reach / (2 * seq)
    return float(reach)


def attention_flops_per_token(model: Model, seq: int, *, causal_half: bool, backward: bool | None = None) -> float:
    """Forward FLOP per token of the two products with keys and values, or of the products of a scan, over all layers;
    `backward`: over those that a gradient passes, or those that none does."""
    total = 0.0
    for kind, layer in enumerate(model.kinds):
        if backward is not None and backward != (layer.tuned is None or layer.tuned.backward):
            continue
        attention = layer.attention
        if attention is not None and attention.compressed is not None:
            # no convention counts keys that a query never meets
            parts = attention.compressed
            products = 4 * met_keys(attention, parts, seq) * attention.heads * attention.head_dim
            total += model.pattern.count(kind) * (products + index_flops_per_token(parts, seq))
        elif attention is not None:
            width = attention.heads * (attention.head_dim + attention.value_dim)
            keys = attended_keys(attention, layer.tokens or seq, causal_half=causal_half)
            total += model.pattern.count(kind) * 2 * keys * width * tokens_share(layer, seq)
        if (cross := layer.cross) is not None:
            width = cross.heads * (cross.head_dim + cross.value_dim)
            total += model.pattern.count(kind) * 2 * (layer.cross_tokens or seq) * width
        if layer.mamba is not None:
            total += model.pattern.count(kind) * scan_flops_per_token(layer.mamba)
        if layer.delta is not None:
            total += model.pattern.count(kind) * delta_flops_per_token(layer.delta)
    return total


def conventions(model: Model, seq: int, recompute: str = "none") -> list[Convention]:
    """FLOP per trained token, from the simplest count to what the hardware executes."""
    if seq < 1:
        raise ValueError(f"seq: {seq} is out of range; write a whole number of 1 or more")
    products = product_flops(model, seq)
    square, half = (_attention_passes(model, seq, causal_half=half) for half in (False, True))
    rows = (
        ("6n_all", "6N, embedding included", 6 * float(active_parameters(model))),
        ("6n_matmul", "6N, matrices only", products),
        ("full_square", "matrices + whole square", products + square),
        ("causal_half", "matrices + causal half", products + half),
        ("hardware", f"whole square + recompute {recompute}", products + square
         + recomputed_flops(model, seq, recompute, causal_half=False)),
        ("executed", f"causal half + recompute {recompute}", products + half
         + recomputed_flops(model, seq, recompute, causal_half=True)),
    )  # fmt: skip
    return [Convention(key=key, what=what, flops_per_token=flops) for key, what, flops in rows]


def _attention_passes(model: Model, seq: int, *, causal_half: bool) -> float:
    """Forward, and twice that backward where a gradient passes."""
    passed = attention_flops_per_token(model, seq, causal_half=causal_half, backward=True)
    return 3 * passed + attention_flops_per_token(model, seq, causal_half=causal_half, backward=False)


def headline(model: Model, seq: int) -> Convention:
    """What the MFU that every verb shows first counts."""
    return next(c for c in conventions(model, seq) if c.key == HEADLINE)


def executed(model: Model, seq: int, policy: Policy) -> Convention:
    """What HFU counts: the FLOPs a policy's kernels execute, with those that its recomputed layers repeat. Flash
    attention skips the masked half of the square, plain attention computes it."""
    half = policy.attention == "flash"
    known = {c.key: c for c in conventions(model, seq)}["causal_half" if half else "full_square"]
    per_stage = max(model.layers / policy.pp, 1.0)
    share = 1.0 if policy.recompute_layers < 0 else min(policy.recompute_layers / per_stage, 1.0)
    again = share * recomputed_flops(model, seq, policy.recompute, causal_half=half)
    if policy.recompute_modules:
        again = _module_flops(model, policy.recompute_modules)
        if "core_attn" in policy.recompute_modules:
            again += attention_flops_per_token(model, seq, causal_half=half)
    return Convention(key="executed", what=f"{known.what} + recompute", flops_per_token=known.flops_per_token + again)


def recomputed_flops(model: Model, seq: int, recompute: str, *, causal_half: bool) -> float:
    """Forward FLOP per token that the backward pass repeats: nothing, the attention core, or all layers."""
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute: {recompute!r} is unknown; write one of {', '.join(RECOMPUTE)}")
    if recompute == "none":
        return 0.0
    core = attention_flops_per_token(model, seq, causal_half=causal_half, backward=True)
    if recompute == "selective":
        return core
    if model.tuning is not None:
        return repeated_flops(model, seq) + core
    # The head lies outside the checkpointed layers.
    return 2 * (products_per_token(model, seq=seq) - head_parameters(model, seq)) + core


def _module_flops(model: Model, modules: tuple[str, ...]) -> float:
    """Forward FLOP per token of the products inside these modules, over all layers."""
    total = 0.0
    for kind, layer in enumerate(model.kinds):
        wide, latent, times = layer.feed_forward, layer.attention, 2 * model.pattern.count(kind)
        if "mlp" in modules and wide is not None:
            total += times * model.hidden * wide.width * (3 if wide.glu else 2)
        if "mla_up_proj" in modules and latent is not None and latent.latent:
            own = latent.head_dim - latent.rope_dim + latent.value_dim
            total += times * latent.heads * (latent.head_dim * latent.q_lora + own * latent.kv_lora)
        if (experts := layer.experts) is not None:
            matrices = 3 if experts.glu else 2
            shared = model.hidden * experts.shared_width * matrices
            routed = experts.top_k * (experts.latent or model.hidden) * experts.width * matrices
            total += times * (routed if "moe" in modules else 0)
            total += times * (shared if {"moe", "shared_experts"} & {*modules} else 0)
    return float(total)


def head_parameters(model: Model, seq: int) -> float:
    """Of the last product, as often as a token of the sequence meets them."""
    return head_share(model, seq) * model.vocab * (model.embedding_width or model.hidden)


def training_flops(tokens: float, parameters: float, *, recompute: bool = False) -> float:
    """6TP, or 8TP when the forward pass is repeated."""
    return (8.0 if recompute else 6.0) * tokens * parameters


def training_seconds(flops: float, gpus: int, peak: float, utilization: float) -> float:
    """How long a run takes when every GPU sustains that share of its peak."""
    if gpus < 1 or not utilization > 0:
        raise ValueError(f"run: {gpus} GPUs at utilization {utilization:g}; write at least 1 GPU and a share above 0")
    return flops / (gpus * peak * utilization)


def utilization(flops: float, gpus: int, peak: float, seconds: float) -> float:
    """The share of all GPUs' peak that a run of known length used."""
    if gpus < 1 or seconds <= 0:
        raise ValueError(f"run: {gpus} GPUs for {seconds:g} s; write at least 1 GPU and a time above 0")
    return flops / (gpus * peak * seconds)
