"""A model's shape in Megatron's settings, and back."""

from typing import Any

from shardwise.programs.formats._settings import FileSettings
from shardwise.spec.arch import model_from_shape
from shardwise.spec.model import Attention, Experts, FeedForward, Model


def not_stated(model: Model) -> str:
    """What of a model these settings do not reach; empty: nothing."""
    for kind in model.kinds:
        if kind.mamba or kind.delta or kind.attention is None:
            return "layers without attention"
        if kind.attention.compressed or kind.attention.gated or kind.attention.sinks or kind.attention.window:
            return "windowed, gated or compressed attention"
        if kind.experts and (kind.experts.latent or kind.experts.clamped or kind.experts.bias):
            return "experts with biases, clamps or latents"
    if model.inputs != "tokens" or model.streams > 1 or model.pooler or model.token_types or model.embedding_width:
        return "inputs, streams or heads that are not those of a decoder"
    if not model.rotary and not model.positions:
        return "positions that are neither rotary nor learned"
    return ""


def model_settings(model: Model) -> dict[str, Any]:
    attention = next(kind.attention for kind in model.kinds if kind.attention)
    dense = next((kind.feed_forward for kind in model.kinds if kind.feed_forward), None)
    experts = next((kind.experts for kind in model.kinds if kind.experts), None)
    width = dense or FeedForward(width=experts.width if experts else 1, glu=experts.glu if experts else True)
    found: dict[str, Any] = {
        "num_layers": model.layers, "hidden_size": model.hidden, "ffn_hidden_size": width.width,
        "num_attention_heads": attention.heads, "vocab_size": model.vocab,
        "normalization": "RMSNorm" if model.norm == "rms" else "LayerNorm",
        "position_embedding_type": "rope" if model.rotary else "learned_absolute",
        "swiglu": width.glu, "untie_embeddings_and_output_weights": not model.tied,
        "disable_bias_linear": not width.bias, "add_qkv_bias": attention.bias_qkv and not width.bias,
        "qk_layernorm": attention.qk_norm == "head",
    }  # fmt: skip
    found |= _attention(attention, model.hidden)
    if experts is not None:
        found |= _experts(experts, model)
    if model.mtp_layers:
        found["mtp_num_layers"] = model.mtp_layers
    return found


def _attention(attention: Attention, hidden: int) -> dict[str, Any]:
    if attention.kv_lora:
        query = {"q_lora_rank": attention.q_lora} if attention.q_lora else {}
        return {
            "multi_latent_attention": True, **query, "kv_lora_rank": attention.kv_lora,
            "qk_head_dim": attention.head_dim - attention.rope_dim, "qk_pos_emb_head_dim": attention.rope_dim,
            "v_head_dim": attention.v_head_dim or attention.head_dim,
        }  # fmt: skip
    found: dict[str, Any] = {}
    if attention.kv_heads != attention.heads:
        found |= {"group_query_attention": True, "num_query_groups": attention.kv_heads}
    if attention.head_dim * attention.heads != hidden:
        found["kv_channels"] = attention.head_dim
    return found


def _experts(experts: Experts, model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_experts": experts.count, "moe_router_topk": experts.top_k, "moe_ffn_hidden_size": experts.width,
        "moe_grouped_gemm": True,
    }  # fmt: skip
    if experts.shared_width:
        found["moe_shared_expert_intermediate_size"] = experts.shared_width
    sparse = [int(model.kinds[kind].experts is not None) for kind in model.pattern]
    if not all(sparse):
        found["moe_layer_freq"] = str(sparse).replace(" ", "")
    return found


def read_model(settings: FileSettings) -> Model | None:
    """None where the file has no shape, or one that is not read here."""
    needed = ("num_layers", "hidden_size", "num_attention_heads")
    if not all(settings.has(name) for name in needed) or settings.flag("multi_latent_attention"):
        return None
    layers, hidden, heads = (settings.whole(name) for name in needed)
    glu = settings.flag("swiglu")
    width = settings.whole("ffn_hidden_size", int(4 * hidden * 2 / 3) // 64 * 64 if glu else 4 * hidden)
    groups = settings.whole("num_query_groups", heads) if settings.flag("group_query_attention") else heads
    experts = settings.whole("num_experts", 0)
    names = ("vocab_size", "padded_vocab_size", "pad_vocab_size_to")
    vocab = next((settings.whole(name) for name in names if settings.has(name)), 0)
    for name in ("normalization", "norm_epsilon", "position_embedding_type", "rotary_base", "disable_bias_linear",
                 "moe_grouped_gemm"):  # fmt: skip
        settings.text(name)
    if not vocab or settings.has("moe_layer_freq"):
        return None
    return model_from_shape(
        "the file's model", layers, hidden, heads, groups, width, glu, vocab,
        tied=not settings.flag("untie_embeddings_and_output_weights"),
        experts=experts or None, top_k=settings.whole("moe_router_topk", 2) if experts else None,
        head_dim=settings.whole("kv_channels", hidden // heads),
        expert_ffn=settings.whole("moe_ffn_hidden_size", width) if experts else None,
        shared_ffn=settings.whole("moe_shared_expert_intermediate_size", 0, least=0),
        positions=settings.whole("max_position_embeddings", 2048),
    )  # fmt: skip
