"""Families whose blocks are not all of one kind, or not built of heads alone: latent attention, sinks, experts in one
tensor, scans, two stacks, windows, shared layers. As small programs of transformers; for `auto.py`."""

from typing import Any

import torch
from torch import Tensor

from _auto_programs import EXPERTS, GROUPED, QUIET, SAMPLES, TOKENS, WIDE, WORDS, Program, _of, _program

LATENT = {**GROUPED, **QUIET, "num_key_value_heads": 8, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 4,
          "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
          "topk_group": 1, "n_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1}  # fmt: skip
TWO = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 128}
HYBRID = {"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}


def _pairs() -> dict[str, Any]:
    return {"input_ids": torch.randint(3, WORDS, (SAMPLES, TOKENS)), "pixel_values": torch.randn(SAMPLES, 3, 16, 16),
            "return_loss": True}  # fmt: skip


def _speech() -> dict[str, Tensor]:
    return {"input_features": torch.randn(SAMPLES, 8, 2 * TOKENS), "labels": torch.randint(3, WORDS, (SAMPLES, TOKENS))}


HARD = {
    each.name: each
    for each in (
        _program("deepseek-v3", "experts", "DeepseekV3", LATENT),
        _program("gpt-oss", "experts", "GptOss", {**EXPERTS, "head_dim": 8, "sliding_window": 8}),
        _program("llama4", "experts", "Llama4", {**EXPERTS, "head_dim": 8, "intermediate_size_mlp": 128,
                                                 "interleave_moe_layer_step": 2, "attention_chunk_size": 8},
                 config="Llama4TextConfig"),
        _program("qwen3-next", "experts", "Qwen3Next", {
            **EXPERTS, "head_dim": 8, "shared_expert_intermediate_size": 32, "linear_num_value_heads": 4,
            "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "full_attention_interval": 2}),
        _program("jamba", "experts", "Jamba", {**EXPERTS, **HYBRID, "attn_layer_period": 2, "attn_layer_offset": 1,
                                               "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_dt_rank": 8,
                                               "use_mamba_kernels": False}),
        Program("clip", "two stacks", _of("CLIPModel", "CLIPConfig", projection_dim=32, text_config={
            **TWO, "vocab_size": WORDS, "max_position_embeddings": 32, "eos_token_id": 2}, vision_config={
            **TWO, "image_size": 16, "patch_size": 4}), _pairs),
        Program("whisper", "encoder-decoder", _of(
            "WhisperForConditionalGeneration", "WhisperConfig", d_model=64, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=128, decoder_ffn_dim=128,
            vocab_size=WORDS, num_mel_bins=8, max_source_positions=TOKENS, max_target_positions=32,
            decoder_start_token_id=1, dropout=0.0, **QUIET), _speech),
        _program("swin", "vision", "Swin", {"image_size": 16, "patch_size": 2, "embed_dim": 32, "depths": [2, 2],
                                            "num_heads": [4, 8], "window_size": 4, "num_labels": 10},
                 "ForImageClassification"),
        _program("deberta", "encoder", "DebertaV2", {
            **WIDE, "max_position_embeddings": 32, "pad_token_id": 0, "relative_attention": True,
            "position_buckets": 8, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0, "norm_rel_ebd": "layer_norm",
            "share_att_key": True}, "ForMaskedLM"),
        _program("albert", "encoder", "Albert", {**WIDE, "embedding_size": 32, "max_position_embeddings": 32,
                                                 "pad_token_id": 0}, "ForMaskedLM"),
    )
}  # fmt: skip
