"""Training steps as people write them, of public architectures: configurations of the published models, random weights,
nothing downloaded. `trace_programs.py` predicts them on a CPU and measures them on a GPU.

Needs transformers 5, peft and timm.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

DEVICE = "cuda"
Batch = Any


@dataclass(frozen=True)
class Program:
    """`build` gives what `step` takes first, `batch` what it takes last."""

    family: str
    build: Callable[[], tuple[Any, ...]]
    batch: Callable[[], Batch]
    step: Callable[..., None]


PROGRAMS: dict[str, Program] = {}


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(DEVICE):
            yield
    finally:
        torch.set_default_dtype(before)


def _made(kind: str, settings: dict[str, Any], precision: str) -> nn.Module:
    """A transformers model by the name of its class: `LlamaForCausalLM` has a `LlamaConfig`."""
    import transformers

    base = kind.partition("For")[0].removesuffix("Model").removesuffix("LMHead")
    config = getattr(transformers, settings.pop("config", base + "Config"))(**settings)
    with _default(torch.bfloat16 if precision == "bf16" else torch.float32):
        model: nn.Module = getattr(transformers, kind)(config)
    return model.to(DEVICE).train()


def _language_step(autocast: bool, pieces: int, clip: bool) -> Callable[..., None]:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: dict[str, Tensor]) -> None:
        for _ in range(pieces):
            with torch.autocast("cuda", torch.bfloat16) if autocast else nullcontext():
                loss = model(**inputs).loss
            (loss / pieces).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def language(
    name: str, family: str, kind: str, rows: int, seq: int, *, precision: str = "bf16", checkpoint: bool = False,
    lora: bool = False, pieces: int = 1, clip: bool = False, padded: bool = False, compiled: bool = False,
    adam: dict[str, Any] | None = None, extra: Callable[[], dict[str, Tensor]] | None = None, **settings: Any,
) -> None:  # fmt: skip
    """A model that gives its own loss of tokens and labels."""

    def build() -> tuple[Any, ...]:
        model = _made(kind, {"use_cache": False, **settings}, precision)
        if checkpoint:
            model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        if lora:
            from peft import LoraConfig, get_peft_model

            model.enable_input_require_grads() if checkpoint else None  # type: ignore[operator]
            model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
        if compiled:
            model = torch.compile(model)  # type: ignore[assignment]
        trained = [p for p in model.parameters() if p.requires_grad]
        return model, torch.optim.AdamW(trained, lr=1e-5, **(adam or {}))

    def batch() -> Batch:
        tokens = torch.randint(0, settings["vocab_size"], (rows, seq), device=DEVICE)
        inputs = {"input_ids": tokens, "labels": tokens}
        if padded:
            inputs["attention_mask"] = torch.ones_like(tokens)
        return inputs | (extra() if extra else {})

    PROGRAMS[name] = Program(family, build, batch, _language_step(precision == "autocast", pieces, clip))


def pictures(name: str, family: str, made: Callable[[], nn.Module], rows: int, size: int = 224, *,
             last: bool = False, classes: int = 1000) -> None:  # fmt: skip
    """Classification under autocast, as timm's own script does it."""

    def build() -> tuple[Any, ...]:
        model = made().to(DEVICE).train()
        if last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model, torch.optim.AdamW(model.parameters(), lr=1e-4)

    def batch() -> Batch:
        images = torch.randn(rows, 3, size, size, device=DEVICE)
        if last:
            images = images.to(memory_format=torch.channels_last)
        return images, torch.randint(0, classes, (rows,), device=DEVICE)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, given: tuple[Tensor, Tensor]) -> None:
        images, labels = given
        with torch.autocast("cuda", torch.bfloat16):
            found = model(images)
            loss = F.cross_entropy(found if isinstance(found, Tensor) else found.logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    PROGRAMS[name] = Program(family, build, batch, step)


def _timm(name: str) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        import timm

        with torch.device(DEVICE):
            model: nn.Module = timm.create_model(name)
        return model

    return made


def grouped() -> None:
    """A process group of one, where a program needs one."""
    if not dist.is_initialized():
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "29511")
        dist.init_process_group("nccl", rank=0, world_size=1)


