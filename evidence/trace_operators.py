"""Times the very operators of traced programs, with their shapes, strides and types, on the CUDA device that is there.

    python evidence/trace_operators.py collect --only gpt2-medium,t5-large --out operators.json    # on a CPU
    python evidence/trace_operators.py grid --out operators.json                                   # or a grid
    python evidence/trace_operators.py grid --of kernels --out operators.json                 # by class of kernel
    python evidence/trace_operators.py time operators.json --out operators.csv                     # on the GPU

`trace_kernels.py` times the ways of moving bytes on a few shapes; this table shows which shapes leave them. Products
of programs are left out. Kernels are replayed as a CUDA graph where they can be captured, as there. `sdpa.forward` and
`sdpa.backward` are torch's attention, by the kernel it chooses.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import trace_kernels
from trace_programs import SCRIPT

HERE = Path(__file__).resolve().parent
FIELDS = ["op", "count", "us", "args", "outs", "kernels"]
NAMED = ("aten.convolution", "sdpa")
"""calls whose kernels a library chooses: their names are written down"""
INDEXED = ("embedding", "index", "gather", "scatter")
UNGRAPHED = ("embedding_dense_backward", "index_put", "_index_put_impl_", "sort")
"""sort their indices, in memory that a graph does not keep"""
COPIES = ("_to_copy", "clone", "copy_", "copy")
LONGEST_S = 400.0
trace_kernels.LEAST_S = 0.008


def described(value: Any, seen: dict[int, int]) -> Any:
    """A tensor as its number among the call's tensors, shape, strides and type."""
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"n": seen.setdefault(id(value), len(seen)), "shape": list(value.shape),
                "stride": list(value.stride()), "dtype": dtype}  # fmt: skip
    if isinstance(value, (list, tuple)):
        return [described(one, seen) for one in value]
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    return value if isinstance(value, (int, float, bool, str)) else None


def collected(name: str) -> dict[str, int]:
    """Calls of one program that run a kernel, as JSON, and how often each is made."""
    from shardwise.run.trace import capture, recorder

    counts: dict[str, int] = {}
    original = recorder.works_of

    def listened(func: Any, args: Any, ins: list[Tensor], outs: list[Tensor]) -> Any:
        seen: dict[int, int] = {}
        call = [str(func), described(args, seen), described(outs, seen)]
        text = json.dumps(call)
        counts[text] = counts.get(text, 0) + 1
        return original(func, args, ins, outs)

    recorder.works_of = listened
    script = HERE / f".{name}.py"
    script.write_text(SCRIPT.format(folder=str(HERE), name=name), encoding="utf-8")
    try:
        capture.traced(script, 1)
    finally:
        script.unlink()
    return counts


