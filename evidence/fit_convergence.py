"""How many more steps does a strategy need to the loss of PSGD? Writes the planner's column on convergence.

A small language model (byte by byte, two layers, 37,000 parameters) is trained on the built-in corpus by 8 simulated
workers with equal data, the learning rate falling along a cosine, the best of three rates for each. PSGD is run over
several horizons, so that the loss it ends at is known for each; every other strategy makes as many steps as the longest
of them. Where it ends at the loss PSGD has after a share h of the steps, it needs 1 / h - 1 more. `--write` puts the
figures into src/shardwise/catalog/sync_convergence.toml; `--json` ends with one line.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from shardwise.plugins.sync import Strategy
from shardwise.plugins.sync._named import strategy_named
from shardwise.plugins.sync._simulate import _Stacked
from shardwise.plugins.sync._stack import StackComm
from shardwise.run.runtime.data.texts import tokens_of
from shardwise.run.runtime.data.windows import Windows

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "src" / "shardwise" / "catalog" / "sync_convergence.toml"
WORKERS, BATCH, SEQ, VOCAB, WIDTH, HEADS, LAYERS = 8, 4, 32, 128, 32, 2, 2
WINDOW, WARMUP = 20, 20
SHARES = (0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""of the steps: PSGD's horizons"""
ADAM = (
    "dsgd", "dsgd,topology=static_exp", "dsgd,topology=ring", "dsgd,overlap=true", "gossip_pga",
    "gossip_pga,topology=one_peer_exp", "gradient_tracking", "exact_diffusion", "local_sgd,every=4",
    "local_sgd,every=16", "local_sgd,every=64", "fedavg", "slowmo,every=16", "post_local_sgd,start=100",
    "diloco,every=16", "diloco,every=64", "streaming_diloco,every=64", "mem_sgd", "mem_sgd,compressor=sign",
    "mem_sgd,compressor=top_k",
    "double_squeeze", "double_squeeze,compressor=sign", "ef21_sgd", "ef21_sgdm", "neolithic", "qsgd",
    "power_sgd", "power_sgd,rank=4", "bounded_staleness", "hierarchical,size=4",
    "hierarchical,size=4,outer=diloco,outer.every=64", "hierarchical,size=4,outer=mem_sgd", "krum", "multi_krum",
    "median", "trimmed_mean", "geometric_median", "centered_clipping",
)  # fmt: skip
"""with AdamW, against PSGD with AdamW"""
OWN = ("one_bit_adam,freeze=50", "demo")
"""are the optimizer themselves; against PSGD with AdamW"""
MOMENTUM = ("dmsgd", "qg_dsgdm", "decentlam")
"""keep momentum themselves; against PSGD with SGD of momentum 0.9"""
UNDER_MOMENTUM = (
    "mem_sgd", "double_squeeze", "double_squeeze,compressor=sign", "dsgd", "local_sgd,every=16", "diloco,every=16",
    "mem_sgd,compressor=sign", "ef21_sgd", "ef21_sgdm", "neolithic", "qsgd", "power_sgd,rank=4",
)  # fmt: skip
"""any optimizer; with SGD of momentum 0.9"""
PLAIN = ("async_sgd", "fedbuff")
"""against PSGD with plain SGD"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.view(BATCH, SEQ, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        later = torch.full((SEQ, SEQ), float("-inf")).triu(1)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + later, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(BATCH, SEQ, WIDTH))
        return x + self.down(torch.relu(self.up(self.norms[1](x))))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Parameter(0.02 * torch.randn(SEQ, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out.reshape(-1, VOCAB), targets.reshape(-1))


def trained(
    strategy: Strategy, optimizer_fn: Callable[[list[nn.Parameter]], torch.optim.Optimizer], rate: float, steps: int,
    source: Windows,
) -> float:  # fmt: skip
    """The loss of the workers on new text at the end."""
    torch.manual_seed(0)
    workers = _Stacked(Small(), optimizer_fn, WORKERS)
    comm = StackComm.of(workers.layout, WORKERS)
    state = strategy.init(comm, workers.x())
    losses: list[float] = []
    for step in range(steps):
        comm.step = step
        for group in workers.optimizer.param_groups:
            falling = 0.05 + 0.475 * (1.0 + math.cos(math.pi * step / steps))
            group["lr"] = rate * min((step + 1) / WARMUP, falling)
        rows = torch.stack([torch.from_numpy(source.sample(BATCH * WORKERS * step + i))
                            for i in range(BATCH * WORKERS)]).view(WORKERS, BATCH, SEQ + 1)  # fmt: skip
        losses.append(float(workers.backward([(r[:, :-1], r[:, 1:]) for r in rows], loss_fn).mean()))
        x0, now = workers.x(), workers.rate()
        workers.set_gradient(strategy.on_grad(comm, state, x0, workers.gradient(), now, step))
        workers.step()
        workers.set_x(strategy.on_param(comm, state, x0, workers.x(), now, step))
    return sum(losses[-WINDOW:]) / WINDOW


def extra_steps(loss: float, ends: dict[float, float]) -> tuple[float, bool]:
    """(more steps than PSGD to the same loss, whether its shortest run was as good): from PSGD's loss by horizon."""
    shares = sorted(ends)
    if not loss <= ends[shares[0]]:
        return 1.0 / shares[0] - 1.0, False
    for low, high in itertools.pairwise(shares):
        if ends[high] <= loss <= ends[low]:
            share = low + (high - low) * (ends[low] - loss) / (ends[low] - ends[high])
            return 1.0 / share - 1.0, True
    return 0.0, True


