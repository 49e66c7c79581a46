"""Tensor names by role, as Hugging Face Llama-like checkpoints spell them.

`{i}` stands for the layer, `{e}` for the expert. `name|part` marks a part of a tensor that the checkpoint
stores fused: it prints as `name.weight[part]`. A family lists only the roles it spells differently.
"""

LAYER = "model.layers.{i}."

LLAMA: dict[str, str] = {
    "token": "model.embed_tokens",
    "position": "model.embed_positions",
    "token_type": "model.embed_token_types",
    "embedding_norm": "model.embed_norm",
    "project_in": "model.project_in",
    "project_out": "model.project_out",
    "input": "model.input",
    "q": LAYER + "self_attn.q_proj",
    "k": LAYER + "self_attn.k_proj",
    "v": LAYER + "self_attn.v_proj",
    "o": LAYER + "self_attn.o_proj",
    "q_norm": LAYER + "self_attn.q_norm",
    "k_norm": LAYER + "self_attn.k_norm",
    "sinks": LAYER + "self_attn.sinks",
    "q_a": LAYER + "self_attn.q_a_proj",
    "q_a_norm": LAYER + "self_attn.q_a_layernorm",
    "q_b": LAYER + "self_attn.q_b_proj",
    "kv_a": LAYER + "self_attn.kv_a_proj_with_mqa",
    "kv_a_norm": LAYER + "self_attn.kv_a_layernorm",
    "kv_b": LAYER + "self_attn.kv_b_proj",
    "mamba": LAYER + "mixer",
    "mamba.in": LAYER + "mixer.in_proj",
    "mamba.conv": LAYER + "mixer.conv1d",
    "mamba.norm": LAYER + "mixer.norm",
    "mamba.out": LAYER + "mixer.out_proj",
    "delta": LAYER + "linear_attn",
    "delta.in": LAYER + "linear_attn.in_proj_qkvz",
    "delta.gates": LAYER + "linear_attn.in_proj_ba",
    "delta.conv": LAYER + "linear_attn.conv1d",
    "delta.norm": LAYER + "linear_attn.norm",
    "delta.out": LAYER + "linear_attn.out_proj",
    "norm.0": LAYER + "input_layernorm",
    "norm.1": LAYER + "post_attention_layernorm",
    "norm.2": LAYER + "pre_feedforward_layernorm",
    "norm.3": LAYER + "post_feedforward_layernorm",
    "gate": LAYER + "mlp.gate_proj",
    "up": LAYER + "mlp.up_proj",
    "down": LAYER + "mlp.down_proj",
    "router": LAYER + "mlp.gate",
    "expert.gate": LAYER + "mlp.experts.{e}.gate_proj",
    "expert.up": LAYER + "mlp.experts.{e}.up_proj",
    "expert.down": LAYER + "mlp.experts.{e}.down_proj",
    "latent.down": LAYER + "mlp.fc1_latent_proj",
    "latent.up": LAYER + "mlp.fc2_latent_proj",
    "shared.gate": LAYER + "mlp.shared_experts.gate_proj",
    "shared.up": LAYER + "mlp.shared_experts.up_proj",
    "shared.down": LAYER + "mlp.shared_experts.down_proj",
    "shared_gate": LAYER + "mlp.shared_expert_gate",
    "final_norm": "model.norm",
    "transform": "lm_head.transform",
    "transform_norm": "lm_head.norm",
    "pooler": "model.pooler",
    "next_sentence": "model.next_sentence",
    "head": "lm_head",
    "mtp.embedding_norm": LAYER + "enorm",
    "mtp.hidden_norm": LAYER + "hnorm",
    "mtp.projection": LAYER + "eh_proj",
    "mtp.final_norm": LAYER + "shared_head.norm",
}


def spelled(base: str, kind: str) -> str:
    name, _, piece = base.partition("|")
    return f"{name}.{kind}[{piece}]" if piece else f"{name}.{kind}"
