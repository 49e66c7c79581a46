"""One rank of a large causal model of transformers in bf16, split by a plan: run by `auto_large.py`, and traced.

SHARDWISE_PLAN names the plan, SHARDWISE_LARGE has the sizes. Run as a script it prints one line of JSON.
"""

import json
import os
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch import Tensor, nn

import shardwise
from shardwise.run.auto.plan import AutoPlan, plan_file

SIZES: dict[str, Any] = json.loads(os.environ["SHARDWISE_LARGE"])
STEPS = 4
SETTLED = 2
"""steps before those that are timed"""


def plan() -> AutoPlan | None:
    path = os.environ.get("SHARDWISE_PLAN", "")
    return plan_file(Path(path)) if path else None


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    fields = {name: value for name, value in SIZES.items() if name not in ("samples", "tokens")}
    with torch.device("cuda"):
        config = transformers.LlamaConfig(**fields, use_cache=False)
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    found = plan()
    if found is not None:
        model = shardwise.parallelize(model, found)
    return model, torch.optim.SGD(model.parameters(), lr=1e-2)


def batch() -> Tensor:
    """Of this rank."""
    torch.manual_seed(1)
    samples = torch.randint(0, SIZES["vocab_size"], (SIZES["samples"], SIZES["tokens"]), device="cuda")
    found = plan()
    if found is None or found.degrees.dp == 1:
        return samples
    own = SIZES["samples"] // found.degrees.dp
    place = dist.get_rank() // found.degrees.tp
    return samples[place * own : (place + 1) * own]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> Tensor:
    loss: Tensor = model(input_ids=tokens, labels=tokens).loss
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    return loss


def measured() -> dict[str, Any]:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.cuda.set_device(0)
    if ranks > 1:
        dist.init_process_group("nccl")
    model, optimizer = build()
    tokens = batch()
    losses, times = [], []
    for number in range(STEPS):
        if number == SETTLED - 1:
            torch.cuda.reset_peak_memory_stats()
        start = perf_counter()
        losses.append(step(model, optimizer, tokens).detach())
        torch.cuda.synchronize()
        times.append(perf_counter() - start)
    mean = torch.stack(losses).float()
    if ranks > 1:
        dist.all_reduce(mean)
        mean /= ranks
    return {"losses": mean.tolist(), "steps_s": times, "peak_bytes": torch.cuda.max_memory_allocated()}


if __name__ == "__main__":
    found = measured()
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(found), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
