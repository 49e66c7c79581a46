"""What the tenth set is drawn from by `draw_published.py`: published configurations, nearly all of which no earlier set
has, and more ways to train than the ninth had. Three kinds of pools beside Hugging Face's: pictures of timm by name,
decoders and experts of published shapes in plain torch (`_trace_programs_plain.py`). `-cut`: fewer layers than
published, where the whole does not fit beside its optimizer."""

from typing import Any

from _published_ninth import TIED, WIDE, bert, gpt2, llama, t5

PLACES = (
    ("decoder", ("bf16", "autocast", "scaled", "checkpointed", "padded", "accumulated", "fused-adam", "replicas",
                 "fsdp1", "fsdp2", "compiled")),
    ("plain", ("autocast", "checkpointed", "fsdp2", "fsdp1", "replicas-accumulated", "scaled", "blocks-compiled",
               "fsdp2-compiled")),
    ("large", ("lora", "lora-checkpointed", "lora-by-hand")),
    ("experts", ("bf16", "checkpointed", "looped")),
    ("plain-experts", ("looped", "grouped")),
    ("pictures", ("autocast", "last", "scaled", "replicas", "checkpointed")),
    ("encoder", ("scaled", "padded")),
    ("encoder-decoder", ("autocast",)),
)  # fmt: skip
BATCHES = {
    "decoder": ((1, 4096), (2, 2048), (4, 1024), (8, 512), (4, 2048), (8, 1024)),
    "plain": ((1, 4096), (2, 2048), (4, 1024), (1, 8192), (4, 2048), (8, 1024)),
    "large": ((1, 2048), (2, 1024), (4, 512), (2, 2048), (4, 1024)),
    "experts": ((1, 4096), (2, 2048), (4, 1024)),
    "plain-experts": ((1, 4096), (2, 2048), (4, 2048)),
    "pictures": ((32, 224), (64, 224), (128, 224)),
    "encoder": ((16, 512), (32, 256), (64, 128)),
    "encoder-decoder": ((8, 512), (16, 256), (32, 128)),
}


def experts(width: int, inner: int, layers: int, heads: int, groups: int, many: int, taken: int) -> dict[str, Any]:
    return llama(width, inner, layers, heads, groups, 32000, num_experts=many, num_experts_per_tok=taken)


