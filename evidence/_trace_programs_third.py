"""A third set of training steps, of families that the first two have not: predicted and committed before any of them
was measured, and no constant was changed between. `_trace_programs.py` says how they are run."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _trace_programs import DEVICE, PROGRAMS, Program, _made, _timm, language, pictures

Batch = Any
Optimizers = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

# Language models of Hugging Face.
language("glm4-cut", "glm", "Glm4ForCausalLM", 2, 2048, hidden_size=4096, intermediate_size=13696, num_hidden_layers=8,
         num_attention_heads=32, num_key_value_heads=2, head_dim=128, vocab_size=151552, pad_token_id=0)  # fmt: skip
language("granite-2b", "granite", "GraniteForCausalLM", 2, 2048, precision="autocast", hidden_size=2048,
         intermediate_size=8192, num_hidden_layers=20, num_attention_heads=32, num_key_value_heads=8,
         vocab_size=49155)  # fmt: skip
language("stablelm-2-1.6b", "stablelm", "StableLmForCausalLM", 4, 2048, hidden_size=2048, intermediate_size=5632,
         num_hidden_layers=24, num_attention_heads=32, num_key_value_heads=32, vocab_size=100352,
         partial_rotary_factor=0.25)  # fmt: skip
language("cohere-cut", "cohere", "CohereForCausalLM", 2, 2048, clip=True, hidden_size=4096, intermediate_size=11264,
         num_hidden_layers=8, num_attention_heads=32, num_key_value_heads=32, vocab_size=64000)  # fmt: skip
language("gptj-cut", "gptj", "GPTJForCausalLM", 4, 1024, n_embd=4096, n_layer=8, n_head=16, rotary_dim=64,
         vocab_size=50400)  # fmt: skip
language("smollm3-checkpointed", "smollm", "SmolLM3ForCausalLM", 4, 2048, checkpoint=True, padded=True, pieces=2,
         hidden_size=2048, intermediate_size=11008, num_hidden_layers=18, num_attention_heads=16,
         num_key_value_heads=4, vocab_size=128256, pad_token_id=0)  # fmt: skip
language("llama-3b-lora", "lora", "LlamaForCausalLM", 2, 2048, lora=True, precision="autocast", hidden_size=3072,
         intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24, num_key_value_heads=8,
         vocab_size=128256)  # fmt: skip
language("modernbert-base", "modernbert", "ModernBertForMaskedLM", 16, 1024, precision="autocast", padded=True,
         hidden_size=768, intermediate_size=1152, num_hidden_layers=22, num_attention_heads=12, vocab_size=50368,
         attn_implementation="sdpa")  # fmt: skip
language("deberta-v3-base", "deberta", "DebertaV2ForMaskedLM", 16, 512, config="DebertaV2Config", precision="autocast",
         padded=True, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
         vocab_size=128100, relative_attention=True, position_buckets=256, pos_att_type=["p2c", "c2p"],
         share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0)  # fmt: skip
language("electra-large", "electra", "ElectraForMaskedLM", 16, 512, precision="autocast", hidden_size=1024,
         embedding_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
         vocab_size=30522)  # fmt: skip
language("mamba2-cut", "mamba", "Mamba2ForCausalLM", 2, 1024, hidden_size=1024, num_hidden_layers=8, num_heads=32,
         head_dim=64, state_size=64, n_groups=1, chunk_size=128, vocab_size=50288)  # fmt: skip
language("gpt-oss-cut", "experts", "GptOssForCausalLM", 2, 2048, hidden_size=2048, intermediate_size=2048,
         num_hidden_layers=6, num_attention_heads=32, num_key_value_heads=8, head_dim=64, num_local_experts=16,
         num_experts_per_tok=4, vocab_size=100352, sliding_window=128, pad_token_id=0,
         experts_implementation="grouped_mm")  # fmt: skip
language("granite-compiled", "compiled", "GraniteForCausalLM", 4, 2048, compiled=True, hidden_size=1536,
         intermediate_size=4096, num_hidden_layers=16, num_attention_heads=24, num_key_value_heads=8,
         vocab_size=49152)  # fmt: skip

# Pictures of timm.
pictures("timm-efficientnet-b3", "timm", _timm("efficientnet_b3"), 64, size=288, last=True)
pictures("timm-mobilenetv3", "timm", _timm("mobilenetv3_large_100"), 256)
pictures("timm-resnext50", "timm", _timm("resnext50_32x4d"), 128, last=True)
pictures("timm-densenet121", "timm", _timm("densenet121"), 64)
pictures("timm-convnextv2-tiny", "timm", _timm("convnextv2_tiny"), 128)
pictures("timm-swinv2-small", "timm", _timm("swinv2_small_window8_256"), 64, size=256)
pictures("timm-eva02-base", "timm", _timm("eva02_base_patch14_224"), 64)


def own(
    name: str, family: str, made: Callable[[], nn.Module], batch: Callable[[], Batch], loss: Callable[..., Tensor],
    *, optimizer: Optimizers | None = None, dtype: torch.dtype | None = torch.bfloat16, compiled: bool = False,
    scaled: bool = False,
) -> None:  # fmt: skip
    """`loss(model, batch)` under autocast to `dtype`; None trains as the model is. `scaled`: with a GradScaler."""

    def build() -> tuple[Any, ...]:
        with torch.device(DEVICE):
            model = made().to(DEVICE).train()
        if compiled:
            model = torch.compile(model)  # type: ignore[assignment]
        trained = list(model.parameters())
        if scaled:
            scalers.append(torch.amp.GradScaler(DEVICE))
        return model, (optimizer or (lambda p: torch.optim.AdamW(p, lr=1e-4)))(trained)

    scalers: list[torch.amp.GradScaler] = []

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, given: Batch) -> None:
        with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
            found = loss(model, given)
        for scaler in scalers[-1:]:
            scaler.scale(found).backward()
            scaler.step(optimizer)
            scaler.update()
        if not scalers:
            found.backward()
            optimizer.step()
        optimizer.zero_grad()

    PROGRAMS[name] = Program(family, build, batch, step)


def _library(kind: str, precision: str = "fp32", **settings: Any) -> Callable[[], nn.Module]:
    return lambda: _made(kind, dict(settings), precision)


def _words(rows: int, seq: int, vocabulary: int) -> Callable[[], Batch]:
    return lambda: torch.randint(0, vocabulary, (rows, seq), device=DEVICE)


own("whisper-small", "whisper",
    _library("WhisperForConditionalGeneration", config="WhisperConfig", d_model=768, encoder_layers=12,
             decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072,
             decoder_ffn_dim=3072, vocab_size=51865, use_cache=False),
    lambda: (torch.randn(8, 80, 3000, device=DEVICE), torch.randint(0, 51865, (8, 256), device=DEVICE)),
    lambda model, given: model(input_features=given[0], labels=given[1]).loss)  # fmt: skip
own("wav2vec2-base", "wav2vec2",
    _library("Wav2Vec2ForSequenceClassification", config="Wav2Vec2Config", apply_spec_augment=False, layerdrop=0.0,
             num_labels=32),
    lambda: (torch.randn(8, 160000, device=DEVICE), torch.randint(0, 32, (8,), device=DEVICE)),
    lambda model, given: model(input_values=given[0], labels=given[1]).loss)  # fmt: skip
own("clip-vit-b32", "clip",
    _library("CLIPModel", config="CLIPConfig"),
    lambda: (torch.randn(256, 3, 224, 224, device=DEVICE), torch.randint(0, 49000, (256, 77), device=DEVICE)),
    lambda model, given: model(pixel_values=given[0], input_ids=given[1], return_loss=True).loss)  # fmt: skip
own("segformer-b1", "segformer",
    _library("SegformerForSemanticSegmentation", config="SegformerConfig", hidden_sizes=[64, 128, 320, 512],
             depths=[2, 2, 2, 2], decoder_hidden_size=256, num_labels=150),
    lambda: (torch.randn(8, 3, 512, 512, device=DEVICE), torch.randint(0, 150, (8, 512, 512), device=DEVICE)),
    lambda model, given: model(pixel_values=given[0], labels=given[1]).loss)  # fmt: skip


# Plain torch, as courses and small repositories write it.
class Block(nn.Module):
    """Of a GPT written by hand: one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.attend, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, seq, width = x.shape
        q, k, v = (
            t.view(rows, seq, self.heads, -1).transpose(1, 2) for t in self.attend(self.first(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, seq, width))
        return x + self.narrow(F.gelu(self.widen(self.second(x))))


class OwnGpt(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, vocabulary: int, seq: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(seq, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, bias=False), nn.Linear(width, vocabulary, bias=False)
        self.words.weight = self.head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _next_word(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(tokens)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


own("own-gpt-compiled", "compiled", lambda: OwnGpt(1024, 24, 16, 50304, 1024), _words(16, 1024, 50304), _next_word,
    compiled=True)  # fmt: skip
own("own-gpt-fp16-scaled", "own", lambda: OwnGpt(768, 12, 12, 50304, 1024), _words(16, 1024, 50304), _next_word,
    dtype=torch.float16, scaled=True)  # fmt: skip
own("own-gpt-fp32-sgd", "own", lambda: OwnGpt(768, 12, 12, 50304, 1024), _words(8, 1024, 50304), _next_word, dtype=None,
    optimizer=lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, nesterov=True))  # fmt: skip
own("own-gpt-adafactor", "own", lambda: OwnGpt(1024, 24, 16, 50304, 1024), _words(8, 1024, 50304), _next_word,
    optimizer=lambda p: torch.optim.Adafactor(p, lr=1e-3))  # fmt: skip


class Lion(torch.optim.Optimizer):
    """Signs of a running mean, one parameter after the other."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-4})

    @torch.no_grad()
    def step(self, _: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * 0.1).add_(mean.mul(0.9).add_(p.grad, alpha=0.1).sign_(), alpha=-group["lr"])
                mean.mul_(0.99).add_(p.grad, alpha=0.01)


own("own-gpt-lion", "own", lambda: OwnGpt(1024, 24, 16, 50304, 1024), _words(8, 1024, 50304), _next_word,
    optimizer=Lion)  # fmt: skip


class DitBlock(nn.Module):
    """Of a diffusion transformer: norms without weights, scaled and shifted by the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.condition = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        a, b, gate, d, e, second = self.condition(F.silu(c)).unsqueeze(1).chunk(6, -1)
        rows, tokens, width = x.shape
        q, k, v = self.attend(self.norm(x) * (1 + b) + a).view(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, tokens, width)
        x = x + gate * self.out(y)
        return x + second * self.narrow(F.gelu(self.widen(self.norm(x) * (1 + e) + d), approximate="tanh"))


class Dit(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, patch: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(4, width, patch, patch)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(DitBlock(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, patch * patch * 4)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None] * torch.exp(-torch.arange(128, device=x.device) / 14.0)
        c = self.time(torch.cat((angles.cos(), angles.sin()), -1))
        y = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            y = block(y, c)
        return self.head(y)


own("own-dit-large", "diffusion", lambda: Dit(1024, 24, 16, 2),
    lambda: (torch.randn(64, 4, 32, 32, device=DEVICE), torch.rand(64, device=DEVICE)),
    lambda model, given: model(*given).float().square().mean())  # fmt: skip


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(32, inner), nn.GroupNorm(32, outer)
        self.one, self.two = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
        self.short = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(F.silu(self.first(x)))
        return self.short(x) + self.two(F.silu(self.second(y)))


class Unet(nn.Module):
    """Down three times and up again, with what was on the way down beside it."""

    def __init__(self, widths: tuple[int, ...] = (192, 384, 576, 768)) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(4, widths[0], 3, padding=1), nn.Conv2d(widths[0], 4, 3, padding=1)
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(nn.Sequential(Residual(a, a), Residual(a, b)) for a, b in pairs)
        self.middle = nn.Sequential(Residual(widths[-1], widths[-1]), Residual(widths[-1], widths[-1]))
        self.up = nn.ModuleList(nn.Sequential(Residual(2 * b, b), Residual(b, a)) for a, b in reversed(pairs))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for part in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = part(torch.cat((x, kept.pop()), 1))
        return self.head(x)


own("own-unet", "diffusion", Unet, lambda: torch.randn(16, 4, 64, 64, device=DEVICE),
    lambda model, x: F.mse_loss(model(x), x))  # fmt: skip
own("torch-encoder", "own",
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True), 12),
    lambda: torch.randn(16, 512, 1024, device=DEVICE), lambda model, x: model(x).float().square().mean())  # fmt: skip
