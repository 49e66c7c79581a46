"""What programs that write their expert layers in PyTorch leave to it, timed on this GPU.

    python evidence/token_sums.py [--out FILE.jsonl]

Sums: a token's copies added up by index_add, scatter_add or index_put, in 16 bits and in fp32, copies in the order of
their experts. Picks: rows picked for the experts, whose gradient is such a sum. Products: torch's grouped_mm over
experts beside one product of the same size. Loop: Hugging Face's experts one after another, with the host's time.
Waits: what a layer loses where the host reads the token counts. Medians of 10 after a warm-up, bf16. `adds` are numbers
added in a second by each multiprocessor: work/unfused.py has them. A JSON line for each, then a table.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

WARM, REPEATS = 3, 10
TOKENS = [(4096, 8, 2048), (16_384, 8, 2048), (16_384, 4, 2880), (8192, 2, 4096), (4096, 8, 7168)]
"""tokens, experts of each, width: Qwen3-30B, the same at 16k, gpt-oss, Mixtral, DeepSeek-V3"""
PRODUCTS = [
    (128, 256, 1536, 2048), (128, 1024, 1536, 2048), (128, 1024, 2048, 768), (16, 4096, 1536, 2048),
    (16, 4096, 2048, 768), (32, 2048, 5760, 2880), (8, 1024, 28_672, 4096), (4, 8192, 4096, 7168),
]  # fmt: skip
"""experts, rows of each, outputs, inputs"""
Row = dict[str, Any]


def seconds(run: Callable[[], Any]) -> float:
    """Of the device; the host is ahead."""
    import torch

    found = []
    for _ in range(WARM + REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(5_000_000)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / 1e3)
    return median(found[WARM:])


def routed(tokens: int, chosen: int, experts: int = 128) -> Any:
    """The token of each copy, copies in the order of their experts."""
    import torch

    scores = torch.rand(tokens, experts, device="cuda")
    picked = scores.topk(chosen, dim=1).indices.flatten()
    return torch.argsort(picked, stable=True) // chosen


def sums(tokens: int, chosen: int, width: int) -> Iterator[Row]:
    import torch

    token = routed(tokens, chosen)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for dtype in (torch.bfloat16, torch.float32):
        copies = torch.randn(tokens * chosen, width, device="cuda", dtype=dtype)
        into, wide = torch.zeros(tokens, width, device="cuda", dtype=dtype), token[:, None].expand(-1, width)
        for name, run in (
            ("index_add", lambda c=copies, o=into: o.index_add_(0, token, c)),
            ("scatter_add", lambda c=copies, o=into, w=wide: o.scatter_add_(0, w, c)),
            ("index_put", lambda c=copies, o=into: o.index_put_((token,), c, accumulate=True)),
        ):
            took = seconds(run)
            rate = copies.numel() / took
            yield {"piece": "sum", "name": f"{name} {str(dtype)[6:]}", "shape": [tokens, chosen, width],
                   "seconds": took, "adds_per_sm_s": rate / sms,
                   "bytes_per_s": 3 * copies.element_size() * rate}  # fmt: skip


def picks(tokens: int, chosen: int, width: int) -> Iterator[Row]:
    import torch

    token = routed(tokens, chosen)
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    wide = token[:, None].expand(-1, width)
    for name, pick in (
        ("x[token]", lambda: x[token]),
        ("index_select", lambda: x.index_select(0, token)),
        ("gather", lambda: torch.gather(x, 0, wide)),
    ):
        gradient = torch.randn_like(pick())
        forward = seconds(pick)
        both = seconds(lambda g=gradient, p=pick: torch.autograd.grad(p(), x, g))
        yield {"piece": "pick", "name": name, "shape": [tokens, chosen, width], "seconds": forward,
               "backward_s": both - forward}  # fmt: skip


def products(experts: int, rows: int, out: int, inner: int) -> Iterator[Row]:
    import torch

    made = {"device": "cuda", "dtype": torch.bfloat16}
    x, w = torch.randn(experts * rows, inner, **made), torch.randn(experts, out, inner, **made)
    y = torch.randn(experts * rows, out, **made)
    ends = torch.arange(rows, experts * rows + 1, rows, device="cuda", dtype=torch.int32)
    one = torch.randn(out, inner, **made)
    flops = 2.0 * experts * rows * out * inner
    for name, run in (
        ("grouped forward", lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)),
        ("grouped input's", lambda: torch._grouped_mm(y, w, offs=ends)),
        ("grouped weight's", lambda: torch._grouped_mm(y.t(), x, offs=ends)),
        ("one product", lambda: x @ one.t()),
    ):
        took = seconds(run)
        yield {"piece": "product", "name": name, "shape": [experts, rows, out, inner], "seconds": took,
               "tflops": flops / took / 1e12}  # fmt: skip


def looped(x: Any, chosen: Any, up: Any, down: Any) -> Any:
    """Experts one after another, as transformers below 5 runs them."""
    import torch

    found = torch.zeros_like(x)
    mask = torch.nn.functional.one_hot(chosen, len(up)).permute(2, 1, 0)
    for expert in range(len(up)):
        _, token = torch.where(mask[expert])
        gate, value = (x[token] @ up[expert].t()).chunk(2, -1)
        out = (torch.nn.functional.silu(gate) * value) @ down[expert].t()
        found.index_add_(0, token, out.to(found.dtype))
    return found


def loops(tokens: int = 8192, experts: int = 128, width: int = 768, hidden: int = 2048) -> Iterator[Row]:
    import torch

    made = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(tokens, hidden, **made).requires_grad_()
    up = torch.randn(experts, 2 * width, hidden, **made).requires_grad_()
    down = torch.randn(experts, hidden, width, **made).requires_grad_()
    chosen = torch.rand(tokens, experts, device="cuda").topk(8, dim=1).indices
    gradient = torch.randn(tokens, hidden, **made)
    passes: dict[str, list[float]] = {"forward": [], "backward": []}
    for _ in range(WARM + REPEATS):
        for name, run in (("forward", lambda: looped(x, chosen, up, down)), ("backward", None)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            if run is not None:
                found = run()
            else:
                torch.autograd.grad(found, [x, up, down], gradient)
            torch.cuda.synchronize()
            passes[name].append(time.perf_counter() - start)
    for name, took in passes.items():
        yield {"piece": "loop", "name": name, "shape": [tokens, experts, width, hidden],
               "seconds": median(took[WARM:])}  # fmt: skip


def waits(layers: int = 48) -> Iterator[Row]:
    """Layers of ten kernels each, with and without a look at the token counts in the middle."""
    import torch

    a = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    ids = torch.randint(0, 128, (32_768,), device="cuda")
    for name in ("counts stay on the device", "counts read by the host"):
        found = []
        for _ in range(WARM + REPEATS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(layers):
                for _ in range(5):
                    a = torch.nn.functional.normalize(a @ w, dim=-1)
                counts = torch.bincount(ids, minlength=128) if "host" in name else ids
                if "host" in name:
                    counts.tolist()
                for _ in range(5):
                    a = torch.nn.functional.normalize(a @ w, dim=-1)
            torch.cuda.synchronize()
            found.append((time.perf_counter() - start) / layers)
        yield {"piece": "wait", "name": name, "shape": [layers], "seconds": median(found[WARM:])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the JSON lines there too")
    given = parser.parse_args()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no CUDA device: the pieces can only be timed on a GPU")
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    jobs = [make(*shape) for shape in TOKENS for make in (sums, picks)]
    jobs += [products(*shape) for shape in PRODUCTS]
    found = []
    for job in (*jobs, loops(), waits()):
        try:
            for row in job:
                found.append(row)
                print(json.dumps(row), flush=True)
        except RuntimeError as reason:  # a shape this torch has no kernel for
            print(f"left out: {reason}", file=sys.stderr)
    print(f"{torch.cuda.get_device_properties(0).name}, torch {torch.__version__}")
    for row in found:
        rest = "  ".join(f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
        print(f"{row['piece']:<8} {row['name']:<28} {row['shape']!s:<24} {rest}")
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