class Listened(TorchDispatchMode):
    """Calls made while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from shardwise.run.trace.operators import runs_nothing

        out = func(*args, **(kwargs or {}))
        if not runs_nothing(func):
            seen: dict[int, int] = {}
            outs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
            text = json.dumps([str(func), described(args, seen), described(outs, seen)])
            self.counts[text] = self.counts.get(text, 0) + 1
        return out


def grid(of: str, out: Path) -> None:
    import _kernel_grid
    import _operator_grid

    with Listened() as heard:
        for case in (_kernel_grid if of == "kernels" else _operator_grid).cases():
            case()
    calls = [[json.loads(text), count] for text, count in heard.counts.items()]
    if of == "kernels":
        calls += [[attention_call(*shape), 1] for shape in _kernel_grid.attention()]
    out.write_text(json.dumps(calls), encoding="utf-8")


def attention_call(part: str, heads: int, queries: int, keys: int, width: int, way: str, dtype: str) -> list[Any]:
    """`way`: 'whole', 'causal', with a 'mask' of booleans for all heads, or a 'bias' of each."""

    def tensor(place: int, *shape: int, of: str = dtype) -> dict[str, Any]:
        return {
            "n": place,
            "shape": list(shape),
            "stride": list(torch.empty(shape, device="meta").stride()),
            "dtype": of,
        }

    inputs = [tensor(0, 1, heads, queries, width), tensor(1, 1, heads, keys, width), tensor(2, 1, heads, keys, width)]
    masks = {"mask": tensor(3, 1, 1, queries, keys, of="bool"), "bias": tensor(3, 1, heads, queries, keys)}
    return [f"sdpa.{part}.default", [*inputs, masks.get(way), way == "causal"], [inputs[0]]]


def _attention(part: str, given: list[Any]) -> Callable[[], Any]:
    """Heads lie beside each other in a row, as projections leave them."""
    *inputs, mask, causal = given
    inputs = [x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in inputs]
    run = torch.nn.functional.scaled_dot_product_attention
    with torch.enable_grad():
        out = run(*inputs, attn_mask=mask, is_causal=causal)
    gradient = torch.randn_like(out)
    if part == "backward":
        return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)

    def forward() -> None:
        with torch.enable_grad():
            run(*inputs, attn_mask=mask, is_causal=causal)

    return forward


def collect(names: list[str], out: Path) -> None:
    total: dict[str, int] = {}
    for name in names:
        words = [sys.executable, str(Path(__file__).resolve()), "one", name]
        run = subprocess.run(words, capture_output=True, text=True, check=True)
        for text, count in json.loads(run.stdout.splitlines()[-1]).items():
            total[text] = total.get(text, 0) + count
    out.write_text(json.dumps([[json.loads(text), count] for text, count in total.items()]), encoding="utf-8")


class Made:
    """The tensors of one call on the GPU."""

    def __init__(self) -> None:
        self.tensors: dict[int, Tensor] = {}

    def __call__(self, value: Any, largest: int = 2) -> Any:
        """`largest`: integers are below it."""
        if isinstance(value, list):
            return [self(one, largest) for one in value]
        if not isinstance(value, dict):
            return value
        if "shape" not in value:
            return getattr(torch, value["dtype"])
        if value["n"] not in self.tensors:
            dtype = getattr(torch, value["dtype"])
            made = torch.empty_strided(value["shape"], value["stride"], dtype=dtype, device="cuda")
            if 0 not in value["stride"] or 1 in value["shape"]:
                if dtype.is_floating_point:
                    made.normal_()
                elif dtype is torch.bool:
                    made.bernoulli_()
                else:
                    made.random_(0, max(largest, 1))
            self.tensors[value["n"]] = made
        return self.tensors[value["n"]]


def bound_of(name: str, args: list[Any]) -> int:
    """What the indices of a call are below."""
    first = args[0]
    if name == "embedding_dense_backward":
        return int(args[2])
    if name.startswith("nll_loss"):
        return int(args[1 if "backward" in name else 0]["shape"][1])
    if name.startswith(("index", "_index")) and isinstance(args[1], list):
        return min(int(size) for size, index in zip(first["shape"], args[1], strict=False) if index is not None)
    if name.startswith(INDEXED):
        return int(first["shape"][args[1] if isinstance(args[1], int) else 0])
    return 2


def call_of(text: str, args: list[Any], outs: list[Any]) -> Callable[[], Any]:
    space, name, overload = text.split(".")
    made = Made()
    if name in COPIES:
        source = made(args[1] if name == "copy_" else args[0])
        into = torch.empty_strided(outs[0]["shape"], outs[0]["stride"], dtype=made({"dtype": outs[0]["dtype"]}),
                                   device="cuda")  # fmt: skip
        return lambda: into.copy_(source)
    given = made(args, bound_of(name, args))
    if space == "sdpa":
        return _attention(name, given)
    if space == "shardwise":
        eps = 1e-6
        if name == "rms_norm":
            x, weight = given[:2]
            return lambda: torch.ops.aten._fused_rms_norm(x, [x.shape[-1]], weight, eps)
        gradient, x, scale, weight = given[:4]
        return lambda: torch.ops.aten._fused_rms_norm_backward(gradient, x, [x.shape[-1]], scale, weight, [True, True])
    if "batch_norm" in name and "backward" not in name:
        x, weight, bias, mean, variance = given[:5]
        return lambda: torch.batch_norm(x, weight, bias, mean, variance, True, 0.1, 1e-5, True)
    function = getattr(getattr(getattr(torch.ops, space), name), overload)
    return lambda: function(*given)


def shown(value: Any) -> str:
    """`float32[8x64]`, with the strides behind a slash where the tensor does not lie in order."""
    if isinstance(value, list):
        return f"({' '.join(map(shown, value))})"
    if not isinstance(value, dict):
        return str(value)
    if "shape" not in value:
        return str(value["dtype"])
    shape, stride = value["shape"], value["stride"]
    in_order = list(torch.empty(shape, device="meta").stride()) == stride
    text = f"{value['dtype']}[{'x'.join(map(str, shape))}]"
    return text if in_order else f"{text}/{'x'.join(map(str, stride))}"


def _seconds(text: str, call: Callable[[], Any]) -> float:
    if text.split(".")[1] not in UNGRAPHED:
        return trace_kernels.seconds_of(call)[0]
    spent = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        spent.append(begin.elapsed_time(end) / 1e3)
    return float(min(spent))


def timed(table: Path, out: Path, start: int) -> int:
    """Where it ended: at the end, or behind a call that broke the device's state."""
    torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]  # the default one cannot be captured
    calls = json.loads(table.read_text(encoding="utf-8"))
    with out.open("a", encoding="utf-8", newline="") as file, torch.no_grad():
        writer = csv.DictWriter(file, FIELDS)
        if not start:
            writer.writeheader()
        for place, ((text, args, outs), count) in enumerate(calls[start:], start):
            try:
                call = call_of(text, args, outs)
                seconds = _seconds(text, call)
                names = trace_kernels._kernel_names(call) if text.startswith(NAMED) else ""
            except torch.AcceleratorError:
                print(f"{text}: {json.dumps(args)[:200]} broke the device's state", file=sys.stderr)
                return place + 1
            except Exception as error:
                print(f"{text}: {type(error).__name__} {str(error)[:100]}", file=sys.stderr)
                continue
            writer.writerow({"op": text, "count": count, "us": round(seconds * 1e6, 2), "kernels": names,
                             "args": " ".join(map(shown, args)), "outs": " ".join(map(shown, outs))})  # fmt: skip
    return len(calls)


