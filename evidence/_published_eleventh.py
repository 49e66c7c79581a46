"""What the eleventh set is drawn from by `draw_published.py`, in the way of the tenth: what the tenth's draw left of
its models, and published configurations that no set had. The ways to train are the tenth's. `-cut`: fewer layers than
published, where the whole does not fit beside its optimizer."""

import json
from pathlib import Path
from typing import Any

import _published_tenth as tenth
from _published_ninth import POOL as NINTH_POOL
from _published_ninth import TIED, WIDE, bert, llama, t5
from _published_tenth import GATED, PLAIN, TIMM, experts

BATCHES = tenth.BATCHES
LONGEST: dict[str, int] = {}
PLACES = (
    ("decoder", ("bf16", "bf16", "autocast", "scaled", "checkpointed", "padded", "accumulated", "fused-adam",
                 "replicas", "fsdp1", "fsdp2", "compiled")),
    ("plain", ("autocast", "bf16", "checkpointed", "fsdp2", "fsdp1", "replicas-accumulated", "blocks-compiled")),
    ("large", ("lora", "lora", "lora-checkpointed", "lora-by-hand")),
    ("experts", ("bf16", "checkpointed", "looped")),
    ("plain-experts", ("looped", "grouped")),
    ("pictures", ("autocast", "last", "replicas", "checkpointed")),
    ("encoder", ("autocast", "padded")),
    ("encoder-decoder", ("autocast", "bf16")),
)  # fmt: skip
Pool = dict[str, tuple[str, dict[str, Any]]]
DRAWN = Path(__file__).resolve().parent.parent / "evidence" / "accuracy" / "h200_programs_tenth_drawn.json"


def _left(pool: str) -> Pool:
    """Of the tenth's."""
    taken = {one["name"].removesuffix("-" + one["way"]) for one in json.loads(DRAWN.read_text("utf-8"))["programs"]}
    return {name: made for name, made in tenth.POOL[pool].items() if name not in taken}


POOL: dict[str, Pool] = {
    "decoder": _left("decoder") | {
        "exaone-4.0-1.2b": ("Exaone4ForCausalLM", llama(2048, 4096, 30, 32, 8, 102400, sliding_window=None,
                                                        layer_types=["full_attention"] * 30, **TIED)),
        "olmo-1b-hf": ("OlmoForCausalLM", llama(2048, 8192, 16, 16, 16, 50304, **TIED)),
        "stablelm-2-1.6b": ("StableLmForCausalLM", llama(2048, 5632, 24, 32, 32, 100352, partial_rotary_factor=0.25)),
        "starcoder2-3b": ("Starcoder2ForCausalLM", llama(3072, 12288, 30, 24, 2, 49152, sliding_window=4096)),
        "llama-160m": ("LlamaForCausalLM", llama(768, 3072, 12, 12, 12, 32000)),
        "nemotron-mini-4b-cut": ("NemotronForCausalLM", llama(3072, 9216, 12, 24, 8, 256000, **WIDE)),
        "arcee-4.5b-cut": ("ArceeForCausalLM", llama(2560, 18432, 12, 20, 4, 128000)),
        "helium-1-2b": ("HeliumForCausalLM", llama(2560, 7040, 24, 20, 20, 48000, **WIDE)),
        "mobilellm-350m": ("LlamaForCausalLM", llama(960, 2560, 32, 15, 5, 32000, **TIED)),
    },
    "plain": {
        "plain-llama-3.2-3b-cut": (PLAIN, llama(3072, 8192, 12, 24, 8, 128256)),
        "plain-smollm2-360m": (PLAIN, llama(960, 2560, 32, 15, 5, 49152)),
        "plain-qwen2.5-1.5b-cut": (PLAIN, llama(1536, 8960, 14, 12, 2, 151936)),
        "plain-olmo-1b": (PLAIN, llama(2048, 8192, 16, 16, 16, 50304)),
        "plain-llama-1.3b": (PLAIN, llama(2048, 5504, 24, 16, 16, 32000)),
        "plain-llama-400m": (PLAIN, llama(1024, 2816, 24, 16, 16, 32000)),
        "plain-qwen3-1.7b-cut": (PLAIN, llama(2048, 6144, 14, 16, 8, 151936, **WIDE, qk_norm=True)),
        "plain-llama-3-70b-cut": (PLAIN, llama(8192, 28672, 2, 64, 8, 128256)),
    },
    "large": _left("large") | {
        "glm-4-9b": ("Glm4ForCausalLM", llama(4096, 13696, 40, 32, 2, 151552, pad_token_id=0, **WIDE)),
        "mistral-nemo-12b": ("MistralForCausalLM", llama(5120, 14336, 40, 32, 8, 131072, sliding_window=None, **WIDE)),
        "llama-2-7b": ("LlamaForCausalLM", llama(4096, 11008, 32, 32, 32, 32000)),
    },
    "experts": _left("experts") | {
        "olmoe-1b-7b-cut": NINTH_POOL["experts"]["olmoe-1b-7b-cut"],
        "granite-3.1-1b-a400m": ("GraniteMoeForCausalLM", llama(1024, 512, 24, 16, 8, 49155, num_local_experts=32,
                                                                num_experts_per_tok=8)),
    },
    "plain-experts": _left("plain-experts") | {
        "plain-granite-like": (PLAIN, experts(1024, 512, 8, 16, 8, 32, 4)),
        "plain-phi-like": (PLAIN, experts(2048, 3200, 5, 16, 8, 16, 2)),
    },
    "pictures": _left("pictures") | {name: (TIMM, {}) for name in (
        "resnet50", "deit3_base_patch16_224", "regnety_032", "efficientnet_b0", "mobilenetv3_large_100",
        "convnextv2_base", "vit_base_patch32_224")},
    "encoder": _left("encoder") | {
        "roberta-base-classified": ("RobertaForSequenceClassification",
                                    bert(768, 12, 12, 50265, max_position_embeddings=514)),
        "modernbert-base": ("ModernBertForMaskedLM", {"hidden_size": 768, "intermediate_size": 1152,
                                                      "num_hidden_layers": 22, "num_attention_heads": 12,
                                                      "vocab_size": 50368}),
    },
    "encoder-decoder": _left("encoder-decoder") | {
        "flan-t5-base": ("T5ForConditionalGeneration", t5(768, 2048, 12, 12, **GATED)),
    },
}  # fmt: skip
