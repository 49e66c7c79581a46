"""Times the generic kernels that uncompiled programs are made of, on the CUDA device that is there.

    python evidence/trace_kernels.py --out kernels.csv

Each case is one or a few operators on tensors like those of training steps. Bytes are counted as `shardwise trace`
counts them (every input and output once). Kernels are replayed as a CUDA graph where they can be captured, so the
host's launches are not in the times. `run/trace/rates.py` takes its shares of the bandwidth from the table this writes.
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
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Case = tuple[str, Callable[[], Any]]
ROWS = (1024, 8192, 32768)
WIDTH = 4096
NAMED = ("sdpa", "conv", "grouped", "embedding", "index")
"""cases whose kernels are chosen by the library: their names are written down"""
GROUPS = ("elementwise", "rowwise", "losses", "attention", "products", "optimizers", "images", "routing")
LEAST_S = 0.02
"""of repetition under the clock"""


class Counted(TorchDispatchMode):
    """Operators that run kernels and the bytes of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func._opname not in ("detach", "empty", "empty_like", "empty_strided"):
            tensors = [t for t in tree_leaves([args, kwargs or {}, out]) if isinstance(t, Tensor)]
            self.names.append(func._opname)
            self.bytes += sum(t.numel() * t.element_size() for t in tensors)
        return out


