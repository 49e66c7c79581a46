"""Decode steps of whole models on this GPU, beside what the planner says of them.

    python evidence/decode_steps.py --predict FILE.csv          needs no GPU
    python evidence/decode_steps.py --measure FOLDER            steps.csv, parts.csv, passes.csv, copies.csv

Plain PyTorch: random weights in bf16, matrices of one input in one, a static cache of keys and values of exactly the
context, scaled_dot_product_attention by its flash kernel, torch.compile on what is element-wise, one CUDA graph a step
from a token's embedding to the next token. Medians of replays. The grid was set before anything was measured; `FITTED`
are the models whose times may be fitted on, the others are only compared.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from shardwise.cost.network import Network
from shardwise.question.job import DEFAULT_STACK
from shardwise.spec.arch import model_of
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.software import known_stack
from shardwise.step.posttrain.engine import RolloutEngine, shard_bytes
from shardwise.step.posttrain.facts import facts
from shardwise.work.case import driven_network

SETS = {
    "first": (
        ("qwen3-0.6b", "qwen3-1.7b", "qwen3-8b", "llama-3.1-8b", "qwen3-14b", "qwen3-30b-a3b"),
        (1, 8, 32, 64, 128, 256, 512), (512, 2048, 8192, 32_768),
    ),
    "second": (("qwen3-4b", "llama-3.2-3b", "qwen3-30b-a3b"), (4, 16, 48, 96, 192, 384), (1024, 4096, 16_384)),
}  # fmt: skip
"""models, batches, contexts; the second was set, and predicted, after the first had been measured"""
FITTED = ("qwen3-0.6b", "qwen3-8b")
"""of the first set"""
MOST_CACHE = 60e9
PASSES = ((8, 512), (4, 2048), (1, 8192))
"""sequences and tokens of a prefill and of a pass for log-probabilities"""
REPEATS, WARM = 15, 3
DEVICE = "cuda"


class Timed(NamedTuple):
    kind: str
    model: str
    batch: int
    context: int
    seconds: float


def engine_of(name: str) -> RolloutEngine:
    """Without a host, and with the greatest logit taken in one pass."""
    cluster = cluster_of("1xh200")
    network: Network = driven_network(cluster, known_stack(DEFAULT_STACK))
    return RolloutEngine(model_of(name), cluster, network, facts().engines["torch"], 1)


def grid(name: str, which: str) -> Iterator[tuple[int, int]]:
    _, batches, contexts = SETS[which]
    token = engine_of(name).token_bytes
    for context in contexts:
        for batch in batches:
            if batch * context * token <= MOST_CACHE:
                yield batch, context


def predictions(which: str) -> Iterator[Timed]:
    for name in SETS[which][0]:
        engine = engine_of(name)
        for batch, context in grid(name, which):
            said = engine.decode_seconds(np.array([batch]), np.array([context]))
            yield Timed("decode", name, batch, context, float(said[0]))
        for batch, tokens in PASSES:
            yield Timed("prefill", name, batch, tokens, batch * tokens * engine.prefill_token_s(tokens))
        host = engine.cluster.gpu.pcie_bandwidth
        yield Timed("to host", name, 1, 0, shard_bytes(engine.model) / host)


def write(path: Path, rows: list[Timed]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(Timed._fields)
        table.writerows([*row[:-1], f"{row.seconds:.5g}"] for row in rows)


def add_norm(x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
    import torch

    total = x + residual
    return torch.nn.functional.rms_norm(total, (total.shape[-1],), weight, 1e-6), total


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    import torch

    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def turned(qkv: Any, cos: Any, sin: Any, q_norm: Any, k_norm: Any, heads: int, kv_heads: int) -> tuple[Any, Any]:
    """Queries, and keys beside values as the cache has them."""
    import torch

    width = cos.shape[-1]
    q, k, v = qkv.view(qkv.shape[0], heads + 2 * kv_heads, width).split([heads, kv_heads, kv_heads], dim=1)
    if q_norm is not None:
        q = torch.nn.functional.rms_norm(q, (width,), q_norm, 1e-6)
        k = torch.nn.functional.rms_norm(k, (width,), k_norm, 1e-6)
    return rotated(q, cos, sin), torch.stack((rotated(k, cos, sin), v), dim=1)


def gated(x: Any) -> Any:
    import torch

    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


class Decoder:
    """One model on one GPU with random weights."""

    def __init__(self, model: Model) -> None:
        import torch

        torch._dynamo.reset()
        self.torch, self.model, layer = torch, model, model.kinds[0]
        assert layer.attention is not None
        self.layer, self.attention, hidden = layer, layer.attention, model.hidden
        self.heads, self.kv_heads, self.width = self.attention.heads, self.attention.kv_heads, self.attention.head_dim
        rows = (self.heads + 2 * self.kv_heads) * self.width
        every = range(model.layers)
        self.qkv = [self.matrix(rows, hidden) for _ in every]
        self.out = [self.matrix(hidden, self.heads * self.width) for _ in every]
        self.norms = [(self.ones(hidden), self.ones(hidden)) for _ in every]
        self.qk_norm = (
            (self.ones(self.width), self.ones(self.width)) if self.attention.qk_norm == "head" else (None, None)
        )
        experts = layer.experts
        if experts is None:
            assert layer.feed_forward is not None
            inner = layer.feed_forward.width
            self.up = [self.matrix(2 * inner, hidden) for _ in every]
            self.down = [self.matrix(hidden, inner) for _ in every]
        else:
            self.router = [self.matrix(experts.count, hidden) for _ in every]
            self.up = [self.matrix(2 * experts.width, hidden, experts.count) for _ in every]
            self.down = [self.matrix(hidden, experts.width, experts.count) for _ in every]
        self.embedding = self.matrix(model.vocab, hidden)
        self.head = self.embedding if model.tied else self.matrix(model.vocab, hidden)
        self.last = self.ones(hidden)
        angle = torch.rand(self.width, device=DEVICE, dtype=torch.float32)
        self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        self.compiled()

    def compiled(self) -> None:
        compile_ = self.torch.compile
        self.add_norm, self.turned, self.gated = compile_(add_norm), compile_(turned), compile_(gated)

    def plain(self) -> None:
        self.add_norm, self.turned, self.gated = add_norm, turned, gated

    def ones(self, length: int) -> Any:
        return self.torch.ones(length, device=DEVICE, dtype=self.torch.bfloat16)

    def matrix(self, rows: int, columns: int, count: int = 0) -> Any:
        shape = (count, rows, columns) if count else (rows, columns)
        made = self.torch.empty(shape, device=DEVICE, dtype=self.torch.bfloat16)
        return made.normal_(0.0, columns**-0.5)

    def tensors(self) -> list[Any]:
        ends = [self.embedding] if self.model.tied else [self.embedding, self.head]
        return [*self.qkv, *self.out, *self.up, *self.down, *ends]

    def cache(self, size: int) -> None:
        """Numbers of each layer's keys and values."""
        make = self.torch.empty
        self.cached = [make(size, device=DEVICE, dtype=self.torch.bfloat16).normal_() for _ in range(self.model.layers)]

    def view(self, index: int, batch: int, context: int) -> Any:
        shape = (batch, context, 2, self.kv_heads, self.width)
        return self.cached[index][: batch * context * 2 * self.kv_heads * self.width].view(shape)

    def attend(self, q: Any, kept: Any) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        query = q.unsqueeze(2)
        keys, values = kept[:, :, 0].transpose(1, 2), kept[:, :, 1].transpose(1, 2)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            found = self.torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
        return found.reshape(q.shape[0], self.heads * self.width)

    def feed(self, index: int, x: Any) -> Any:
        if self.layer.experts is None:
            return self.gated(x @ self.up[index].t()) @ self.down[index].t()
        return self.routed(index, x)

    def routed(self, index: int, x: Any) -> Any:
        torch, experts = self.torch, self.layer.experts
        chances = torch.softmax((x @ self.router[index].t()).float(), dim=-1)
        weights, chosen = chances.topk(experts.top_k, dim=-1)
        flat = chosen.reshape(-1)
        ordered, order = flat.sort()
        ends = torch.searchsorted(ordered, torch.arange(experts.count, device=DEVICE), right=True).int()
        rows = x[order // experts.top_k]
        inner = self.gated(torch._grouped_mm(rows, self.up[index].transpose(1, 2), offs=ends))
        found = torch._grouped_mm(inner, self.down[index].transpose(1, 2), offs=ends)
        found = found * weights.reshape(-1)[order].unsqueeze(1).to(found.dtype)
        return torch.zeros_like(x).index_add_(0, order // experts.top_k, found)

    def step(self, tokens: Any, batch: int, context: int) -> None:
        x, residual = (
            self.embedding[tokens],
            self.torch.zeros((batch, self.model.hidden), device=DEVICE, dtype=self.torch.bfloat16),
        )
        for index in range(self.model.layers):
            x, residual = self.add_norm(x, residual, self.norms[index][0])
            q, new = self.turned(
                x @ self.qkv[index].t(), self.cos, self.sin, *self.qk_norm, self.heads, self.kv_heads
            )  # fmt: skip
            kept = self.view(index, batch, context)
            kept[:, context - 1].copy_(new)
            x = self.attend(q, kept) @ self.out[index].t()
            x, residual = self.add_norm(x, residual, self.norms[index][1])
            x = self.feed(index, x)
        x, _ = self.add_norm(x, residual, self.last)
        tokens.copy_((x @ self.head.t()).argmax(-1))

    def sequence_pass(self, tokens: Any, batch: int, length: int, every_logit: bool) -> Any:
        """A prefill, or a pass for the log-probability of each token."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        torch = self.torch
        x, residual = (
            self.embedding[tokens],
            torch.zeros((batch * length, self.model.hidden), device=DEVICE, dtype=torch.bfloat16),
        )
        for index in range(self.model.layers):
            x, residual = self.add_norm(x, residual, self.norms[index][0])
            q, new = self.turned(
                x @ self.qkv[index].t(), self.cos, self.sin, *self.qk_norm, self.heads, self.kv_heads
            )  # fmt: skip
            q = q.view(batch, length, self.heads, self.width).transpose(1, 2)
            k, v = (part.view(batch, length, self.kv_heads, self.width).transpose(1, 2) for part in new.unbind(1))
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                x = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x.transpose(1, 2).reshape(batch * length, -1) @ self.out[index].t()
            x, residual = self.add_norm(x, residual, self.norms[index][1])
            x = self.feed(index, x)
        x, _ = self.add_norm(x, residual, self.last)
        if not every_logit:
            return (x[length - 1 :: length] @ self.head.t()).argmax(-1)
        return torch.cat([
            torch.log_softmax((part @ self.head.t()).float(), dim=-1).gather(1, words.unsqueeze(1))
            for part, words in zip(x.split(2048), tokens.split(2048), strict=True)
        ])  # fmt: skip


def graphed(torch: Any, run: Callable[[], Any]) -> float:
    """Median seconds of a replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for _ in range(WARM):
        graph.replay()
    return timed(torch, graph.replay)


def timed(torch: Any, run: Callable[[], Any], repeats: int = REPEATS) -> float:
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for begin, end in marks:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return float(median(begin.elapsed_time(end) for begin, end in marks)) / 1e3


def attempt(what: str, run: Callable[[], float]) -> float:
    try:
        return run()
    except Exception as error:  # one part that fails must not take the others with it
        print(f"failed: {what}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return 0.0


def steps(decoder: Decoder, name: str, points: list[tuple[int, int]]) -> Iterator[Timed]:
    torch = decoder.torch
    for batch, context in points:
        tokens = torch.randint(0, decoder.model.vocab, (batch,), device=DEVICE)
        seconds = attempt(
            f"decode {name} {batch} {context}",
            lambda tokens=tokens, batch=batch, context=context: graphed(  # type: ignore[misc]
                torch, lambda: decoder.step(tokens, batch, context)
            ),
        )
        if seconds:
            yield Timed("decode", name, batch, context, seconds)


def parts(decoder: Decoder, name: str, points: list[tuple[int, int]]) -> Iterator[Timed]:
    """Kernels of one kind over all layers, in one graph; seconds of one layer's."""
    torch, layers, hidden = decoder.torch, decoder.model.layers, decoder.model.hidden

    def over(run: Callable[[int], Any]) -> float:
        return graphed(torch, lambda: [run(index) for index in range(layers)]) / layers

    def rows(batch: int, width: int) -> Any:
        return torch.randn(batch, width, device=DEVICE, dtype=torch.bfloat16)

    for batch in sorted({batch for batch, _ in points}):
        q = rows(batch, decoder.heads * decoder.width)
        x, turns = rows(batch, hidden), rows(batch, (decoder.heads + 2 * decoder.kv_heads) * decoder.width)
        found: dict[str, Callable[[], float]] = {
            "qkv": lambda x=x: over(lambda i: x @ decoder.qkv[i].t()),  # type: ignore[misc]
            "out": lambda q=q: over(lambda i: q @ decoder.out[i].t()),  # type: ignore[misc]
            "add_norm": lambda x=x: over(lambda i: decoder.add_norm(x, x, decoder.norms[i][0])),  # type: ignore[misc]
            "turned": lambda t=turns: over(  # type: ignore[misc]
                lambda _: decoder.turned(t, decoder.cos, decoder.sin, *decoder.qk_norm, decoder.heads, decoder.kv_heads)
            ),
            "head": lambda x=x: graphed(torch, lambda: x @ decoder.head.t()),  # type: ignore[misc]
        }
        if decoder.layer.experts is None:
            inner = decoder.down[0].shape[1]
            wide, narrow = rows(batch, 2 * inner), rows(batch, inner)
            found |= {
                "up": lambda x=x: over(lambda i: x @ decoder.up[i].t()),  # type: ignore[misc]
                "down": lambda n=narrow: over(lambda i: n @ decoder.down[i].t()),  # type: ignore[misc]
                "gated": lambda w=wide: over(lambda _: decoder.gated(w)),  # type: ignore[misc]
            }
        else:
            found["routed"] = lambda x=x: over(lambda i: decoder.routed(i, x))  # type: ignore[misc]
        for part, run in found.items():
            yield Timed(part, name, batch, 0, attempt(f"{part} {name} {batch}", run))
        for context in sorted({context for size, context in points if size == batch}):
            query = q.view(batch, decoder.heads, decoder.width)
            seconds = attempt(f"attention {name} {batch} {context}", lambda: over(
                lambda i: decoder.attend(query, decoder.view(i, batch, context))))  # noqa: B023  # fmt: skip
            yield Timed("attention", name, batch, context, seconds)


def passes(decoder: Decoder, name: str) -> Iterator[Timed]:
    torch = decoder.torch
    for batch, length in PASSES:
        tokens = torch.randint(0, decoder.model.vocab, (batch * length,), device=DEVICE)
        for kind in ("prefill", "log-probs"):

            def run(kind: str = kind, batch: int = batch, length: int = length, tokens: Any = tokens) -> Any:
                return decoder.sequence_pass(tokens, batch, length, kind == "log-probs")

            def measured(run: Callable[[], Any] = run) -> float:
                run()
                run()
                return timed(torch, run, 5)

            yield Timed(kind, name, batch, length, attempt(f"{kind} {name} {batch} {length}", measured))


def copies(decoder: Decoder, name: str) -> Iterator[Timed]:
    """All weights out of the GPU and back, as sleep and wake of an engine move them."""
    torch, tensors = decoder.torch, decoder.tensors()
    made = time.perf_counter()
    pinned = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
    yield Timed("pin", name, len(tensors), 0, time.perf_counter() - made)
    moves: dict[str, Callable[[], Any]] = {
        "to host": lambda: [there.copy_(here, non_blocking=True) for there, here in zip(pinned, tensors, strict=True)],
        "from host": lambda: [
            here.copy_(there, non_blocking=True) for there, here in zip(pinned, tensors, strict=True)
        ],
    }
    free = torch.cuda.mem_get_info()[0]
    if free > 1.2 * shard_bytes(decoder.model):
        twins = [torch.empty_like(t) for t in tensors]
        moves["on the GPU"] = lambda: [there.copy_(here) for there, here in zip(twins, tensors, strict=True)]
    for kind, run in moves.items():
        yield Timed(kind, name, len(tensors), 0, attempt(f"{kind} {name}", lambda: timed(torch, run, 3)))  # noqa: B023
    plain = [torch.empty(t.shape, dtype=t.dtype) for t in tensors[:40]]
    begun = time.perf_counter()
    for there, here in zip(plain, tensors, strict=False):
        there.copy_(here)
    share = sum(t.numel() for t in plain) / sum(t.numel() for t in tensors)
    yield Timed("to pageable host", name, len(plain), 0, (time.perf_counter() - begun) / share)


def measure(folder: Path, which: str) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    found: list[Timed] = []
    with torch.no_grad():
        for name in SETS[which][0]:
            begun = time.perf_counter()
            points = list(grid(name, which))
            try:
                decoder = Decoder(model_of(name))
                most = max(batch * context for batch, context in points)
                decoder.cache(most * 2 * decoder.kv_heads * decoder.width)
                probe = torch.randint(0, decoder.model.vocab, (8,), device=DEVICE)
                try:
                    decoder.step(probe, 8, 512)
                except Exception as error:  # a compiler that is not there: the same functions, kernel by kernel
                    print(f"not compiled: {str(error)[:300]}", flush=True)
                    decoder.plain()
                found += steps(decoder, name, points)
                found += parts(decoder, name, points)
                found += passes(decoder, name)
                decoder.cached = []
                torch.cuda.empty_cache()
                if which == "first" and decoder.layer.experts is None:
                    found += copies(decoder, name)
            except Exception as error:  # the next model is another question
                print(f"failed: {name}: {type(error).__name__}: {str(error)[:500]}", flush=True)
            decoder = None  # type: ignore[assignment]
            torch.cuda.empty_cache()
            write(folder / "measured.csv", found)
            print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)


def compare(measured: list[Timed], which: str) -> None:
    said = {row[:-1]: row.seconds for row in predictions(which)}
    for name in SETS[which][0]:
        rows = [row for row in measured if row.model == name and row.kind == "decode" and row.seconds]
        if rows:
            errors = [said[row[:-1]] / row.seconds - 1 for row in rows]
            print(
                f"{name:16} {len(rows):3} steps, mean error {np.mean(np.abs(errors)):.1%}, bias {np.mean(errors):+.1%}"
            )


def read(path: Path) -> list[Timed]:
    with path.open(encoding="utf-8") as file:
        return [
            Timed(row["kind"], row["model"], int(row["batch"]), int(row["context"]), float(row["seconds"]))
            for row in csv.DictReader(file)
        ]


def main() -> int:
    asked = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    asked.add_argument("--predict", type=Path)
    asked.add_argument("--measure", type=Path)
    asked.add_argument("--compare", type=Path)
    asked.add_argument("--set", choices=SETS, default="first")
    given = asked.parse_args()
    if given.predict:
        write(given.predict, list(predictions(given.set)))
    if given.measure:
        measure(given.measure, given.set)
        compare(read(given.measure / "measured.csv"), given.set)
    if given.compare:
        compare(read(given.compare), given.set)
    return 0


if __name__ == "__main__":
    sys.exit(main())