# Language models, as Hugging Face writes them.
language("gpt2-medium", "gpt2", "GPT2LMHeadModel", 8, 1024, precision="autocast", n_embd=1024, n_layer=24, n_head=16,
         vocab_size=50257)  # fmt: skip
language("gpt2-large-bf16", "gpt2", "GPT2LMHeadModel", 8, 1024, n_embd=1280, n_layer=36, n_head=20, vocab_size=50257)
language("pythia-1.4b", "gpt-neox", "GPTNeoXForCausalLM", 4, 2048, hidden_size=2048, num_hidden_layers=24,
         num_attention_heads=16, intermediate_size=8192, vocab_size=50304)  # fmt: skip
LLAMA_1B = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True}  # fmt: skip
language("llama-1b-autocast", "llama", "LlamaForCausalLM", 4, 2048, precision="autocast", **LLAMA_1B)
language("llama-1b-padded-accumulated", "llama", "LlamaForCausalLM", 2, 4096, padded=True, pieces=4, clip=True,
         **LLAMA_1B)  # fmt: skip
language("llama-8b-checkpointed", "llama", "LlamaForCausalLM", 2, 4096, checkpoint=True, hidden_size=4096,
         intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
         vocab_size=128256)  # fmt: skip
language("mistral-7b-lora", "lora", "MistralForCausalLM", 2, 2048, lora=True, hidden_size=4096,
         intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
         vocab_size=32768, sliding_window=None)  # fmt: skip
language("gemma-2b", "gemma", "GemmaForCausalLM", 2, 2048, hidden_size=2048, intermediate_size=16384,
         num_hidden_layers=18, num_attention_heads=8, num_key_value_heads=1, head_dim=256,
         vocab_size=256000)  # fmt: skip
language("gemma2-2b", "gemma", "Gemma2ForCausalLM", 2, 2048, hidden_size=2304, intermediate_size=9216,
         num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
         vocab_size=256000)  # fmt: skip
language("qwen3-1.7b", "qwen", "Qwen3ForCausalLM", 4, 2048, hidden_size=2048, intermediate_size=6144,
         num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936,
         tie_word_embeddings=True)  # fmt: skip
language("qwen2.5-1.5b-fused-adam", "qwen", "Qwen2ForCausalLM", 4, 2048, precision="autocast", adam={"fused": True},
         hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
         vocab_size=151936, tie_word_embeddings=True)  # fmt: skip
language("phi-3-mini", "phi", "Phi3ForCausalLM", 2, 2048, hidden_size=3072, intermediate_size=8192,
         num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32, vocab_size=32064,
         pad_token_id=0)  # fmt: skip
language("opt-1.3b", "opt", "OPTForCausalLM", 4, 2048, precision="autocast", hidden_size=2048, ffn_dim=8192,
         num_hidden_layers=24, num_attention_heads=32, vocab_size=50272, word_embed_proj_dim=2048)  # fmt: skip
language("bloom-1b1", "bloom", "BloomForCausalLM", 4, 2048, hidden_size=1536, n_layer=24, n_head=16, vocab_size=250880)
language("t5-large", "t5", "T5ForConditionalGeneration", 16, 512, config="T5Config", d_model=1024, d_ff=4096,
         num_layers=24, num_heads=16, vocab_size=32128, decoder_start_token_id=0, pad_token_id=0)  # fmt: skip
language("bert-large", "bert", "BertForMaskedLM", 32, 512, config="BertConfig", precision="autocast", padded=True,
         hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
         vocab_size=30522)  # fmt: skip
language("mixtral-cut", "experts", "MixtralForCausalLM", 4, 2048, hidden_size=2048, intermediate_size=7168,
         num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8, num_local_experts=8,
         num_experts_per_tok=2, vocab_size=32000, experts_implementation="grouped_mm")  # fmt: skip
