"""A layer whose tensors lie sequence first, in eager PyTorch: where its time goes, timed on this GPU kernel by kernel.

    python evidence/sequence_first.py [--out FILE.csv]

The operations of nanotron's Llama layer (heads copied into the order that attention takes, keys and values joined for
their rotation, gate and up apart) and of its loss (fp32, one kernel for each operation), forward and backward. Beside
the kernels' time what the planner says for an H200: products at the fitted curve, element-wise work by counted bytes,
both without the stack's fitted factors.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from _timed_rows import write_rows
from shardwise.cost.gpu import memory_seconds
from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import machine_for
from shardwise.step.estimate.layers import gemm_passes
from shardwise.work import work_of
from shardwise.work.case import case_of
from shardwise.work.ops import LayerWork

SEQ, VOCAB, REPEATS = 4096, 131072, 10
SHAPES = {"1b": (2048, 32, 8192), "3b": (3072, 32, 8192), "8b": (4096, 32, 14336), "80b": (8192, 64, 28672)}
"""hidden, heads and feed-forward width of the playbook's models"""
LOSS_BYTES = 52.0
"""of each logit. Forward: widened (6), maximum (4), difference (8), exponential (8), sum (4), quotient (8); backward:
product (8), rounded (6)"""
PRODUCTS = ("gemm", "nvjet", "cutlass", "xmma")
ATTENTION = ("flash", "fmha", "attention", "cudnn")


class Timed(NamedTuple):
    part: str
    micro_batch: int
    products_s: float
    attention_s: float
    rest_s: float
    products_said_s: float
    rest_said_s: float


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class Layer(torch.nn.Module):
    """One layer; activations are [sequence, batch, hidden]."""

    def __init__(self, hidden: int, heads: int, width: int, rotate: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.rotate, self.heads, self.dim = rotate, heads, hidden // heads
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)
        self.up = torch.nn.Linear(hidden, 2 * width, bias=False)
        self.down = torch.nn.Linear(width, hidden, bias=False)
        self.norms = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(hidden)) for _ in range(2)])
        angles = torch.outer(torch.arange(SEQ), 10_000.0 ** (-torch.arange(0, self.dim, 2) / self.dim))
        self.register_buffer("cos", angles.cos()[:, None, :])
        self.register_buffer("sin", angles.sin()[:, None, :])

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(F.rms_norm(x, x.shape[-1:], self.norms[0]))
        gate, up = self.up(F.rms_norm(x, x.shape[-1:], self.norms[1])).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)

    def attended(self, x: Tensor) -> Tensor:
        length, batch, hidden = x.shape
        in_order = self.qkv(x).view(length, batch, 3, self.heads, self.dim).permute(2, 1, 0, 3, 4).contiguous()
        query, key, value = in_order.unbind()
        both = torch.cat([key[None], value[None]]).permute(1, 2, 0, 3, 4).contiguous()
        key, value = both.unbind(2)
        query, key = self.rotate(query, self.cos, self.sin), self.rotate(key, self.cos, self.sin)
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
        return self.out(found.reshape(batch, length, hidden).transpose(0, 1))


class Softmaxed(torch.autograd.Function):
    """Cross entropy one operation at a time, its gradient in the place of the probabilities."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        shifted = logits - logits.max(dim=-1)[0].unsqueeze(-1)
        own = shifted.gather(1, target[:, None])[:, 0].clone()
        shifted.exp_()
        total = shifted.sum(dim=-1)
        shifted.div_(total.unsqueeze(-1))
        ctx.save_for_backward(shifted, target)
        return total.log() - own

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        probabilities, target = ctx.saved_tensors
        probabilities[torch.arange(len(target), device=target.device), target] -= 1.0
        return probabilities.mul_(gradient.unsqueeze(-1)), None


class Head(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.rows = torch.nn.Linear(hidden, VOCAB, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        target = torch.zeros(x.shape[0] * x.shape[1], dtype=torch.long, device=x.device)
        return Softmaxed.apply(self.rows(x).float().flatten(0, 1), target).mean()


def kind_of(kernel: str) -> str:
    for kind, words in (("attention", ATTENTION), ("products", PRODUCTS)):
        if any(word in kernel for word in words):
            return kind
    return "rest"


def kernels(part: torch.nn.Module, micro: int, hidden: int) -> Counter[str]:
    """Seconds of one forward and backward pass on the GPU, by kind of kernel."""
    x = torch.randn(SEQ, micro, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = None

    def step() -> None:
        nonlocal gradient
        y = part(x)
        if gradient is None:
            gradient = torch.ones_like(y)
        y.backward(gradient)
        x.grad = None
        for parameter in part.parameters():
            parameter.grad = None

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(REPEATS):
            step()
        torch.cuda.synchronize()
    found: Counter[str] = Counter()
    for event in seen.key_averages():
        name = event.key.lower()
        found[kind_of(name)] += event.self_device_time_total / 1e6 / REPEATS
    return found


def said(shape: tuple[int, int, int], micro: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Products and element-wise work of a layer, and of the head."""
    hidden, heads, width = shape
    model = model_from_shape("layer", 1, hidden, heads, heads, width, True, VOCAB, tied=False)
    job = Job(seq=SEQ, global_batch=micro, precision=precision_of("bf16-pure"))
    cluster = cluster_from("h200", 1, 1)
    stack = stack_of("nanotron").changed(loss_passes=LOSS_BYTES / 2)
    policies = Policies.of([Policy(micro_batch=micro)])
    case = case_of(model, cluster, job, stack)
    machine = machine_for(case, policies)
    work = work_of(case, policies, every_stage=True)

    def sums(part: LayerWork) -> tuple[float, float]:
        products = sum(float(np.sum(t)) for gemm in part.gemms for t in gemm_passes(gemm, machine))
        moved = (memory_seconds(machine.curve, b) for p in part.pointwise for b in (p.forward_bytes, p.backward_bytes))
        return products * stack.kernels.kernel_efficiency, sum(float(np.sum(t)) for t in moved)

    return sums(work.kinds[0]), sums(work.head)


def told(row: Timed) -> str:
    times = (row.products_s, row.products_said_s, row.rest_s, row.rest_said_s, row.attention_s)
    return f"{row.part:<10} {row.micro_batch:>5} " + " ".join(f"{1e3 * seconds:9.3f}" for seconds in times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("sequence_first: there is no GPU here to time on")
        return 1
    rows: list[Timed] = []
    print(f"{'ms':<10} {'micro':>5} {'products':>9} {'said':>9} {'rest':>9} {'said':>9} {'attention':>9}")
    for name, shape in SHAPES.items():
        torch.compiler.reset()
        for micro in (1, 2):
            layer, head = said(shape, micro)
            parts = ((name, Layer(*shape, torch.compile(rotated)), layer), (f"{name} head", Head(shape[0]), head))
            for label, part, (products, rest) in parts:
                found = kernels(part.to("cuda", torch.bfloat16), micro, shape[0])
                row = Timed(label, micro, found["products"], found["attention"], found["rest"], products, rest)
                rows.append(row)
                print(told(row), flush=True)
    for what, chosen in (
        ("layers", [r for r in rows if "head" not in r.part]),
        ("heads", [r for r in rows if "head" in r.part]),
    ):
        slower = np.median([r.rest_s / r.rest_said_s for r in chosen])
        print(f"{what}: element-wise kernels take {slower:.2f} times what their bytes do (median)")
    if given.out:
        write_rows(given.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
