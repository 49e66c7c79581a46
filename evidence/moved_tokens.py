"""What an expert layer written in PyTorch does around its products, timed on this GPU.

    python evidence/moved_tokens.py [--compiled] [--out FILE.jsonl]

A rank's tokens are routed, copied into the order of their experts, sorted by expert again as they would lie after an
exchange between `ranks` ranks, brought back and added up; the experts themselves leave them as they are. Four ways, and
with --compiled the first three under torch.compile:

- `rows`: rows picked by an index, empty rows between experts, weighted sums by a batched product in fp32 (torchtitan
  since November 2025),
- `sums`: rows picked by gather, added up by scatter_add (torchtitan before; prime-rl; PithTrain),
- `alone`: as `rows`, of a rank that has all experts: no exchange, so no second order and no empty rows,
- `chunks`: a mask of tokens by experts, index_select, one piece of the message for each rank and expert
  (Megatron-Core without --moe-permute-fusion).

`forward_s` and `backward_s` are sums of the kernels' times, `_ps` the same for each number of a copy; `wall_s` is one
layer after another, both passes, with the host in between, `host_s` the same with so few tokens that the host decides.
A JSON line for each, then a table. evidence/timed/moved-tokens-h200.jsonl: torch 2.11, the gradient all ones.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

WARM, REPEATS, FEW = 3, 8, 64
SHAPES = [(4096, 8, 128, 4, 2048), (16_384, 8, 128, 4, 2048), (8192, 2, 8, 2, 4096), (4096, 8, 256, 32, 7168)]
"""tokens, experts of each, experts, ranks, width: Qwen3-30B, the same with more tokens, Mixtral, DeepSeek-V3"""
Row = dict[str, Any]
Layer = Callable[[Any, Any], Any]


def order_after_exchange(counts: Any, ranks: int) -> Any:
    """Where the rows of each expert lie in what `ranks` ranks sent, each of them in the order of experts."""
    import torch

    owned = len(counts) // ranks
    ids = torch.repeat_interleave(torch.arange(owned, device=counts.device).repeat(ranks), counts)
    return torch.argsort(ids, stable=True)


def by_rows(top_k: int, ranks: int, fill: int = 8) -> Layer:
    import torch

    def run(x: Any, logits: Any) -> Any:
        scores = torch.softmax(logits.float(), dim=1)
        _, picked = torch.topk(scores, top_k, dim=-1, sorted=False)
        weights = scores.gather(1, picked)
        counts = torch.histc(picked.flatten().float(), bins=logits.shape[1], min=0, max=logits.shape[1])
        order = torch.argsort(picked.flatten(), stable=True)
        rows = x[order // top_k]
        counts.view(ranks, -1).sum(1).cpu()
        with torch.no_grad():
            again = order_after_exchange(counts.long(), ranks)
            owned = logits.shape[1] // ranks
            again = torch.cat((again, torch.full((owned * fill,), len(again), device=x.device)))
        rows = torch.vstack((rows, rows.new_zeros(rows.shape[-1])))
        shape = rows.shape
        rows = rows[again, :]
        back = rows.new_empty(shape)
        back[again, :] = rows
        found = torch.zeros_like(back[:-1])
        found[order] = back[:-1]
        found = found.reshape(-1, top_k, x.shape[-1])
        return torch.bmm(weights[:, None, :], found.float()).to(x.dtype).squeeze(1)

    return run


def by_rows_alone(top_k: int, _: int) -> Layer:
    import torch

    def run(x: Any, logits: Any) -> Any:
        scores = torch.softmax(logits.float(), dim=1)
        _, picked = torch.topk(scores, top_k, dim=-1, sorted=False)
        weights = scores.gather(1, picked)
        order = torch.argsort(picked.flatten(), stable=True)
        rows = x[order // top_k]
        found = torch.zeros_like(rows)
        found[order] = rows
        found = found.reshape(-1, top_k, x.shape[-1])
        return torch.bmm(weights[:, None, :], found.float()).to(x.dtype).squeeze(1)

    return run


def by_sums(top_k: int, ranks: int) -> Layer:
    import torch

    def run(x: Any, logits: Any) -> Any:
        scores = torch.softmax(logits.float(), dim=1)
        weights, picked = torch.topk(scores, top_k, dim=-1)
        counts = torch.histc(picked.flatten().float(), bins=logits.shape[1], min=0, max=logits.shape[1])
        order = torch.argsort(picked.flatten(), stable=True)
        token = (order // top_k)[:, None].expand(-1, x.shape[-1])
        rows = torch.gather(x, 0, token)
        counts.view(ranks, -1).sum(1).cpu()
        with torch.no_grad():
            again = order_after_exchange(counts.long(), ranks)
            undo = torch.empty_like(again)
            undo[again] = torch.arange(len(again), device=x.device)
        rows = rows[again][undo]
        rows = (rows.float() * weights.flatten()[order][:, None]).to(x.dtype)
        return torch.zeros_like(x).scatter_add(0, token, rows)

    return run


def by_chunks(top_k: int, ranks: int) -> Layer:
    import torch

    def run(x: Any, logits: Any) -> Any:
        best, picked = torch.topk(logits, top_k, dim=1)
        shares = torch.softmax(best, dim=-1, dtype=torch.float32).type_as(logits)
        weights = torch.zeros_like(logits).scatter(1, picked, shares)
        chosen = torch.zeros_like(logits).int().scatter(1, picked, 1).bool()
        counts = chosen.sum(0)
        by_expert = chosen.T.contiguous()
        token = torch.arange(len(x), device=x.device).expand(logits.shape[1], -1).masked_select(by_expert)
        share = weights.T.contiguous().masked_select(by_expert)
        rows = x.index_select(0, token)
        sizes = counts.tolist()
        owned = logits.shape[1] // ranks
        order = [rank * owned + expert for expert in range(owned) for rank in range(ranks)]
        rows, share = torch.split(rows, sizes), torch.split(share, sizes)
        rows, share = (torch.cat([each[i] for i in order]) for each in (rows, share))
        rows = (rows.float() * share[:, None]).to(x.dtype)  # beside the activation, in Megatron's experts
        undo = sorted(range(len(order)), key=order.__getitem__)
        rows = torch.split(rows, [sizes[i] for i in order])
        rows = torch.cat([rows[i] for i in undo])
        return torch.zeros_like(x).scatter_add(0, token[:, None].expand(-1, x.shape[-1]), rows)

    return run


WAYS = {"rows": by_rows, "alone": by_rows_alone, "sums": by_sums, "chunks": by_chunks}


def kernels(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of all kernels of one run, and their number."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(WARM):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(REPEATS):
            run()
        torch.cuda.synchronize()
    events = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sum(e.time_range.elapsed_us() for e in events) / 1e6 / REPEATS, len(events) / REPEATS


def wall(run: Callable[[], Any], layers: int = 8) -> float:
    import torch

    found = []
    for _ in range(WARM + REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(layers):
            run()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / layers)
    return median(found[WARM:])


def timed(name: str, layer: Layer, shape: tuple[int, ...]) -> Row:
    import torch

    tokens, top_k, experts, _, width = shape

    def inputs(many: int) -> tuple[Any, Any, Any]:
        x = torch.randn(many, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
        logits = torch.rand(many, experts, device="cuda").requires_grad_()
        return x, logits, torch.randn(many, width, device="cuda", dtype=torch.bfloat16)

    x, logits, gradient = inputs(tokens)
    few_x, few_logits, few_gradient = inputs(FEW)

    def forward() -> Any:
        with torch.no_grad():
            return layer(x, logits)

    def both() -> Any:
        return torch.autograd.grad(layer(x, logits), (x, logits), gradient)

    def few() -> Any:
        return torch.autograd.grad(layer(few_x, few_logits), (few_x, few_logits), few_gradient)

    def few_forward() -> Any:
        with torch.no_grad():
            return layer(few_x, few_logits)

    ahead, launches = kernels(forward)
    whole, all_launches = kernels(both)
    elements = tokens * top_k * width
    return {"way": name, "shape": list(shape), "forward_s": ahead, "backward_s": whole - ahead,
            "forward_kernels": launches, "backward_kernels": all_launches - launches,
            "forward_ps": 1e12 * ahead / elements, "backward_ps": 1e12 * (whole - ahead) / elements,
            "wall_s": wall(both), "host_forward_s": wall(few_forward), "host_s": wall(few)}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the JSON lines there too")
    parser.add_argument("--compiled", action="store_true", help="what a compiler takes, under torch.compile")
    given = parser.parse_args()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no CUDA device: the layers can only be timed on a GPU")
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    found = []
    for shape in SHAPES:
        for name, way in WAYS.items():
            if given.compiled and name == "chunks":  # its lists of sizes are read on the host
                continue
            layer = way(shape[1], shape[3])
            found.append(timed(f"{name} compiled" if given.compiled else name,
                               torch.compile(layer, dynamic=False) if given.compiled else layer, shape))  # fmt: skip
            print(json.dumps(found[-1]), flush=True)
    print(f"{torch.cuda.get_device_properties(0).name}, torch {torch.__version__}")
    for row in found:
        rest = "  ".join(f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
        print(f"{row['way']:<8} {row['shape']!s:<32} {rest}")
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