language("qwen3-moe-cut", "experts", "Qwen3MoeForCausalLM", 4, 2048, hidden_size=2048, intermediate_size=6144,
         moe_intermediate_size=768, num_hidden_layers=8, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
         num_experts=128, num_experts_per_tok=8, vocab_size=151936, experts_implementation="grouped_mm")  # fmt: skip
language("olmoe-looped", "experts", "OlmoeForCausalLM", 4, 2048, hidden_size=2048, intermediate_size=1024,
         num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=16, num_experts=64, num_experts_per_tok=8,
         vocab_size=50304, experts_implementation="eager")  # fmt: skip
language("llama-1b-compiled", "compiled", "LlamaForCausalLM", 4, 2048, compiled=True, **LLAMA_1B)

# Pictures, as timm and Hugging Face write them.
pictures("timm-vit-base", "timm", _timm("vit_base_patch16_224"), 128)
pictures("timm-convnext-base", "timm", _timm("convnext_base"), 128, last=True)
pictures("timm-swin-base", "timm", _timm("swin_base_patch4_window7_224"), 64)
pictures("timm-resnet50", "timm", _timm("resnet50"), 256, last=True)


def replicated(name: str) -> None:
    """DistributedDataParallel as its tutorial has it, one replica."""

    def build() -> tuple[Any, ...]:
        from torch.nn.parallel import DistributedDataParallel

        grouped()
        settings = {"use_cache": False, "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 24,
                    "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 32000}  # fmt: skip
        model = DistributedDataParallel(_made("LlamaForCausalLM", settings, "autocast"), device_ids=[0])
        return model, torch.optim.AdamW(model.parameters(), lr=1e-5)

    def batch() -> Batch:
        tokens = torch.randint(0, 32000, (8, 1024), device=DEVICE)
        return {"input_ids": tokens, "labels": tokens}

    PROGRAMS[name] = Program("replicas", build, batch, _language_step(autocast=True, pieces=1, clip=True))


def sharded(name: str) -> None:
    """FSDP2 around each layer, as torchtitan does, on one GPU."""

    def build() -> tuple[Any, ...]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        grouped()
        mesh = init_device_mesh("cuda", (1,), mesh_dim_names=("dp",))
        settings = {"use_cache": False, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
                    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000}  # fmt: skip
        model: Any = _made("LlamaForCausalLM", settings, "fp32")
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=mesh, mp_policy=precision)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def batch() -> Batch:
        tokens = torch.randint(0, 32000, (4, 2048), device=DEVICE)
        return {"input_ids": tokens, "labels": tokens}

    PROGRAMS[name] = Program("sharded", build, batch, _language_step(autocast=False, pieces=1, clip=True))


replicated("llama-700m-replicas")
sharded("tinyllama-fsdp2")

# A second set, added after the first was measured: nothing was changed between its predictions and its measurements.
language("gpt2-xl-checkpointed", "gpt2", "GPT2LMHeadModel", 8, 1024, checkpoint=True, n_embd=1600, n_layer=48,
         n_head=25, vocab_size=50257)  # fmt: skip
language("starcoder2-3b-cut", "starcoder2", "Starcoder2ForCausalLM", 2, 4096, hidden_size=3072,
         intermediate_size=12288, num_hidden_layers=16, num_attention_heads=24, num_key_value_heads=2,
         vocab_size=49152, sliding_window=None)  # fmt: skip
language("olmo2-1b", "olmo", "Olmo2ForCausalLM", 4, 2048, precision="autocast", clip=True, hidden_size=2048,
         intermediate_size=8192, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16,
         vocab_size=100352)  # fmt: skip
language("gemma3-1b", "gemma", "Gemma3ForCausalLM", 4, 2048, config="Gemma3TextConfig", hidden_size=1152,
         intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
         vocab_size=262144, sliding_window=512)  # fmt: skip
