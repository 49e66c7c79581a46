"""Published configurations that users of Hugging Face train, and the ways they do: `draw_published.py` draws the ninth
set from them. `-cut`: fewer layers than published, where the whole does not fit beside its optimizer."""

from typing import Any

PLACES = (
    ("decoder", ("bf16", "bf16", "bf16", "autocast", "autocast", "autocast", "checkpointed", "checkpointed", "padded",
                 "accumulated", "plain-attention", "fused-adam", "replicas", "replicas", "fsdp1", "fsdp2")),
    ("large", ("lora", "lora", "lora-checkpointed", "lora-checkpointed", "lora-autocast")),
    ("experts", ("bf16", "bf16", "checkpointed")),
    ("encoder", ("autocast", "padded")),
    ("encoder-decoder", ("bf16", "autocast")),
    ("decoder", ("compiled", "compiled", "compiled")),
)  # fmt: skip
BATCHES = {
    "decoder": ((1, 4096), (2, 2048), (4, 1024), (8, 512), (16, 256), (4, 2048), (8, 1024)),
    "large": ((1, 2048), (2, 1024), (4, 512), (2, 2048), (4, 1024)),
    "experts": ((1, 4096), (2, 2048), (4, 1024)),
    "encoder": ((16, 512), (32, 256), (64, 128)),
    "encoder-decoder": ((8, 512), (16, 256), (32, 128)),
}


def llama(width: int, inner: int, layers: int, heads: int, groups: int, words: int, **more: Any) -> dict[str, Any]:
    return {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": words, **more}  # fmt: skip


def bert(width: int, layers: int, heads: int, words: int, **more: Any) -> dict[str, Any]:
    return {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers,
            "num_attention_heads": heads, "vocab_size": words, **more}  # fmt: skip


def gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"n_embd": width, "n_layer": layers, "n_head": heads, "vocab_size": 50257}


