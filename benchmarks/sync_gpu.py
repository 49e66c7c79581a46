"""Compression kernels on a CUDA GPU: bits first, then times against a copy and against torch.

    python benchmarks/sync_gpu.py --json [--variants] [--elements 100000000]

Times are medians of CUDA events; every tensor is larger than the cache. Without a GPU it says so and measures nothing.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import Any

import torch
from torch import Tensor

from _sync_gpu_checks import DRAW, check_kernels, check_strategies
from shardwise.plugins.compressors import Compressor, compressor
from shardwise.plugins.sync import ParameterLayout, strategy
from shardwise.plugins.sync._stack import StackComm

WORKERS = 8
RATIO = 0.01


def milliseconds(work: Callable[[], object], runs: int = 40) -> float:
    for _ in range(3):
        work()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for start, stop in marks:
        start.record()
        work()
        stop.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(stop) for start, stop in marks)


class Rows:
    """What every timing works on."""

    def __init__(self, d: int) -> None:
        torch.manual_seed(0)
        self.d = d
        self.row, self.held = (torch.randn(d, device="cuda") for _ in range(2))
        self.out = torch.empty_like(self.row)

    def encode_ms(self, kernels: Any) -> float:
        return milliseconds(lambda: kernels.feed_back(self.row, self.held, self.out))

    def decode_ms(self, kernels: Any, workers: int) -> float:
        payload = kernels.feed_back(self.row, self.held, self.out)
        return milliseconds(lambda: kernels.mean([payload] * workers, self.d))

    def torch_ms(self, found: Compressor) -> float:
        def work() -> None:
            p = self.held + self.row
            p -= found.decode(found.encode(p, DRAW), self.d, DRAW)

        return milliseconds(work, runs=5)

    def energy(self, kept: Tensor) -> float:
        return float(kept.double().square().sum() / (self.held + self.row).double().square().sum())


def kernels_of(found: Compressor) -> Any:
    kernels = found.kernels(torch.device("cuda"))
    if kernels is None:
        raise SystemExit("sync_gpu: no Triton here; install it, or use the torch path, which is the same bits")
    return kernels


def measured(rows: Rows) -> dict[str, Any]:
    names = {"sign_pack": "sign", "int4": "int4", "block_topk": "block_top_k"}
    found: dict[str, Any] = {"copy_ms": milliseconds(lambda: rows.out.copy_(rows.row))}
    for label, name in names.items():
        codec = compressor(name)
        kernels = kernels_of(codec)
        moved = 12 * rows.d + codec.wire_bytes(rows.d)
        found[f"{label}_ms"] = rows.encode_ms(kernels)
        found[f"{label}_of_copy"] = moved / found[f"{label}_ms"] / (8 * rows.d / found["copy_ms"])
        found[f"{label}_decode_ms"] = rows.decode_ms(kernels, 1)
        found[f"{label}_decode_{WORKERS}_ms"] = rows.decode_ms(kernels, WORKERS)
        found[f"{label}_torch_ms"] = rows.torch_ms(codec)
        found |= step_ms(rows, name)
    return found | against_topk(rows)


def step_ms(rows: Rows, name: str) -> dict[str, float]:
    """One step of MEM-SGD at one worker, with the kernels and as torch would do it."""
    found = strategy("mem_sgd", compressor=compressor(name))
    kind = type(compressor(name))
    kernels, taken = kind.kernels, {}
    for label, chosen in ((f"mem_sgd_{name}_ms", kernels), (f"mem_sgd_{name}_torch_ms", lambda *_: None)):
        kind.kernels = chosen  # type: ignore[method-assign]
        comm = StackComm.of(ParameterLayout.flat(rows.d), 1, device="cuda")
        state = found.init(comm, rows.row[None])
        taken[label] = milliseconds(partial(found.on_grad, comm, state, rows.row[None], rows.row[None], 1.0, 0), runs=5)
    kind.kernels = kernels  # type: ignore[method-assign]
    return taken


def against_topk(rows: Rows) -> dict[str, float]:
    p = rows.held + rows.row
    sizes, k = p.abs(), round(RATIO * rows.d)
    codec = compressor("block_top_k", ratio=RATIO)
    kernels = kernels_of(codec)
    exact = sizes.topk(k, sorted=False).values
    blocked = kernels.mean([kernels.feed_back(rows.row, rows.held, rows.out)], rows.d)
    return {
        "torch_topk_ms": milliseconds(lambda: sizes.topk(k, sorted=False), runs=10),
        "torch_topk_energy": rows.energy(exact),
        "block_topk_energy": rows.energy(blocked),
    }


def variants(rows: Rows) -> list[tuple[str, float]]:
    """Other ways to cut the work, to see that the default is the best."""
    found = []
    for block in (1024, 4096, 8192):
        for warps in (4, 8):
            kernels = replace(kernels_of(compressor("sign", block=block)), warps=warps)
            found.append((f"sign block {block} warps {warps}", rows.encode_ms(kernels)))
    for groups in (4, 8, 16):
        for warps in (2, 4):
            kernels = replace(kernels_of(compressor("int4")), rows=groups, warps=warps)
            found.append((f"int4 rows {groups} warps {warps}", rows.encode_ms(kernels)))
    for block in (1024, 2048, 4096):
        for warps in (1, 2, 4):
            for span in (128, 256):
                kernels = replace(kernels_of(compressor("block_top_k", block=block)), warps=warps, span=span)
                found.append((f"block_topk block {block} warps {warps} span {span}", rows.encode_ms(kernels)))
    for name in ("sign", "int4"):
        for span in (512, 1024, 2048, 4096):
            kernels = replace(kernels_of(compressor(name)), span=span)
            found.append((f"{name} decode {WORKERS} span {span}", rows.decode_ms(kernels, WORKERS)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--variants", action="store_true", help="time other settings of the kernels too")
    parser.add_argument("--elements", type=int, default=100_000_000)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("sync_gpu: no CUDA device, nothing measured", file=sys.stderr)
        if options.json:
            print(json.dumps({"device": None}))
        return
    device = torch.device("cuda")
    print("checking bits", file=sys.stderr)
    cases, wrong = check_kernels(device)
    more, differ = check_strategies(device)
    for line in [*wrong, *differ][:40]:
        print(f"DIFFERS {line}")
    rows = Rows(options.elements)
    print("timing", file=sys.stderr)
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": version("triton"),
        "elements": options.elements,
        "checked": cases + more, "different": len(wrong) + len(differ), "equal_bits": not wrong and not differ,
        **measured(rows),
    }  # fmt: skip
    if options.variants:
        print("timing variants", file=sys.stderr)
        for name, value in variants(rows):
            print(f"{name:44} {value:7.3f} ms")
    for name, value in figures.items():
        print(f"{name:26} {value:.4f}" if isinstance(value, float) else f"{name:26} {value}")
    if options.json:
        print(json.dumps(figures))
    sys.exit(0 if figures["equal_bits"] else 1)


if __name__ == "__main__":
    main()
