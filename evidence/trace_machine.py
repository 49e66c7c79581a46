"""What a machine adds to the kernels of a training step, on the CUDA device that is there: how long what was touched
stays in the GPU's cache, and what the host needs for each kind of call.

    python evidence/trace_machine.py --out machine.csv

`cache`: the same pass over buffers taken in turn; `bytes` are those of all buffers, touched between two visits of one.
`host`: chains of calls on tensors so small that the GPU waits; `kernels`, `views` and `modules` are what one link of
the chain calls.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trace_kernels import seconds_of

FIELDS = ["group", "case", "bytes", "each_bytes", "kernels", "views", "modules", "us"]
MIB = 2**20
LINKS = 200
RESTS = 5
UNSEEN = ("detach", "empty", "empty_like", "empty_strided", "alias", "_unsafe_view")


def cache() -> Iterator[dict[str, Any]]:
    for each in (1, 2, 4, 8, 16, 32):
        for whole in (2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 256, 512):
            if whole % each or whole < 2 * each:
                continue
            buffers = [torch.randn(each * MIB // 4, device="cuda") for _ in range(whole // each)]
            into = [torch.empty_like(b) for b in buffers[: len(buffers) // 2]]

            def in_place(buffers: list[Tensor] = buffers) -> None:
                for buffer in buffers:
                    buffer.mul_(1.0001)

            def copied(buffers: list[Tensor] = buffers, into: list[Tensor] = into) -> None:
                for source, target in zip(buffers, into, strict=False):
                    torch.add(source, 1.0, out=target)

            def read(buffers: list[Tensor] = buffers) -> None:
                for buffer in buffers:
                    buffer.sum()

            for name, call, many in (("in_place", in_place, len(buffers)), ("copied", copied, len(into)),
                                     ("read", read, len(buffers))):  # fmt: skip
                seconds, _ = seconds_of(call)
                yield {"group": "cache", "case": name, "bytes": whole * MIB, "each_bytes": each * MIB,
                       "us": seconds * 1e6 / many}  # fmt: skip


class Counts(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = self.views = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view or func._opname in UNSEEN:
            self.views += 1
        else:
            self.kernels += 1
        return func(*args, **(kwargs or {}))


def links() -> Iterator[tuple[str, Callable[[Tensor], Tensor], int, Tensor]]:
    """Name, what maps a small tensor to one of its shape, modules it calls, the tensor."""
    torch.manual_seed(0)
    x = torch.randn(8, 16, 64, device="cuda", requires_grad=True)
    other = torch.randn(8, 16, 64, device="cuda", requires_grad=True)
    with torch.device("cuda"):
        linear, bare, norm = nn.Linear(64, 64), nn.Linear(64, 64, bias=False), nn.LayerNorm(64)
        rms, nothing, drop, bend = nn.RMSNorm(64), nn.Identity(), nn.Dropout(0.1), nn.GELU()
        conv, batch = nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64)
        mlp = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    picture = torch.randn(2, 64, 4, 4, device="cuda", requires_grad=True)
    yield "mul_scalar", lambda a: a * 1.01, 0, x
    yield "add", lambda a: a + other, 0, x
    yield "view_back", lambda a: a.view(128, 64).view(8, 16, 64), 0, x
    yield "transpose_twice", lambda a: a.transpose(0, 1).transpose(0, 1), 0, x
    yield "transpose_copy", lambda a: a.transpose(0, 1).contiguous().transpose(0, 1), 0, x
    yield "chunk_cat", lambda a: torch.cat(a.chunk(2, -1), -1), 0, x
    yield "slice_pad", lambda a: F.pad(a[..., :32], (0, 32)), 0, x
    yield "softmax", lambda a: torch.softmax(a, -1), 0, x
    yield "mean_add", lambda a: a + a.mean(-1, keepdim=True), 0, x
    yield "where", lambda a: torch.where(a > 0, a, 0.5), 0, x
    yield "gelu", F.gelu, 0, x
    yield "silu_mul", lambda a: F.silu(a) * other, 0, x
    yield (
        "matmul_4d",
        lambda a: (a.view(8, 2, 8, 64) @ a.view(8, 2, 8, 64).transpose(-1, -2) @ a.view(8, 2, 8, 64)).view(8, 16, 64),
        0,
        x,
    )
    yield "identity", nothing, 1, x
    yield "gelu_module", bend, 1, x
    yield "dropout_module", drop, 1, x
    yield "linear", linear, 1, x
    yield "linear_bare", bare, 1, x
    yield "mlp", mlp, 4, x
    yield "layer_norm", norm, 1, x
    yield "rms_norm", rms, 1, x
    yield "residual_norm", lambda a: a + norm(a), 1, x
    yield "batch_norm", batch, 1, picture
    yield "conv_norm_relu", lambda a: F.relu(batch(conv(a)), inplace=True), 2, picture
    half = x.detach().bfloat16().requires_grad_()
    halved = [nn.Linear(64, 64, dtype=torch.bfloat16, device="cuda") for _ in range(4)]

    def attend(a: Tensor) -> Tensor:
        q, k, v = (m(a).view(8, 16, 1, 64).transpose(1, 2) for m in halved[:3])
        return halved[3](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(8, 16, 64))

    yield "linear_bf16", halved[0], 1, half
    yield "attention_bf16", attend, 4, half
    yield "autocast_linear", linear, 1, x
    yield "autocast_mlp", mlp, 4, x
    yield "autocast_norm_linear", lambda a: a + linear(norm(a)), 2, x
    yield "autocast_conv_norm_relu", lambda a: F.relu(batch(conv(a)), inplace=True), 2, picture


def host() -> Iterator[dict[str, Any]]:
    for name, link, modules, x in links():

        def chain(link: Callable[[Tensor], Tensor] = link, x: Tensor = x, many: int = LINKS) -> Tensor:
            for _ in range(many):
                x = link(x)
            return x

        with torch.autocast("cuda", torch.bfloat16, enabled=name.startswith("autocast")):
            forward, backward = [], []
            for _ in range(RESTS):
                torch.cuda.synchronize()
                begin = perf_counter()
                out = chain()
                forward.append((perf_counter() - begin) / LINKS)
                torch.cuda.synchronize()
                gradient = torch.ones_like(out)
                begin = perf_counter()
                out.backward(gradient)
                backward.append((perf_counter() - begin) / LINKS)
                torch.cuda.synchronize()
            for phase, spent in (("forward", forward), ("backward", backward)):
                counts = []
                for many in (10, 20):
                    out = chain(many=many) if phase == "backward" else x
                    with Counts() as counted:
                        chain(many=many) if phase == "forward" else out.backward(torch.ones_like(out))
                    counts.append((counted.kernels, counted.views))
                (kernels, views), (more, seen) = counts
                yield {"group": "host", "case": f"{phase}_{name}", "kernels": (more - kernels) / 10,
                       "views": (seen - views) / 10, "modules": modules if phase == "forward" else 0,
                       "us": min(spent) * 1e6}  # fmt: skip


def optimizers() -> Iterator[dict[str, Any]]:
    """`modules` are parameters here."""
    ways: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
        "adamw": lambda p: torch.optim.AdamW(p), "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
        "adamw_one_by_one": lambda p: torch.optim.AdamW(p, foreach=False),
        "sgd": lambda p: torch.optim.SGD(p, momentum=0.9), "rmsprop": lambda p: torch.optim.RMSprop(p),
        "adafactor": lambda p: torch.optim.Adafactor(p),
    }  # fmt: skip
    for (name, made), many in ((way, many) for way in ways.items() for many in (50, 400)):
        parameters = [nn.Parameter(torch.randn(8, 8, device="cuda")) for _ in range(many)]
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizer = made(parameters)
        for verb, call in (("step", optimizer.step), ("clip", lambda p=parameters: nn.utils.clip_grad_norm_(p, 1.0))):
            if verb == "clip" and name != "adamw":
                continue
            call()
            spent = []
            for _ in range(RESTS):
                torch.cuda.synchronize()
                begin = perf_counter()
                call()
                spent.append(perf_counter() - begin)
            with Counts() as counted:
                call()
            yield {"group": "host", "case": f"{name}_{verb}", "kernels": counted.kernels, "views": counted.views,
                   "modules": many, "us": min(spent) * 1e6}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument("--groups", default="host,optimizers,cache", help="these, with commas between")
    asked = parser.parse_args()
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for group in (each for each in (host, optimizers, cache) if each.__name__ in asked.groups.split(",")):
            if group is cache:
                torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]  # the default one cannot be captured
            for row in group():
                writer.writerow(row | {"us": round(row["us"], 3)})
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
