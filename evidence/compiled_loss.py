"""The head and its loss, eager and compiled, timed on this GPU with what is alive of the logits.

    python evidence/compiled_loss.py [--out FILE.csv]

Logits are 16 bits under autocast, weights fp32. `product`: the head alone, forward and backward. `eager`: with the loss
behind it. `compiled`: both by torch.compile, the loss returned. `returned`: the logits too, as a model does whose
forward gives both, and kept until the next ones. `loss alone`: only the loss is compiled. Peaks are less what weights
and inputs take, and contain the weights' gradient.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from _timed_rows import write_rows

SHAPES = ((50_304, 32_768, 768), (128_256, 8_192, 2_048))
"""(vocabulary, tokens, width)"""
WARM, TIMED = 3, 8


class Timed(NamedTuple):
    vocab: int
    tokens: int
    width: int
    kind: str
    seconds: float
    bytes_per_logit: float


def forwards(weight: Tensor, target: Tensor) -> dict[str, Callable[[Tensor], tuple[Tensor, ...]]]:
    """Each gives what its program returns, the loss last."""

    def both(x: Tensor) -> tuple[Tensor, ...]:
        logits = functional.linear(x, weight)
        return logits, functional.cross_entropy(logits, target)

    loss = torch.compile(lambda logits: functional.cross_entropy(logits, target))
    return {
        "product": lambda x: (functional.linear(x, weight),),
        "eager": both,
        "compiled": torch.compile(lambda x: both(x)[1:]),
        "returned": torch.compile(both),
        "loss alone": lambda x: (loss(functional.linear(x, weight)),),
    }


def timed(vocab: int, tokens: int, width: int, kind: str) -> Timed:
    torch._dynamo.reset()
    weight = (0.02 * torch.randn(vocab, width, device="cuda")).requires_grad_()
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    forward = forwards(weight, torch.randint(vocab, (tokens,), device="cuda"))[kind]
    given = torch.randn(tokens, vocab, device="cuda", dtype=torch.bfloat16) if kind == "product" else None
    kept: list[Tensor] = []

    def step() -> None:
        weight.grad = x.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            kept[:] = forward(x)
        torch.autograd.backward(kept.pop(), given)

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(TIMED):
        step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / TIMED
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated() - sum(t.nbytes for t in (weight, x, given) if t is not None)
    return Timed(vocab, tokens, width, kind, round(seconds, 6), round(peak / (tokens * vocab), 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    kinds = ("product", "eager", "compiled", "returned", "loss alone")
    rows = [timed(*shape, kind) for shape in SHAPES for kind in kinds]
    for row in rows:
        print(*row, sep=",")
    if out:
        write_rows(out, rows)


if __name__ == "__main__":
    main()
