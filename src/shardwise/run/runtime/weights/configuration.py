"""config.json of what the runtime trains, and whether one found beside weights means the same arithmetic."""

from collections.abc import Mapping
from typing import Any

from shardwise.spec.arch import model_from_config
from shardwise.spec.model import Model

_CLASS = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "mixtral": "MixtralForCausalLM", "gpt2": "GPT2LMHeadModel",
}  # fmt: skip


def configuration(model: Model, seq: int) -> dict[str, Any]:
    """As transformers reads it; `seq`: how long the sequences were, if longer than the model states."""
    found = _gpt2(model) if model.family == "gpt2" else _llama(model, seq)
    return {
        "architectures": [_CLASS[model.family]], "model_type": model.family, "vocab_size": model.vocab,
        "tie_word_embeddings": model.tied, "torch_dtype": "float32", **found,
    }  # fmt: skip


def _llama(model: Model, seq: int) -> dict[str, Any]:
    layer = model.kinds[0]
    a, ff, experts = layer.attention, layer.feed_forward, layer.experts
    assert a is not None
    found: dict[str, Any] = {
        "hidden_size": model.hidden, "num_hidden_layers": model.layers, "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim, "hidden_act": "silu",
        "rms_norm_eps": model.norm_epsilon, "rope_theta": model.rope_theta,
        "max_position_embeddings": max(model.context, seq),
    }  # fmt: skip
    if ff is not None:
        found |= {"intermediate_size": ff.width}
    if experts is not None:
        found |= {
            "intermediate_size": experts.width, "num_local_experts": experts.count,
            "num_experts_per_tok": experts.top_k, "router_aux_loss_coef": 0.01,
        }  # fmt: skip
    if model.family == "llama":
        found |= {"attention_bias": a.bias_qkv, "mlp_bias": ff is not None and ff.bias}
    if model.family in ("mistral", "mixtral"):
        found |= {"sliding_window": None}
    return found


def _gpt2(model: Model) -> dict[str, Any]:
    layer = model.kinds[0]
    assert layer.attention is not None
    assert layer.feed_forward is not None
    return {
        "n_embd": model.hidden, "n_layer": model.layers, "n_head": layer.attention.heads,
        "n_inner": layer.feed_forward.width, "n_positions": model.positions, "activation_function": "gelu",
        "layer_norm_epsilon": model.norm_epsilon, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip


def same_arithmetic(model: Model, config: Mapping[str, object]) -> None:
    """What shapes do not show: positions, norms, activations."""
    theirs = model_from_config(config, "init")
    for field, name in (("rope_theta", "rope_theta"), ("norm_epsilon", "epsilon of the norms")):
        ours, found = getattr(model, field), getattr(theirs, field)
        if ours != found and (field != "rope_theta" or model.rotary):
            raise ValueError(
                f"init: {name} is {found:g} there and {ours:g} in the model; write that config.json as the model"
            )
    act, known = config.get("hidden_act", config.get("activation_function", "")), ("silu", "swish", "gelu", "")
    if model.family == "gpt2":
        act = config.get("activation_function", "gelu_new")
    if act not in known:
        raise ValueError(f"init: activation {act!r} cannot be run; write gelu there, which differs by less than 1e-3")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default")) if isinstance(scaling, Mapping) else "default"
    if kind != "default":
        raise ValueError(f"init: rope_type {kind!r} cannot be run; write weights with plain rotary positions")
