"""What attention costs that writes its scores, timed on this GPU: PyTorch's operations one by one, compiled, and fused.

    python evidence/eager_attention.py [--out FILE.jsonl]

- `hugging_face`: product, scale, mask added, softmax in fp32, rounded, product (transformers' eager_attention_forward),
- `script`: product, scale, mask filled in, softmax in 16 bits, product (nanoGPT and its like),
- `compiled`: `hugging_face` under torch.compile,
- `fused`: scaled_dot_product_attention, causal.

`forward_s` and `backward_s` are sums of the kernels' times; `products_s` that of the two products alone, over the whole
square. `score_bytes` is what the rest moves for each score at the speed of a copy of this GPU (`copy_bytes_s`).
evidence/timed/eager-attention-h200.jsonl: one H200, bf16, random data.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moved_tokens import kernels

SHAPES = [(1, 32, 2048, 128), (4, 32, 2048, 64), (1, 32, 4096, 128), (2, 16, 4096, 64), (1, 16, 8192, 128)]
"""sequences, heads, length, width of a head"""
COPIED = 2**30
Row = dict[str, Any]
Attention = Callable[[Any, Any, Any], Any]


def ways(seq: int) -> dict[str, Attention]:
    import torch
    from torch.nn import functional

    upper = torch.ones(seq, seq, dtype=torch.bool, device="cuda").triu(1)
    added = torch.zeros(seq, seq, dtype=torch.bfloat16, device="cuda").masked_fill(upper, float("-inf"))

    def hugging_face(q: Any, k: Any, v: Any) -> Any:
        scores = torch.matmul(q, k.transpose(2, 3)) * (1.0 / math.sqrt(q.shape[-1])) + added
        return torch.matmul(functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)

    def script(q: Any, k: Any, v: Any) -> Any:
        scores = (torch.matmul(q, k.transpose(2, 3)) * (1.0 / math.sqrt(q.shape[-1]))).masked_fill(upper, float("-inf"))
        return torch.matmul(functional.softmax(scores, dim=-1), v)

    def fused(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {"hugging_face": hugging_face, "script": script, "compiled": torch.compile(hugging_face), "fused": fused}


def products(q: Any, k: Any, v: Any, scores: Any) -> tuple[float, float]:
    """The products alone, forward and backward."""
    import torch

    def forward() -> Any:
        return torch.matmul(q, k.transpose(2, 3)), torch.matmul(scores, v)

    def backward() -> Any:
        return (torch.matmul(q, v.transpose(2, 3)), torch.matmul(scores.transpose(2, 3), q),
                torch.matmul(scores, k), torch.matmul(scores.transpose(2, 3), q))  # fmt: skip

    return kernels(forward)[0], kernels(backward)[0]


def timed(shape: tuple[int, ...], copy_bytes_s: float) -> list[Row]:
    import torch

    batch, heads, seq, width = shape
    q, k, v = (torch.randn(batch, heads, seq, width, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    scores = torch.rand(batch, heads, seq, seq, device="cuda", dtype=torch.bfloat16)
    alone = products(q, k, v, scores)
    del scores
    gradient = torch.randn_like(q)
    for each in (q, k, v):
        each.requires_grad_()
    found = []
    for name, way in ways(seq).items():

        def forward(way: Attention = way) -> Any:
            with torch.no_grad():
                return way(q, k, v)

        def both(way: Attention = way) -> Any:
            return torch.autograd.grad(way(q, k, v), (q, k, v), gradient)

        ahead, launches = kernels(forward)
        whole, all_launches = kernels(both)
        moved = [(took - product) * copy_bytes_s / (batch * heads * seq**2)
                 for took, product in zip((ahead, whole - ahead), alone, strict=True)]  # fmt: skip
        found.append({"way": name, "shape": list(shape), "forward_s": ahead, "backward_s": whole - ahead,
                      "products_s": list(alone), "score_bytes": moved, "launches": [launches, all_launches - launches],
                      "copy_bytes_s": copy_bytes_s})  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the JSON lines there too")
    given = parser.parse_args()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no CUDA device: attention can only be timed on a GPU")
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    a = torch.randn(COPIED // 2, device="cuda", dtype=torch.bfloat16)
    b = torch.empty_like(a)
    copy_bytes_s = 2 * COPIED / kernels(lambda: b.copy_(a))[0]
    lines = []
    for shape in SHAPES:
        for row in timed(shape, copy_bytes_s):
            lines.append(json.dumps(row))
            print(lines[-1], flush=True)
    print(f"{torch.cuda.get_device_properties(0).name}, torch {torch.__version__}")
    if given.out:
        given.out.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