Rates = tuple[float, ...]


def best(strategy: Strategy, optimizer_fn: Callable[..., torch.optim.Optimizer], rates: Rates, steps: int,
         source: Windows) -> float:  # fmt: skip
    found = [trained(strategy, optimizer_fn, rate, steps, source) for rate in rates]
    return min((loss for loss in found if math.isfinite(loss)), default=math.inf)


def families(quick: bool) -> list[tuple[str, Callable[..., torch.optim.Optimizer], Rates, tuple[str, ...]]]:
    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    def momentum(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)

    if quick:
        return [("adamw", adam, (1e-2,), ADAM[:2])]
    return [
        ("adamw", adam, (1e-2, 2e-2, 4e-2), (*ADAM, *OWN)),
        ("sgd-m", momentum, (0.1, 0.3, 0.6), (*UNDER_MOMENTUM, *MOMENTUM)),
        ("sgd", sgd, (0.5, 1.0, 2.0), PLAIN),
    ]  # fmt: skip


def _own_rates(text: str, rates: Rates) -> Rates:
    """Sign steps of an optimizer of its own are as long as the rate says, so they want smaller ones."""
    return tuple(rate / 10 for rate in rates) if text in OWN else rates


def measured(steps: int, quick: bool, only: str) -> list[dict[str, object]]:
    source = Windows(tokens_of((), "byte", "", VOCAB, "data"), SEQ, 0, name="the built-in text")
    found: list[dict[str, object]] = []
    psgd = strategy_named("psgd,via=sharded")
    for kind, optimizer_fn, rates, texts in families(quick):
        if only not in ("", kind):
            continue
        ends = {share: best(psgd, optimizer_fn, rates, round(share * steps), source) for share in SHARES}
        print(f"psgd with {kind}: {ends}", file=sys.stderr, flush=True)
        for text in texts:
            strategy, start = strategy_named(text), time.process_time()
            # plain SGD around what is the optimizer itself
            build = families(False)[2][1] if strategy.needs_optimizer() == "sgd" else optimizer_fn
            loss = best(strategy, build, _own_rates(text, rates), steps, source)
            extra, met = extra_steps(loss, ends)
            found.append({"sync": text, "optimizer": kind, "extra": round(extra, 3), "met": met, "loss": round(loss, 4),
                          "psgd_loss": round(ends[1.0], 4), "steps": steps})  # fmt: skip
            print(f"{text:50} {'' if met else '>'}{extra:+7.1%}  loss {loss:.4f}  "
                  f"{time.process_time() - start:.0f} s", file=sys.stderr, flush=True)  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--write", action="store_true", help="into the planner's data file")
    parser.add_argument("--quick", action="store_true", help="two strategies only")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", default="", help="the strategies of one optimizer: adamw, sgd-m or sgd")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(options.steps, options.quick, options.only)
    if options.write:
        head, _, kept = DATA.read_text(encoding="utf-8").partition("# measured\n")
        rows = [f"[[measured]]{row}".rstrip() + "\n" for row in kept.split("[[measured]]")[1:]
                if options.only and f'optimizer = "{options.only}"' not in row]  # fmt: skip
        rows += [f"[[measured]]\nsync = \"{f['sync']}\"\noptimizer = \"{f['optimizer']}\"\nextra = {f['extra']}\n"
                f"met = {str(f['met']).lower()}\n" for f in found]  # fmt: skip
        DATA.write_text(head + "# measured\n" + "\n".join(rows), encoding="utf-8")
    if options.json:
        print(json.dumps({"workers": WORKERS, "strategies": found}))


if __name__ == "__main__":
    main()