def seconds_of(call: Callable[[], Any]) -> tuple[float, bool]:
    """Of one call, and whether it was replayed from a graph."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    replay, graphed = call, False
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            call()
        replay, graphed = graph.replay, True
    except Exception:
        torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(times: int) -> float:
        begin.record()
        for _ in range(times):
            replay()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    once = max(timed(3) / 3, 1e-6)
    times = max(round(LEAST_S / once), 3)
    return min(timed(times) for _ in range(2)) / times, graphed


def _backward(call: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], Any]:
    out = call(*inputs)
    gradient = torch.randn_like(out)
    wanted = [t for t in inputs if t.requires_grad]
    return lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True)


def elementwise(rows: int, dtype: torch.dtype) -> Iterator[Case]:
    x, y = (torch.randn(rows, WIDTH, device="cuda", dtype=dtype) for _ in range(2))
    wide = x.float()
    weight, scale = torch.randn(WIDTH, device="cuda", dtype=dtype), torch.randn(rows, 1, device="cuda", dtype=dtype)
    yield "clone", lambda: x.clone()
    yield "add", lambda: x + y
    yield "mul", lambda: x * y
    yield "mul_scalar", lambda: x * 0.5
    yield "add_scalar", lambda: x + 1.0
    yield "neg", lambda: -x
    yield "pow3", lambda: torch.pow(x, 3.0)
    yield "pow2", lambda: x.pow(2)
    yield "tanh", lambda: torch.tanh(x)
    yield "silu", lambda: F.silu(x)
    yield "gelu", lambda: F.gelu(x)
    yield "gelu_tanh", lambda: F.gelu(x, approximate="tanh")
    yield "silu_backward", lambda: torch.ops.aten.silu_backward(y, x)
    yield "gelu_backward", lambda: torch.ops.aten.gelu_backward(y, x)
    yield "tanh_backward", lambda: torch.ops.aten.tanh_backward(y, x)
    yield "mul_row_weight", lambda: x * weight
    yield "mul_column_scale", lambda: x * scale
    yield "add_in_place", lambda: x.add_(y)
    yield "zero", lambda: x.zero_()
    yield "fill_zeros", lambda: torch.zeros_like(x)
    yield "where", lambda: torch.where(x > 0, x, y)
    yield "sum_rows", lambda: x.sum(-1, keepdim=True)
    yield "mean_rows", lambda: x.mean(-1, keepdim=True)
    yield "sum_columns", lambda: x.sum(0)
    yield "sum_all", lambda: x.sum()
    yield "dropout", lambda: torch.ops.aten.native_dropout(x, 0.1, True)
    mask = torch.ops.aten.native_dropout(x, 0.1, True)[1]
    yield "dropout_backward", lambda: torch.ops.aten.native_dropout_backward(y, mask, 1.1)
    yield "masked_fill", lambda: x.masked_fill(mask, 0.0)
    yield "transposed_copy", lambda: x.t().contiguous()
    heads = x.view(-1, 1024, WIDTH // 128, 128)
    yield "heads_to_front", lambda: heads.transpose(1, 2).contiguous()
    moved = heads.transpose(1, 2)
    table = torch.randn(1, 1, 1024, 128, device="cuda", dtype=dtype)
    yield "mul_heads_table", lambda: moved * table
    yield "rotate_half", lambda: torch.cat((-moved[..., 64:], moved[..., :64]), dim=-1)
    yield "cat_columns", lambda: torch.cat((x, y), dim=-1)
    yield "cat_rows", lambda: torch.cat((x, y))
    yield "chunk_copy", lambda: x[:, : WIDTH // 2].contiguous()
    yield "repeat_kv", lambda: moved[:, :, None].expand(-1, -1, 4, -1, -1).reshape(moved.shape[0], -1, 1024, 128)
    index = torch.randint(0, rows, (rows,), device="cuda")
    order = torch.randperm(rows, device="cuda")
    yield "index_rows", lambda: x[index]
    yield "index_select", lambda: x.index_select(0, index)
    into = torch.zeros_like(x)
    yield "index_add", lambda: into.index_add_(0, index, x)
    yield "index_put_accumulate", lambda: into.index_put_((order,), x, accumulate=True)
    yield "index_put", lambda: into.index_put_((order,), x)
    table_of_words = torch.randn(50304, WIDTH, device="cuda", dtype=dtype)
    words = torch.randint(0, 50304, (rows,), device="cuda")
    yield "embedding", lambda: F.embedding(words, table_of_words)
    yield "embedding_backward", lambda: torch.ops.aten.embedding_dense_backward(x, words, 50304, -1, False)
    if dtype is torch.bfloat16:
        yield "widen", lambda: x.float()
        yield "round", lambda: wide.to(dtype)
        yield "mul_mixed", lambda: x * wide
        yield "add_mixed", lambda: wide + x


def rowwise(rows: int, dtype: torch.dtype, width: int) -> Iterator[Case]:
    x, y = (torch.randn(rows, width, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
    weight, bias = (torch.randn(width, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
    yield "layer_norm", lambda: F.layer_norm(x.detach(), (width,), weight.detach(), bias.detach())
    yield "layer_norm_backward", _backward(lambda a, w, b: F.layer_norm(a, (width,), w, b), x, weight, bias)
    yield "rms_norm", lambda: F.rms_norm(x.detach(), (width,), weight.detach())
    yield "rms_norm_backward", _backward(lambda a, w: F.rms_norm(a, (width,), w), x, weight)
    yield "softmax", lambda: torch.softmax(x.detach(), -1)
    yield "softmax_backward", _backward(lambda a: torch.softmax(a, -1), x)
    del y


def losses(rows: int, vocabulary: int) -> Iterator[Case]:
    x = torch.randn(rows, vocabulary, device="cuda", requires_grad=True)
    labels = torch.randint(0, vocabulary, (rows,), device="cuda")
    yield "log_softmax", lambda: torch.log_softmax(x.detach(), -1)
    yield "log_softmax_backward", _backward(lambda a: torch.log_softmax(a, -1), x)
    yield "cross_entropy", lambda: F.cross_entropy(x.detach(), labels)
    yield "cross_entropy_backward", _backward(lambda a: F.cross_entropy(a, labels), x)


def images(dtype: torch.dtype = torch.bfloat16) -> Iterator[Case]:
    for memory in (torch.contiguous_format, torch.channels_last):
        end = "_last" if memory is torch.channels_last else ""
        for size, channels in ((56, 256), (14, 1024)):
            x = torch.randn(128, channels, size, size, device="cuda", dtype=dtype).to(memory_format=memory)
            x.requires_grad_()
            ones, zeros = (torch.ones(channels, device="cuda", requires_grad=True) for _ in range(2))
            mean, var = (torch.ones(channels, device="cuda") for _ in range(2))

            def norm(a: Tensor, w: Tensor, b: Tensor, mean: Tensor = mean, var: Tensor = var) -> Tensor:
                return F.batch_norm(a, mean, var, w, b, training=True)

            tag = f"{end}_{channels}x{size}"
            yield "batch_norm" + tag, lambda x=x, ones=ones, zeros=zeros, norm=norm: norm(x.detach(), ones, zeros)
            yield "batch_norm_backward" + tag, _backward(norm, x, ones, zeros)
            yield "relu" + tag, lambda x=x: F.relu(x.detach())
            yield "max_pool" + tag, lambda x=x: F.max_pool2d(x.detach(), 3, 2, 1)
            yield "max_pool_backward" + tag, _backward(lambda a: F.max_pool2d(a, 3, 2, 1), x)
            for kernel, groups in ((3, 1), (1, 1), (7, channels)):
                w = torch.randn(channels, channels // groups, kernel, kernel, device="cuda", dtype=dtype)
                w = w.to(memory_format=memory).requires_grad_()

                def conv(a: Tensor, b: Tensor, kernel: int = kernel, groups: int = groups) -> Tensor:
                    return F.conv2d(a, b, padding=kernel // 2, groups=groups)

                yield f"conv{kernel}_g{groups}{tag}", lambda x=x, w=w, conv=conv: conv(x.detach(), w.detach())
                yield f"conv{kernel}_g{groups}_backward{tag}", _backward(conv, x, w)


def attention() -> Iterator[Case]:
    shapes = [(4, 16, 2048, 64), (4, 32, 2048, 128), (2, 16, 4096, 128), (4, 16, 2048, 256),
              (4, 8, 2048, 256), (8, 12, 1024, 64), (32, 12, 197, 64), (64, 16, 512, 64),
              (2, 32, 2048, 80), (2, 32, 2048, 96)]  # fmt: skip
    for batch, heads, seq, width in shapes:
        q, k, v = (
            torch.randn(batch, seq, heads, width, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
            for _ in range(3)
        )
        bools = torch.ones(batch, 1, seq, seq, device="cuda", dtype=torch.bool).tril()
        few = max(heads // 4, 1)
        small_k, small_v = (
            torch.randn(batch, seq, few, width, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
            for _ in range(2)
        )
        ways: dict[str, tuple[tuple[Tensor, ...], dict[str, Any]]] = {
            "causal": ((q, k, v), {"is_causal": True}),
            "whole": ((q, k, v), {}),
            "bool_mask": ((q, k, v), {"attn_mask": bools}),
            "float_mask": ((q, k, v), {"attn_mask": bools.to(torch.bfloat16)}),
            "dropout": ((q, k, v), {"is_causal": True, "dropout_p": 0.1}),
            "mask_dropout": ((q, k, v), {"attn_mask": bools, "dropout_p": 0.1}),
            "grouped": ((q, small_k, small_v), {"is_causal": True, "enable_gqa": True}),
            "grouped_mask": ((q, small_k, small_v), {"attn_mask": bools, "enable_gqa": True}),
        }
        for way, (inputs, settings) in ways.items():
            name = f"{way}_{batch}x{heads}x{seq}x{width}"

            def call(*given: Tensor, settings: dict[str, Any] = settings) -> Tensor:
                return F.scaled_dot_product_attention(*given, **settings)

            yield "sdpa_" + name, lambda call=call, inputs=inputs: call(*inputs)
            try:
                yield "sdpa_backward_" + name, _backward(call, *inputs)
            except Exception as error:
                print(name, "backward", error, file=sys.stderr)
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with sdpa_kernel(backend):
                name = f"{backend.name.lower()}_{batch}x{heads}x{seq}x{width}"
                try:
                    yield "sdpa_" + name, lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    yield (
                        "sdpa_backward_" + name,
                        _backward(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True), q, k, v),
                    )
                except Exception as error:
                    print(name, error, file=sys.stderr)


def products() -> Iterator[Case]:
    for m, n, k in ((8192, 768, 768), (8192, 3072, 768), (8192, 768, 3072), (8192, 50257, 768), (8192, 2048, 2048),
                    (8192, 16384, 2048), (8192, 4096, 14336), (8192, 256000, 2048), (4096, 1280, 5120)):  # fmt: skip
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
        g = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
        yield f"mm_{m}x{n}x{k}", lambda a=a, w=w: a @ w.t()
        yield f"addmm_{m}x{n}x{k}", lambda a=a, w=w, bias=bias: torch.addmm(bias, a, w.t())
        yield f"mm_input_gradient_{m}x{n}x{k}", lambda g=g, w=w: g @ w
        yield f"mm_weight_gradient_{m}x{n}x{k}", lambda a=a, g=g: g.t() @ a
    for experts, tokens, n, k in ((8, 8192, 14336, 4096), (64, 32768, 1408, 2048), (128, 32768, 768, 2048)):
        a = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(experts, n, k, device="cuda", dtype=torch.bfloat16)
        g = torch.randn(tokens, n, device="cuda", dtype=torch.bfloat16)
        ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * (tokens // experts)
        tag = f"{experts}x{tokens}x{n}x{k}"
        yield f"grouped_mm_{tag}", lambda a=a, w=w, ends=ends: torch._grouped_mm(a, w.transpose(-2, -1), offs=ends)
        yield f"grouped_mm_input_gradient_{tag}", lambda g=g, w=w, ends=ends: torch._grouped_mm(g, w, offs=ends)
        yield f"grouped_mm_weight_gradient_{tag}", lambda a=a, g=g, ends=ends: torch._grouped_mm(g.t(), a, offs=ends)
        one = tokens // experts
        yield f"bmm_{tag}", lambda a=a, w=w, one=one, e=experts, k=k: torch.bmm(a.view(e, one, k), w.transpose(-2, -1))
    for batch, m, n, k in ((96, 1024, 1024, 64), (96, 1024, 64, 1024), (32, 2048, 2048, 128), (64, 2048, 2048, 256)):
        a = torch.randn(batch, m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(batch, k, n, device="cuda", dtype=torch.bfloat16)
        yield f"bmm_{batch}x{m}x{n}x{k}", lambda a=a, b=b: torch.bmm(a, b)
    a, b = (torch.randn(8192, 4096, device="cuda") for _ in range(2))
    yield "mm_fp32_8192x8192x4096", lambda: a @ b.t()


def routing() -> Iterator[Case]:
    scores = torch.randn(16384, 64, device="cuda", dtype=torch.bfloat16)
    yield "topk_16384x64", lambda: torch.topk(scores, 8, -1)
    chosen = torch.topk(scores, 8, -1)[1]
    yield "sort_131072", lambda: torch.sort(chosen.view(-1))
    yield "argsort_131072", lambda: torch.argsort(chosen.view(-1))
    yield "one_hot_16384x8x64", lambda: F.one_hot(chosen, 64)
    yield "histc_131072", lambda: torch.histc(chosen.view(-1).float(), bins=64, min=0, max=63)
    yield "cumsum_16384x64", lambda: torch.cumsum(scores, 0)
    hits = F.one_hot(chosen, 64).permute(2, 1, 0)
    yield "where_16384x8", lambda: torch.where(hits[3])


def optimizers() -> Iterator[Case]:
    for dtype in (torch.float32, torch.bfloat16):
        tag = str(dtype).removeprefix("torch.")
        shapes = [(4096, 4096)] * 40 + [(4096,)] * 80
        lists = [[torch.rand(*shape, device="cuda", dtype=dtype) for shape in shapes] for _ in range(4)]
        p, g, m, v = lists
        yield f"foreach_mul_{tag}", lambda p=p: torch._foreach_mul_(p, 0.99)
        yield f"foreach_lerp_{tag}", lambda m=m, g=g: torch._foreach_lerp_(m, g, 0.1)
        yield f"foreach_addcmul_{tag}", lambda v=v, g=g: torch._foreach_addcmul_(v, g, g, 0.1)
        yield f"foreach_sqrt_{tag}", lambda v=v: torch._foreach_sqrt(v)
        yield f"foreach_div_list_{tag}", lambda v=v: torch._foreach_div_(v, [1.01] * len(v))
        yield f"foreach_add_{tag}", lambda v=v: torch._foreach_add_(v, 1e-8)
        yield f"foreach_addcdiv_{tag}", lambda p=p, m=m, v=v: torch._foreach_addcdiv_(p, m, v, [0.01] * len(p))
        yield f"foreach_norm_{tag}", lambda g=g: torch._foreach_norm(g)
        for way in ({"foreach": True}, {"fused": True}):
            weights = [torch.nn.Parameter(t) for t in p]
            for weight, gradient in zip(weights, g, strict=True):
                weight.grad = gradient
            optimizer = torch.optim.AdamW(weights, lr=1e-4, **way)
            optimizer.step()
            yield f"adamw_{next(iter(way))}_{tag}", lambda optimizer=optimizer: optimizer.step()
            del optimizer


def host() -> list[dict[str, Any]]:
    """Seconds the host needs for an operator of each kind: tensors so small that no kernel is waited for."""
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    w = torch.randn(64, 64, device="cuda", requires_grad=True)
    linear, norm = torch.nn.Linear(64, 64).cuda(), torch.nn.LayerNorm(64).cuda()
    q = torch.randn(1, 4, 16, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def chain(times: int) -> Tensor:
        y = x
        for _ in range(times):
            y = y * 1.01
        return y

    def many(call: Callable[[], Any]) -> float:
        for _ in range(50):
            call()
        torch.cuda.synchronize()
        begin = perf_counter()
        for _ in range(500):
            call()
        spent = perf_counter() - begin
        torch.cuda.synchronize()
        return spent / 500

    @torch.no_grad()
    def alone() -> Tensor:
        return x + 1.0

    found = {
        "host_add_no_grad": many(alone), "host_add": many(lambda: x + 1.0), "host_view": many(lambda: x.view(4, 128)),
        "host_transpose": many(lambda: x.transpose(0, 1)), "host_mm": many(lambda: x @ w),
        "host_linear_module": many(lambda: linear(x)), "host_layer_norm_module": many(lambda: norm(x)),
        "host_sdpa": many(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)),
        "host_item": many(lambda: x.sum().item()),
    }  # fmt: skip
    with torch.autocast("cuda", torch.bfloat16):
        found["host_linear_autocast"] = many(lambda: linear(x))
    out = chain(1000)
    torch.cuda.synchronize()
    begin = perf_counter()
    out.sum().backward()
    found["host_mul_backward"] = (perf_counter() - begin) / 1000
    return [{"case": name, "us": seconds * 1e6} for name, seconds in found.items()]


def _facts() -> list[dict[str, Any]]:
    """What autocast and attention choose on this machine."""
    x = torch.randn(8, 64, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(64, device="cuda")
    found = {}
    with torch.autocast("cuda", torch.bfloat16):
        found["autocast_rms_norm"] = str(F.rms_norm(x, (64,), weight).dtype)
        found["autocast_layer_norm"] = str(F.layer_norm(x, (64,), weight, weight).dtype)
        found["autocast_softmax"] = str(torch.softmax(x, -1).dtype)
        found["autocast_sum"] = str(x.sum(-1).dtype)
        found["autocast_mean"] = str(x.mean(-1).dtype)
    found["cudnn"] = str(torch.backends.cudnn.version())
    return [{"case": name, "ops": text} for name, text in found.items()]


def _kernel_names(call: Callable[[], Any]) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return " ".join(sorted({event.key[:60].replace(" ", "_") for event in profile.key_averages()}))


def cases(only: list[str]) -> Iterator[tuple[str, int, Iterator[Case]]]:
    """A capture that fails leaves torch's random numbers broken: `routing`, where one does, comes last."""
    for dtype in (torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for rows in ROWS:
            if "elementwise" in only:
                yield name, rows, elementwise(rows, dtype)
            if "rowwise" in only:
                yield name, rows, rowwise(rows, dtype, WIDTH)
                yield f"{name}_1024", rows, rowwise(rows * 4, dtype, 1024)
    if "losses" in only:
        yield "fp32_50257", 8192, losses(8192, 50257)
        yield "fp32_128256", 4096, losses(4096, 128256)
    for group in (attention, products, optimizers, images, routing):
        if group.__name__ in only:
            yield "bf16", 0, group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument("--only", metavar="GROUPS", help="names of groups of cases, with commas between")
    asked = parser.parse_args()
    torch.cuda.set_stream(torch.cuda.Stream())  # the default one cannot be captured
    found: list[dict[str, Any]] = [*_facts(), *host()]
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["case", "kind", "rows", "ops", "bytes", "us", "tb_per_s", "graphed", "kernels"])
        writer.writeheader()
        writer.writerows(found)
        for kind, rows, group in cases(asked.only.split(",") if asked.only else list(GROUPS)):
            begin = perf_counter()
            try:
                for name, call in group:
                    try:
                        with Counted() as counted:
                            call()
                        seconds, graphed = seconds_of(call)
                        named = (
                            _kernel_names(call)
                            if name.startswith(("sdpa", "conv", "grouped", "embedding", "index"))
                            else ""
                        )
                    except Exception as error:
                        print(f"{name} {kind} {rows}: {type(error).__name__} {str(error)[:120]}", file=sys.stderr)
                        continue
                    writer.writerow({"case": name, "kind": kind, "rows": rows, "ops": " ".join(counted.names),
                                     "bytes": counted.bytes, "us": round(seconds * 1e6, 2),
                                     "tb_per_s": round(counted.bytes / seconds / 1e12, 3), "graphed": graphed,
                                     "kernels": named})  # fmt: skip
            except Exception as error:
                print(f"{kind} {rows}: {type(error).__name__} {str(error)[:200]}", file=sys.stderr)
            file.flush()
            torch.cuda.empty_cache()
            print(f"{kind} {rows} {perf_counter() - begin:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