def timed_all(table: Path, out: Path) -> None:
    begin, start, many = perf_counter(), 0, len(json.loads(table.read_text(encoding="utf-8")))
    out.unlink(missing_ok=True)
    while start < many and perf_counter() - begin < LONGEST_S:
        words = [sys.executable, str(Path(__file__).resolve()), "time-from", str(table), "--out", str(out)]
        run = subprocess.run([*words, "--start", str(start)], stdout=subprocess.PIPE, text=True, check=True)
        start = int(run.stdout.splitlines()[-1])
    print(f"{start} of {many}, {perf_counter() - begin:.0f} s", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("collect", "grid", "time", "time-from", "one"))
    parser.add_argument("given", nargs="?", help="time: the table of `collect`; one: a program")
    parser.add_argument("--of", choices=("operators", "kernels"), default="operators", help="grid: which one")
    parser.add_argument("--only", metavar="NAMES", help="these programs, with commas between")
    parser.add_argument("--out", type=Path, help="file to write")
    parser.add_argument("--start", type=int, default=0, help="time-from: the first call")
    asked = parser.parse_args()
    if asked.verb == "one":
        print(json.dumps(collected(asked.given)))
    elif asked.verb == "grid":
        grid(asked.of, asked.out)
    elif asked.verb == "time-from":
        print(timed(Path(asked.given), asked.out, asked.start))
    elif asked.verb == "time":
        timed_all(Path(asked.given), asked.out)
    else:
        from _trace_programs_fourth import PROGRAMS

        collect(asked.only.split(",") if asked.only else list(PROGRAMS), asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
