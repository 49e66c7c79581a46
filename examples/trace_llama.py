"""A Llama as torchtitan splits it: tensor parallel with sequence parallel by DTensor, FSDP2 around each block.

    shardwise trace examples/trace_llama.py --on dgx-h100:1024

`SHAPE=tiny` takes a model of two small layers, `TP` the tensor-parallel degree; what is left of the ranks is FSDP's.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

SHAPES = {
    # layers, hidden, heads, key/value heads, feed-forward, vocabulary, sequence
    "8b": (32, 4096, 32, 8, 14336, 128256, 8192),
    "8b-cut": (8, 4096, 32, 8, 14336, 128256, 8192),
    "tiny": (2, 64, 4, 2, 192, 256, 32),
}
LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, SEQ = SHAPES[os.environ.get("SHAPE", "8b")]
TP = int(os.environ.get("TP", "8"))
HEAD = HIDDEN // HEADS


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.wk = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.wv = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.wo = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        samples, length = x.shape[:2]
        q, k, v = (w(x).view(samples, length, -1, HEAD).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).reshape(samples, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(HIDDEN, FFN, bias=False)
        self.w2 = nn.Linear(FFN, HIDDEN, bias=False)
        self.w3 = nn.Linear(HIDDEN, FFN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(HIDDEN), Attention()
        self.ffn_norm, self.feed_forward = nn.RMSNorm(HIDDEN), FeedForward()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.output = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        place = torch.arange(SEQ, device=tokens.device).float()
        rate = 500000.0 ** (-torch.arange(0, HEAD, 2, device=tokens.device).float() / HEAD)
        angle = torch.outer(place, rate)
        x = self.tok_embeddings(tokens)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.output(self.norm(x))


ENDS = {
    "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
}
BLOCK = {
    "attention_norm": SequenceParallel(),
    "attention": PrepareModuleInput(
        input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
    ),
    "attention.wq": ColwiseParallel(),
    "attention.wk": ColwiseParallel(),
    "attention.wv": ColwiseParallel(),
    "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
    "ffn_norm": SequenceParallel(),
    "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "feed_forward.w1": ColwiseParallel(),
    "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    "feed_forward.w3": ColwiseParallel(),
}


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    mesh = init_device_mesh("cuda", (dist.get_world_size() // TP, TP), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = Llama()
    if TP > 1:
        parallelize_module(model, mesh["tp"], ENDS)
        for layer in model.layers:
            parallelize_module(layer, mesh["tp"], BLOCK)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (model.tok_embeddings, *model.layers, [model.norm, model.output], model):
        fully_shard(part, mesh=mesh["dp"], mp_policy=precision)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        nn.init.trunc_normal_(parameter, std=0.02)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4)


def batch() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, VOCAB, (1, SEQ + 1), device="cuda")
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, samples: tuple[Tensor, Tensor]) -> None:
    tokens, labels = samples
    with loss_parallel():
        logits = model(tokens).float()
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
