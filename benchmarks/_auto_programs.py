"""Small programs whose split nobody wrote: models of transformers as they are, and three plain ones. For `auto.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, TOKENS, SAMPLES = 96, 16, 8
SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": WORDS}
WIDE = {**SMALL, "intermediate_size": 128}
GROUPED = {**WIDE, "num_key_value_heads": 4}
QUIET = {"use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Program:
    name: str
    kind: str
    """decoder, encoder, encoder-decoder, experts, mixer, vision or diffusion"""
    make: Callable[[], nn.Module]
    batch: Callable[[], dict[str, Tensor]]
    optimizer: str = "adamw"
    """adamw, or sgd: the first step of adamw is the sign of every gradient, of those too that are rounding"""

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = self.make()
        if self.optimizer == "sgd":
            return model, torch.optim.SGD(model.parameters(), lr=0.1)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    @staticmethod
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> None:
        out = model(**batch)
        loss = out if isinstance(out, Tensor) else out.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _words() -> dict[str, Tensor]:
    tokens = torch.randint(3, WORDS, (SAMPLES, TOKENS))
    return {"input_ids": tokens, "labels": tokens}


def _pictures() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(SAMPLES, 3, 16, 16), "labels": torch.randint(0, 10, (SAMPLES,))}


def _of(model: str, config: str, **fields: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**fields))
        return made

    return make


def _program(
    name: str, kind: str, stem: str, fields: dict[str, Any], suffix: str = "ForCausalLM", config: str = ""
) -> Program:
    batch = _pictures if kind == "vision" else _words
    return Program(name, kind, _of(f"{stem}{suffix}", config or f"{stem}Config", **fields), batch)


PICTURES = {"image_size": 16, "patch_size": 4, "num_labels": 10, "hidden_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 8, "intermediate_size": 128}  # fmt: skip
EXPERTS = {
    **GROUPED,
    **QUIET,
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}


class NanoBlock(nn.Module):
    """As in the small GPT programs people copy: one product for queries, keys and values, sizes read from the input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.n_head, self.n_embd = heads, width
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(self.n_embd, dim=2)
        q, k, v = (each.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


class NanoGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, 64), nn.Embedding(TOKENS, 64)
        self.h = nn.ModuleList(NanoBlock(64, 8) for _ in range(4))
        self.ln_f = nn.LayerNorm(64)
        self.lm_head = nn.Linear(64, WORDS, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class DiffusionBlock(nn.Module):
    """A transformer block whose norms are shifted and scaled by the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(condition)).unsqueeze(1).chunk(6, -1)
        B, N, D = x.shape
        qkv = self.qkv(self.norm1(x) * (1 + scale1) + shift1).reshape(B, N, 3, self.heads, D // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + gate1 * self.proj(y.transpose(1, 2).reshape(B, N, D))
        return x + gate2 * self.fc2(F.gelu(self.fc1(self.norm2(x) * (1 + scale2) + shift2), approximate="tanh"))


class Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 4, 4)
        self.classes, self.time = nn.Embedding(10, 64), nn.Linear(1, 64)
        self.blocks = nn.ModuleList(DiffusionBlock(64, 8) for _ in range(4))
        self.last = nn.Linear(64, 48)

    def forward(self, pixel_values: Tensor, noise: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        mixed = (1 - times[:, None, None, None]) * pixel_values + times[:, None, None, None] * noise
        x = self.patches(mixed).flatten(2).transpose(1, 2)
        condition = self.time(times[:, None]) + self.classes(labels)
        for block in self.blocks:
            x = block(x, condition)
        made = self.last(x).unflatten(-1, (3, 4, 4)).unflatten(1, (4, 4)).permute(0, 3, 1, 4, 2, 5).reshape(mixed.shape)
        return F.mse_loss(made, noise)


def _noisy() -> dict[str, Tensor]:
    pictures = torch.randn(SAMPLES, 3, 16, 16)
    return {"pixel_values": pictures, "noise": torch.randn_like(pictures), "times": torch.rand(SAMPLES),
            "labels": torch.randint(0, 10, (SAMPLES,))}  # fmt: skip


PROGRAMS = {
    each.name: each
    for each in (
        _program("llama", "decoder", "Llama", {**GROUPED, **QUIET}),
        _program("qwen3", "decoder", "Qwen3", {**GROUPED, **QUIET, "head_dim": 8}),
        _program("mistral", "decoder", "Mistral", {**GROUPED, **QUIET, "head_dim": 8}),
        _program("gemma3", "decoder", "Gemma3", {**GROUPED, **QUIET, "head_dim": 8, "sliding_window": 8},
                 config="Gemma3TextConfig"),
        _program("gpt2", "decoder", "GPT2", {"n_embd": 64, "n_layer": 4, "n_head": 8, "vocab_size": WORDS,
                                             "n_positions": 32, **QUIET}, "LMHeadModel"),
        _program("gpt-neox", "decoder", "GPTNeoX", {**WIDE, **QUIET}),
        _program("phi", "decoder", "Phi", {**WIDE, **QUIET}),
        _program("bert", "encoder", "Bert", {**WIDE, "max_position_embeddings": 32}, "ForMaskedLM"),
        _program("t5", "encoder-decoder", "T5", {"d_model": 64, "d_kv": 8, "d_ff": 128, "num_layers": 2, "num_heads": 8,
                                                 "vocab_size": WORDS, "decoder_start_token_id": 0, **QUIET},
                 "ForConditionalGeneration"),
        _program("vit", "vision", "ViT", PICTURES, "ForImageClassification"),
        _program("mixtral", "experts", "Mixtral", EXPERTS),
        _program("qwen3-moe", "experts", "Qwen3Moe", {**EXPERTS, "head_dim": 8}),
        _program("mamba2", "mixer", "Mamba2", {"hidden_size": 64, "num_hidden_layers": 4, "vocab_size": WORDS,
                                               "num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2,
                                               "chunk_size": 8, **QUIET}),
        Program("nanogpt", "decoder", NanoGPT, _words),
        Program("diffusion", "diffusion", Diffusion, _noisy),
    )
}  # fmt: skip