language("qwen2.5-7b-lora-checkpointed", "lora", "Qwen2ForCausalLM", 4, 2048, lora=True, checkpoint=True,
         hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
         num_key_value_heads=4, vocab_size=152064)  # fmt: skip
language("phi-2-padded", "phi", "PhiForCausalLM", 2, 2048, padded=True, hidden_size=2560, intermediate_size=10240,
         num_hidden_layers=32, num_attention_heads=32, vocab_size=51200, partial_rotary_factor=0.4)  # fmt: skip
language("falcon-1b", "falcon", "FalconForCausalLM", 4, 2048, hidden_size=2048, num_hidden_layers=24,
         num_attention_heads=32, vocab_size=50304, alibi=False, multi_query=True, parallel_attn=True,
         new_decoder_architecture=False)  # fmt: skip
language("roberta-base-accumulated", "bert", "RobertaForMaskedLM", 32, 512, precision="autocast", pieces=2,
         hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, vocab_size=50265,
         max_position_embeddings=514)  # fmt: skip
language("flan-t5-base", "t5", "T5ForConditionalGeneration", 16, 512, config="T5Config", precision="autocast",
         d_model=768, d_ff=2048, d_kv=64, num_layers=12, num_heads=12, vocab_size=32128,
         feed_forward_proj="gated-gelu", decoder_start_token_id=0, pad_token_id=0)  # fmt: skip
language("bart-large", "bart", "BartForConditionalGeneration", 8, 1024, config="BartConfig", precision="autocast",
         d_model=1024, encoder_layers=12, decoder_layers=12, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
         encoder_attention_heads=16, decoder_attention_heads=16, vocab_size=50265)  # fmt: skip
language("olmoe-cut", "experts", "OlmoeForCausalLM", 4, 2048, hidden_size=2048, intermediate_size=1024,
         num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16, num_experts=64, num_experts_per_tok=8,
         vocab_size=50304, experts_implementation="grouped_mm")  # fmt: skip
language("deepseek-v3-cut", "experts", "DeepseekV3ForCausalLM", 2, 2048, hidden_size=2048, intermediate_size=8192,
         moe_intermediate_size=1024, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=16,
         n_routed_experts=32, num_experts_per_tok=4, n_group=4, topk_group=2, q_lora_rank=512, kv_lora_rank=256,
         first_k_dense_replace=1, vocab_size=102400, experts_implementation="grouped_mm")  # fmt: skip
pictures("timm-deit-large", "timm", _timm("deit3_large_patch16_224"), 64)
pictures("timm-mixer-base", "timm", _timm("mixer_b16_224"), 128)
pictures("timm-regnety", "timm", _timm("regnety_032"), 128, last=True)
language("qwen2.5-0.5b-compiled", "compiled", "Qwen2ForCausalLM", 8, 2048, compiled=True, precision="autocast",
         hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
         vocab_size=151936, tie_word_embeddings=True)  # fmt: skip


def sharded_first(name: str) -> None:
    """FullyShardedDataParallel (FSDP1) around each layer, on one GPU."""

    def build() -> tuple[Any, ...]:
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer

        grouped()
        settings = {"use_cache": False, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16,
                    "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32000}  # fmt: skip
        model = FullyShardedDataParallel(
            _made("LlamaForCausalLM", settings, "fp32"),
            auto_wrap_policy=ModuleWrapPolicy({LlamaDecoderLayer}),
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
            device_id=torch.cuda.current_device(),
            use_orig_params=True,
        )
        return model, torch.optim.AdamW(model.parameters(), lr=1e-5)

    def batch() -> Batch:
        tokens = torch.randint(0, 32000, (4, 2048), device=DEVICE)
        return {"input_ids": tokens, "labels": tokens}

    PROGRAMS[name] = Program("sharded", build, batch, _language_step(autocast=False, pieces=1, clip=False))


sharded_first("llama-900m-fsdp1")
