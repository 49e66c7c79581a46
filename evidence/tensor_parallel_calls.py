"""What PyTorch's tensor parallelism costs the host: a layer cut by parallelize_module beside the whole one.

    python evidence/tensor_parallel_calls.py [--out FILE.csv]

Eager layers of a Llama-like decoder, so narrow that their kernels take no time, cut over two ranks of which one is
there (the `fake` process group of PyTorch's own tests sends nothing). Weights and activations are DTensors between the
products, as torchtitan's parallelize_llama makes them. Processor time of a forward and of a backward pass over one
layer, the fastest of many; `recompute` runs the layer again in the backward pass, wholly or by a policy that looks at
each operation. The last lines say what one collective adds, in microseconds.
"""

import argparse
import csv
import sys
import time
from pathlib import Path
from typing import Any

WIDTH, HEADS, TOKENS, LAYERS, REPEATS = 64, 4, 8, 8, 60
COLUMNS = ["cut", "sequence_parallel", "recompute", "collectives", "forward_us", "backward_us"]
Row = dict[str, Any]


def layer_class() -> Any:
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention, silu

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

        def forward(self, x: Any, angles: Any) -> Any:
            rows, tokens, _ = x.shape
            q, k, v = (each(x).view(rows, tokens, -1, WIDTH // HEADS) for each in (self.query, self.key, self.value))
            q, k = ((each.float() * angles).type_as(x) for each in (q, k))
            q, k, v = (each.transpose(1, 2) for each in (q, k, v))
            mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(rows, tokens, -1))

    class FeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
            self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            return self.down(silu(self.gate(x)) * self.up(x))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention = nn.RMSNorm(WIDTH), Attention()
            self.between, self.feed_forward = nn.RMSNorm(WIDTH), FeedForward()

        def forward(self, x: Any, angles: Any) -> Any:
            middle = x + self.attention(self.before(x), angles)
            return middle + self.feed_forward(self.between(middle))

    return Layer


def cut(layer: Any, mesh: Any, sequence: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    columns = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
    rows = ("attention.out", "feed_forward.down")
    plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1)) if sequence else RowwiseParallel() for name in rows}
    if sequence:
        plan |= {name: SequenceParallel() for name in ("before", "between")}
        plan["attention"] = PrepareModuleInput(
            input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
        )
        plan["feed_forward"] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    parallelize_module(layer, mesh, plan)


def called(layer: Any, recompute: str) -> Any:
    """The layer as a function of its input."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    kept = {torch.ops.aten.mm.default, torch.ops._c10d_functional.reduce_scatter_tensor.default}

    def policy(_: Any, operation: Any, *__: Any, **___: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if operation in kept else CheckpointPolicy.PREFER_RECOMPUTE

    if recompute == "none":
        return layer
    if recompute == "full":
        return lambda x, angles: checkpoint(layer, x, angles, use_reentrant=False)
    make: Any = create_selective_checkpoint_contexts
    return lambda x, angles: checkpoint(layer, x, angles, use_reentrant=False, context_fn=lambda: make(policy))


def timed(mesh: Any, is_cut: bool, sequence: bool, recompute: str) -> Row:
    import torch

    made = layer_class()
    layers = [made() for _ in range(LAYERS)]
    for layer in layers if is_cut else []:
        cut(layer, mesh, sequence)
    calls = [called(layer, recompute) for layer in layers]
    x = torch.randn(1, TOKENS // 2 if sequence else TOKENS, WIDTH, requires_grad=True)
    angles, forward, backward = torch.ones(1, 1, 1, WIDTH // HEADS), [], []
    for _ in range(REPEATS):
        for layer in layers:
            layer.zero_grad(set_to_none=True)
        began, out = time.process_time(), x
        for call in calls:
            out = call(out, angles)
        loss, between = out.sum(), time.process_time()
        loss.backward()  # type: ignore[no-untyped-call]
        forward.append(between - began)
        backward.append(time.process_time() - between)
    here = {"cut": int(is_cut), "sequence_parallel": int(sequence), "recompute": recompute}
    times = {
        f"{name}_us": round(1e6 * min(each[REPEATS // 3 :]) / LAYERS, 1)
        for name, each in (("forward", forward), ("backward", backward))
    }
    return here | {"collectives": (8 if sequence else 4) if is_cut else 0} | times


def rows() -> list[Row]:
    import torch
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2,))
        cases = ((False, False), (True, False), (True, True))
        return [timed(mesh, *each, how) for how in ("none", "full", "operations") for each in cases]
    finally:
        distributed.destroy_process_group()


def each_collective(found: list[Row]) -> dict[str, float]:
    """Microseconds that one adds, by how the layers are cut; of layers that are not recomputed."""
    whole, *cuts = (row for row in found if row["recompute"] == "none")
    host = {id(row): row["forward_us"] + row["backward_us"] for row in (whole, *cuts)}
    return {
        "sequence parallel" if row["sequence_parallel"] else "tensor parallel": round(
            (host[id(row)] - host[id(whole)]) / row["collectives"], 1
        )
        for row in cuts
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows into this file")
    out = parser.parse_args().out
    found = rows()
    with out.open("w", newline="") if out else sys.stdout as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    for name, added in each_collective(found).items():
        print(f"{name}: {added:,.0f} us a collective", file=sys.stderr)


if __name__ == "__main__":
    main()