def t5(width: int, inner: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return {"d_model": width, "d_ff": inner, "d_kv": 64, "num_layers": layers, "num_heads": heads, "vocab_size": 32128,
            "decoder_start_token_id": 0, "pad_token_id": 0, **more}  # fmt: skip


TIED = {"tie_word_embeddings": True}
WIDE = {"head_dim": 128}
POOL: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "decoder": {
        "llama-3.2-1b": ("LlamaForCausalLM", llama(2048, 8192, 16, 32, 8, 128256, **TIED)),
        "tinyllama-1.1b": ("LlamaForCausalLM", llama(2048, 5632, 22, 32, 4, 32000)),
        "smollm2-135m": ("LlamaForCausalLM", llama(576, 1536, 30, 9, 3, 49152, **TIED)),
        "smollm2-360m": ("LlamaForCausalLM", llama(960, 2560, 32, 15, 5, 49152, **TIED)),
        "smollm2-1.7b": ("LlamaForCausalLM", llama(2048, 8192, 24, 32, 32, 49152, **TIED)),
        "qwen2.5-0.5b": ("Qwen2ForCausalLM", llama(896, 4864, 24, 14, 2, 151936, **TIED)),
        "qwen2.5-1.5b": ("Qwen2ForCausalLM", llama(1536, 8960, 28, 12, 2, 151936, **TIED)),
        "qwen3-0.6b": ("Qwen3ForCausalLM", llama(1024, 3072, 28, 16, 8, 151936, **TIED, **WIDE)),
        "qwen3-1.7b": ("Qwen3ForCausalLM", llama(2048, 6144, 28, 16, 8, 151936, **TIED, **WIDE)),
        "gemma-2b": ("GemmaForCausalLM", llama(2048, 16384, 18, 8, 1, 256000, head_dim=256)),
        "gemma-2-2b": ("Gemma2ForCausalLM", llama(2304, 9216, 26, 8, 4, 256000, head_dim=256)),
        "gemma-3-270m": ("Gemma3ForCausalLM", llama(640, 2048, 18, 4, 1, 262144, head_dim=256, sliding_window=512)),
        "gemma-3-1b": ("Gemma3ForCausalLM", llama(1152, 6912, 26, 4, 1, 262144, head_dim=256, sliding_window=512)),
        "gpt2": ("GPT2LMHeadModel", gpt2(768, 12, 12)),
        "gpt2-medium": ("GPT2LMHeadModel", gpt2(1024, 24, 16)),
        "gpt2-large": ("GPT2LMHeadModel", gpt2(1280, 36, 20)),
        "pythia-160m": ("GPTNeoXForCausalLM", bert(768, 12, 12, 50304)),
        "pythia-410m": ("GPTNeoXForCausalLM", bert(1024, 24, 16, 50304)),
        "pythia-1b": ("GPTNeoXForCausalLM", bert(2048, 16, 8, 50304)),
        "phi-1.5": ("PhiForCausalLM", bert(2048, 24, 32, 51200, partial_rotary_factor=0.5)),
        "opt-350m": ("OPTForCausalLM", {"hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24,
                                        "num_attention_heads": 16, "vocab_size": 50272, "word_embed_proj_dim": 512,
                                        "do_layer_norm_before": False}),
        "bloom-560m": ("BloomForCausalLM", {"hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880}),
        "olmo-2-1b": ("Olmo2ForCausalLM", llama(2048, 8192, 16, 16, 16, 100352)),
    },
    "large": {
        "llama-3.2-3b": ("LlamaForCausalLM", llama(3072, 8192, 28, 24, 8, 128256, **TIED)),
        "llama-3.1-8b": ("LlamaForCausalLM", llama(4096, 14336, 32, 32, 8, 128256)),
        "mistral-7b": ("MistralForCausalLM", llama(4096, 14336, 32, 32, 8, 32768, sliding_window=None)),
        "qwen2.5-3b": ("Qwen2ForCausalLM", llama(2048, 11008, 36, 16, 2, 151936, **TIED)),
        "qwen2.5-7b": ("Qwen2ForCausalLM", llama(3584, 18944, 28, 28, 4, 152064)),
        "qwen3-4b": ("Qwen3ForCausalLM", llama(2560, 9728, 36, 32, 8, 151936, **TIED, **WIDE)),
        "gemma-7b": ("GemmaForCausalLM", llama(3072, 24576, 28, 16, 16, 256000, head_dim=256)),
        "phi-3-mini": ("Phi3ForCausalLM", llama(3072, 8192, 32, 32, 32, 32064, pad_token_id=0)),
        "falcon-7b": ("FalconForCausalLM", {"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
                                            "vocab_size": 65024, "multi_query": True, "parallel_attn": True}),
        "pythia-2.8b": ("GPTNeoXForCausalLM", bert(2560, 32, 32, 50304)),
    },
    "experts": {
        "mixtral-8x7b-cut": ("MixtralForCausalLM", llama(4096, 14336, 2, 32, 8, 32000, num_local_experts=8,
                                                          num_experts_per_tok=2)),
        "qwen3-30b-a3b-cut": ("Qwen3MoeForCausalLM", llama(2048, 6144, 5, 32, 4, 151936, moe_intermediate_size=768,
                                                            num_experts=128, num_experts_per_tok=8, **WIDE)),
        "qwen1.5-moe-a2.7b-cut": ("Qwen2MoeForCausalLM", llama(
            2048, 5632, 5, 16, 16, 151936, moe_intermediate_size=1408, shared_expert_intermediate_size=5632,
            num_experts=60, num_experts_per_tok=4)),
        "olmoe-1b-7b-cut": ("OlmoeForCausalLM", llama(2048, 1024, 8, 16, 16, 50304, num_experts=64,
                                                       num_experts_per_tok=8)),
        "granite-3.1-3b-a800m-cut": ("GraniteMoeForCausalLM", llama(1536, 512, 16, 24, 8, 49152,
                                                                     num_local_experts=40, num_experts_per_tok=8)),
        "gpt-oss-20b-cut": ("GptOssForCausalLM", llama(2880, 2880, 4, 64, 8, 201088, num_local_experts=32,
                                                        num_experts_per_tok=4, head_dim=64)),
    },
    "encoder": {
        "bert-base": ("BertForMaskedLM", bert(768, 12, 12, 30522)),
        "roberta-large": ("RobertaForMaskedLM", bert(1024, 24, 16, 50265, max_position_embeddings=514)),
        "modernbert-large": ("ModernBertForMaskedLM", {"hidden_size": 1024, "intermediate_size": 2624,
                                                       "num_hidden_layers": 28, "num_attention_heads": 16,
                                                       "vocab_size": 50368}),
    },
    "encoder-decoder": {
        "t5-base": ("T5ForConditionalGeneration", t5(768, 3072, 12, 12)),
        "flan-t5-large": ("T5ForConditionalGeneration", t5(1024, 2816, 24, 16, feed_forward_proj="gated-gelu")),
        "bart-base": ("BartForConditionalGeneration", {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6,
                                                       "encoder_attention_heads": 12, "decoder_attention_heads": 12,
                                                       "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
                                                       "vocab_size": 50265}),
    },
}  # fmt: skip
LONGEST = {"gpt2": 1024, "gpt2-medium": 1024, "gpt2-large": 1024}
"""positions, where a table ends before the longest batch; others of these kinds end at 2,048 or later"""
