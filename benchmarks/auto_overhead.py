"""What an applied split costs with one rank: a step of a plain script against the same with the split's machinery on.

    python benchmarks/auto_overhead.py --json                      # a GPT of 1.1 billion parameters, on a CUDA GPU
    python benchmarks/auto_overhead.py --json --device cpu --width 128 --layers 2 --tokens 64 --samples 4 --words 256

The model is examples/auto_gpt.py with other sizes, in bf16 on a GPU. The cuts are those that two ranks would make, each
rank holding all: every hook and every fitted view is there, a sum over one rank is its own part, so what is timed is
the split's own cost. overhead: its median step over the plain script's, less one. again: the plain script against
itself, which is the noise. parallelized: `shardwise.parallelize` with a plan of one rank, which leaves the model as it
is. fsdp: torch's own FSDP2 around the same blocks, for comparison. Ways are timed in turn, round by round.
"""

import argparse
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import shardwise
from shardwise.run.auto.blocks import until_backward
from shardwise.run.auto.lanes import RankLane
from shardwise.run.auto.plan import AutoPlan, Column, Degrees, ProductCut
from shardwise.run.auto.split import cut_model
from shardwise.run.auto.understand import understood

EXAMPLE = Path(__file__).parents[1] / "examples" / "auto_gpt.py"
SMALL = {"WIDTH": 64, "HEADS": 4, "TOKENS": 16, "SAMPLES": 4, "WORDS": 128}


def example(**sizes: int) -> ModuleType:
    spec = importlib.util.spec_from_file_location("auto_gpt", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in sizes.items():
        setattr(module, name, value)
    return module


def found_plan(layers: int) -> AutoPlan:
    """What two ranks would cut, found on narrow blocks."""
    small = example(LAYERS=layers, **SMALL)
    model, optimizer = small.build()
    batch = small.batch()

    def run() -> None:
        with until_backward():
            small.step(model, optimizer, batch)

    return understood(model, run, Degrees(tp=2), SMALL["SAMPLES"])


def of_one_rank(plan: AutoPlan, model: torch.nn.Module) -> AutoPlan:
    """The same cuts, of which one rank holds all."""
    kinds = tuple(
        replace(kind, cuts=tuple(_all_of(cut, model.get_submodule(kind.blocks[0])) for cut in kind.cuts))
        for kind in plan.kinds
    )
    return replace(plan, kinds=kinds, degrees=Degrees())


def _all_of(cut: ProductCut, block: torch.nn.Module) -> ProductCut:
    def whole(column: Column) -> Column:
        outputs: Any = block.get_submodule(column.module).out_features
        return replace(column, indices=(tuple(range(outputs)),))

    return replace(cut, columns=tuple(whole(column) for column in cut.columns), sizes=())


class Way:
    """One form of the model, stepped as the script does."""

    def __init__(self, name: str, code: ModuleType, device: str, change: Callable[[torch.nn.Module], object]) -> None:
        self.name, self.code, self.device = name, code, device
        torch.manual_seed(0)
        with torch.device(device):  # drawn there: a CPU would take its time over a billion numbers
            model, _ = code.build()
            self.batch = code.batch()
        self.model = model.to(torch.bfloat16 if device == "cuda" else torch.float32)
        change(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self) -> None:
        self.code.step(self.model, self.optimizer, self.batch)

    def seconds(self, steps: int) -> float:
        if self.device != "cuda":
            start = perf_counter()
            for _ in range(steps):
                self.step()
            return (perf_counter() - start) / steps
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(steps):
            self.step()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / steps


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    code = example(
        WIDTH=asked.width, HEADS=max(asked.width // 128, 2), LAYERS=asked.layers, TOKENS=asked.tokens,
        SAMPLES=asked.samples, WORDS=asked.words,
    )  # fmt: skip
    plan = found_plan(asked.layers)
    mesh = init_device_mesh(asked.device, (1, 1), mesh_dim_names=("dp", "tp"))

    def cut(model: torch.nn.Module) -> None:
        cut_model(model, of_one_rank(plan, model), RankLane(mesh["tp"].get_group()), plan.blocks)

    def sharded(model: torch.nn.Module) -> None:
        for name in plan.blocks:
            fully_shard(model.get_submodule(name), mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])

    changes: dict[str, Callable[[torch.nn.Module], object]] = {
        "plain": lambda _: None, "cut": cut, "again": lambda _: None,
        "parallelized": lambda model: shardwise.parallelize(model, replace(plan, degrees=Degrees()), mesh),
        "fsdp": sharded,
    }  # fmt: skip
    ways = [Way(name, code, asked.device, change) for name, change in changes.items()]
    for way in ways:
        way.seconds(3)  # kernels are chosen and optimizer state is made
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(asked.rounds):
        for way in ways:
            times[way.name].append(way.seconds(asked.steps))
    plain = median(times["plain"])
    gaps = {name: median(found) / plain - 1 for name, found in times.items() if name != "plain"}
    cuts = sum(len(kind.cuts) * len(kind.blocks) for kind in plan.kinds)
    return {
        "device": torch.cuda.get_device_name() if asked.device == "cuda" else "cpu", "torch": torch.__version__,
        "parameters": sum(p.numel() for p in ways[0].model.parameters()), "cuts": cuts, "plain_step_s": plain,
        "overhead": gaps["cut"], **{name: gap for name, gap in gaps.items() if name != "cut"},
        "steps_s": times,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    for name, value in {"width": 2048, "layers": 20, "tokens": 2048, "samples": 4, "words": 32768}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        print(json.dumps({"overhead": None, "why": "no CUDA GPU here; write --device cpu for a trial"}))
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("nccl" if asked.device == "cuda" else "gloo", rank=0, world_size=1, store=store)
    found = measured(asked)
    dist.destroy_process_group()
    if not asked.json:
        for name in ("plain_step_s", "overhead", "again", "parallelized", "fsdp"):
            print(f"{name}: {found[name]:.4f}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
