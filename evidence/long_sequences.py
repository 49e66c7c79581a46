"""Peak memory of one-GPU long sequences: eager Qwen3 layers under checkpoints, flash attention, chunks of loss.

    python evidence/long_sequences.py OUT.csv [SEQ ...]

Weights, gradients and moments in bf16; norms written out in fp32 as in Hugging Face's models. A row has the peaks that
PyTorch's allocator gave out and reserved, and what the device holds beside the allocator's memory.
"""

import csv
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

HEADS, KV, DIM = 8, 4, 128
WIDTH, INNER, LAYERS, VOCAB, CHUNK = 1024, 3072, 4, 32_000, 1024


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, n * DIM, bias=False) for n in (HEADS, KV, KV))
        self.o, self.down = nn.Linear(HEADS * DIM, WIDTH, bias=False), nn.Linear(INNER, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.first, self.second, self.q_norm, self.k_norm = map(Norm, (WIDTH, WIDTH, DIM, DIM))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.first(x)
        q = rotated(self.q_norm(self.q(y).unflatten(-1, (HEADS, DIM))).transpose(1, 2), cos, sin)
        k = rotated(self.k_norm(self.k(y).unflatten(-1, (KV, DIM))).transpose(1, 2), cos, sin)
        v = self.v(y).unflatten(-1, (KV, DIM)).transpose(1, 2)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(out.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), Norm(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        steps = torch.arange(0, DIM, 2, device=ids.device) / DIM
        angle = torch.outer(torch.arange(ids.shape[1], device=ids.device).float(), 1e6**-steps).repeat(1, 2)
        cos, sin = (each.to(torch.bfloat16) for each in (angle.cos(), angle.sin()))
        x = self.embedding(ids)
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False)
        hidden, labels = self.norm(x)[0], ids[0].roll(-1)
        pieces = zip(hidden.split(CHUNK), labels.split(CHUNK), strict=True)
        losses = [checkpoint(self.chunk_loss, piece, words, use_reentrant=False) for piece, words in pieces]
        return torch.stack(losses).sum() / ids.shape[1]

    def chunk_loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.head(hidden).float(), labels, reduction="sum")


def measured(seq: int) -> dict[str, int]:
    model = Decoder().to("cuda", torch.bfloat16)
    update = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(0, VOCAB, (1, seq), device="cuda")
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        model(ids).backward()
        update.step()
        update.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    return {
        "seq": seq, "peak_alloc_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(), "beside_allocator_bytes": total - free - reserved,
    }  # fmt: skip


def main(path: str, *lengths: str) -> None:
    rows = []
    for seq in map(int, lengths or ("16384", "65536", "131072", "262144", "524288")):
        rows.append(measured(seq))
        torch.cuda.empty_cache()
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