PLAIN, TIMM = "Decoder", "timm"
"""kinds that are no class of Hugging Face"""
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
POOL: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "decoder": {
        "smollm2-360m": ("LlamaForCausalLM", llama(960, 2560, 32, 15, 5, 49152, **TIED)),
        "smollm3-3b": ("SmolLM3ForCausalLM", llama(2048, 11008, 36, 16, 4, 128256, pad_token_id=0, **TIED)),
        "falcon3-1b": ("LlamaForCausalLM", llama(2048, 8192, 18, 8, 4, 131072, head_dim=256)),
        "danube3-500m": ("LlamaForCausalLM", llama(1536, 4096, 16, 16, 8, 32000)),
        "gemma-2-2b": ("Gemma2ForCausalLM", llama(2304, 9216, 26, 8, 4, 256000, head_dim=256)),
        "granite-3.3-2b": ("GraniteForCausalLM", llama(2048, 8192, 40, 32, 8, 49159, embedding_multiplier=12.0,
                                                       attention_multiplier=0.015625, residual_multiplier=0.22,
                                                       logits_scaling=8.0, **TIED)),
        "phi-4-mini": ("Phi3ForCausalLM", llama(3072, 8192, 32, 24, 8, 200064, pad_token_id=0, **TIED)),
        "command-r7b-cut": ("Cohere2ForCausalLM", llama(4096, 14336, 8, 32, 8, 256000, sliding_window=4096, **TIED)),
        "ernie-4.5-0.3b": ("Ernie4_5ForCausalLM", llama(1024, 3072, 18, 16, 2, 103424, **TIED, **WIDE)),
        "exaone-4.0-1.2b": ("Exaone4ForCausalLM", llama(2048, 4096, 30, 32, 8, 102400, sliding_window=None, **TIED)),
        "hunyuan-0.5b": ("HunYuanDenseV1ForCausalLM", llama(1024, 3584, 24, 16, 8, 120818, **TIED, **WIDE)),
        "apertus-8b-cut": ("ApertusForCausalLM", llama(4096, 21504, 8, 32, 8, 131072)),
        "ministral-3-3b": ("Ministral3ForCausalLM", llama(3072, 9216, 26, 32, 8, 131072, **TIED, **WIDE)),
        "glm-edge-1.5b": ("GlmForCausalLM", llama(2048, 6144, 28, 16, 4, 59264, pad_token_id=0, **WIDE)),
        "gpt2": ("GPT2LMHeadModel", gpt2(768, 12, 12)),
        "cerebras-gpt-590m": ("GPT2LMHeadModel", gpt2(1536, 18, 12) | {"n_positions": 2048}),
        "gpt-neo-1.3b": ("GPTNeoForCausalLM", {"hidden_size": 2048, "num_layers": 24, "num_heads": 16,
                                               "attention_types": [[["global", "local"], 12]], "vocab_size": 50257}),
        "opt-2.7b": ("OPTForCausalLM", {"hidden_size": 2560, "ffn_dim": 10240, "num_hidden_layers": 32,
                                        "num_attention_heads": 32, "vocab_size": 50272, "word_embed_proj_dim": 2560}),
    },
    "plain": {
        "plain-llama-3.2-1b": (PLAIN, llama(2048, 8192, 16, 32, 8, 128256)),
        "plain-llama-3.1-8b-cut": (PLAIN, llama(4096, 14336, 6, 32, 8, 128256)),
        "plain-llama-2-7b-cut": (PLAIN, llama(4096, 11008, 8, 32, 32, 32000)),
        "plain-mistral-7b-cut": (PLAIN, llama(4096, 14336, 8, 32, 8, 32768)),
        "plain-tinyllama-1.1b": (PLAIN, llama(2048, 5632, 22, 32, 4, 32000)),
        "plain-qwen3-0.6b": (PLAIN, llama(1024, 3072, 28, 16, 8, 151936, **WIDE, qk_norm=True)),
        "plain-qwen3-4b-cut": (PLAIN, llama(2560, 9728, 10, 32, 8, 151936, **WIDE, qk_norm=True)),
        "plain-llama-150m": (PLAIN, llama(768, 2048, 12, 12, 12, 50304)),
    },
    "large": {
        "qwen3-8b": ("Qwen3ForCausalLM", llama(4096, 12288, 36, 32, 8, 151936, **WIDE)),
        "qwen2.5-3b": ("Qwen2ForCausalLM", llama(2048, 11008, 36, 16, 2, 151936, **TIED)),
        "gemma-2-9b": ("Gemma2ForCausalLM", llama(3584, 14336, 42, 16, 8, 256000, head_dim=256)),
        "gemma-3-4b": ("Gemma3ForCausalLM", llama(2560, 10240, 34, 8, 4, 262208, head_dim=256, sliding_window=1024)),
        "olmo-2-7b": ("Olmo2ForCausalLM", llama(4096, 11008, 32, 32, 32, 100352)),
        "granite-3.3-8b": ("GraniteForCausalLM", llama(4096, 12800, 40, 32, 8, 49159)),
        "phi-4": ("Phi3ForCausalLM", llama(5120, 17920, 40, 40, 10, 100352, pad_token_id=0)),
        "ministral-8b": ("MistralForCausalLM", llama(4096, 12288, 36, 32, 8, 131072, sliding_window=None)),
        "yi-6b": ("LlamaForCausalLM", llama(4096, 11008, 32, 32, 4, 64000)),
        "pythia-2.8b": ("GPTNeoXForCausalLM", bert(2560, 32, 32, 50304)),
    },
    "experts": {
        "qwen3-30b-a3b-cut": ("Qwen3MoeForCausalLM", llama(2048, 6144, 5, 32, 4, 151936, moe_intermediate_size=768,
                                                           num_experts=128, num_experts_per_tok=8, **WIDE)),
        "deepseek-v2-lite-cut": ("DeepseekV2ForCausalLM", llama(
            2048, 10944, 5, 16, 16, 102400, moe_intermediate_size=1408, n_routed_experts=64, num_experts_per_tok=6,
            n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128, topk_method="greedy")),
        "phi-3.5-moe-cut": ("PhimoeForCausalLM", llama(4096, 6400, 2, 32, 8, 32064, num_local_experts=16,
                                                       num_experts_per_tok=2)),
        "glm-4.5-air-cut": ("Glm4MoeForCausalLM", llama(4096, 10944, 3, 96, 8, 151552, moe_intermediate_size=1408,
                                                        n_routed_experts=128, num_experts_per_tok=8,
                                                        n_shared_experts=1, first_k_dense_replace=1, **WIDE)),
        "ernie-4.5-21b-a3b-cut": ("Ernie4_5_MoeForCausalLM", llama(
            2560, 12288, 5, 20, 4, 103424, moe_intermediate_size=1536, moe_num_experts=64, moe_k=6,
            moe_num_shared_experts=2, moe_layer_start_index=1)),
        "granite-3.1-3b-a800m-cut": ("GraniteMoeForCausalLM", llama(1536, 512, 16, 24, 8, 49155,
                                                                    num_local_experts=40, num_experts_per_tok=8)),
    },
    "plain-experts": {
        "plain-mixtral-like": (PLAIN, experts(2048, 7168, 6, 16, 8, 8, 2)),
        "plain-olmoe-like": (PLAIN, experts(2048, 1024, 6, 16, 16, 64, 8)),
        "plain-deepseek-like": (PLAIN, experts(2048, 1408, 6, 16, 16, 64, 6) | {"num_shared_experts": 2}),
    },
    "pictures": {name: (TIMM, {}) for name in (
        "vit_small_patch16_224", "vit_large_patch16_224", "vit_base_patch16_siglip_224", "beit_base_patch16_224",
        "convnext_tiny", "convnext_small", "convnext_large", "swin_tiny_patch4_window7_224",
        "swin_small_patch4_window7_224", "resnet101", "wide_resnet50_2", "efficientnetv2_rw_s")},
    "encoder": {
        "modernbert-large": ("ModernBertForMaskedLM", {"hidden_size": 1024, "intermediate_size": 2624,
                                                       "num_hidden_layers": 28, "num_attention_heads": 16,
                                                       "vocab_size": 50368}),
        "xlm-roberta-large": ("XLMRobertaForMaskedLM", bert(1024, 24, 16, 250002, max_position_embeddings=514)),
        "bert-large-classified": ("BertForSequenceClassification", bert(1024, 24, 16, 30522)),
        "electra-base-classified": ("ElectraForSequenceClassification", bert(768, 12, 12, 30522, embedding_size=768)),
    },
    "encoder-decoder": {
        "t5-base": ("T5ForConditionalGeneration", t5(768, 3072, 12, 12)),
        "byt5-small": ("T5ForConditionalGeneration", t5(1472, 3584, 12, 6, num_decoder_layers=4, **GATED)
                       | {"vocab_size": 384}),
        "mt5-base": ("MT5ForConditionalGeneration", t5(768, 2048, 12, 12, **GATED) | {"vocab_size": 250112}),
    },
}  # fmt: skip
LONGEST = {"gpt2": 1024}
"""positions, where a table ends before the longest batch"""
