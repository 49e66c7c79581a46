"""Which kernels of real programs the trace prices wrongly: what `trace_look.py` measured by operator and shapes against
what the trace says of the same calls.

    python evidence/trace_gaps.py record --out FOLDER [--only NAMES]           # traces them, on a CPU
    python evidence/trace_gaps.py compare FOLDER kernels.csv.gz [--by class]   # prices them again, and compares

`record` keeps each call's operator with the shapes, strides and types of its arguments, so that a changed law is tried
without tracing anew. Its files are pickles of one's own making: read no others.
"""

import argparse
import csv
import gzip
import json
import pickle
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import trace_programs

ALIKE = {"_to_copy": "copy_", "clone": "copy_", "contiguous": "copy_", "zeros": "fill_", "zeros_like": "fill_",
         "new_zeros": "fill_", "ones": "fill_", "ones_like": "fill_", "full": "fill_", "full_like": "fill_",
         "zero_": "fill_", "convolution": "conv", "cudnn_convolution": "conv", "cudnn_convolution_transpose": "conv",
         "_conv_depthwise2d": "conv", "conv_depthwise3d": "conv", "new_ones": "fill_", "new_full": "fill_",
         "attention": "attention", "_cudnn_attention_forward": "attention", "_flash_attention_forward": "attention",
         "_efficient_attention_forward": "attention", "_cudnn_attention_backward": "attention_backward",
         "_flash_attention_backward": "attention_backward", "_efficient_attention_backward": "attention_backward",
         "_scaled_dot_product_cudnn_attention": "attention",
         "_scaled_dot_product_cudnn_attention_backward": "attention_backward",
         "_scaled_dot_product_efficient_attention": "attention",
         "_scaled_dot_product_efficient_attention_backward": "attention_backward",
         "_fused_rms_norm": "rms_norm", "_fused_rms_norm_backward": "rms_norm_backward",
         "_batch_norm_with_update": "batch_norm", "native_batch_norm": "batch_norm", "cudnn_batch_norm": "batch_norm",
         "native_batch_norm_backward": "batch_norm_backward", "cudnn_batch_norm_backward": "batch_norm_backward",
         "_index_put_impl_": "index_put", "index_put_": "index_put"}  # fmt: skip
"""one name for what CUDA and the trace call by different ones"""
PROBE = "[4,32]"
"""of the measurement of the machine's host beside each step"""


@dataclass(frozen=True)
class Shape:
    """A tensor without its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    on_host: bool

    def made(self) -> Tensor:
        found = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
        if self.on_host:
            found._on_host = True  # type: ignore[attr-defined]
        return found


@dataclass
class Call:
    op: str
    args: Any
    ins: list[Any]
    outs: list[Any]
    place: int
    """of its first event"""


def described(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return Shape(tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, bool(getattr(leaf, "_on_host", False)))
    return leaf if isinstance(leaf, (int, float, bool, str, type(None), torch.dtype)) else None


def recorded(name: str) -> Any:
    """A capture and the calls of its operators."""
    from shardwise.run.trace import capture, recorder

    calls: list[Call] = []
    original, make = recorder.works_of, recorder.StepRecorder
    made: list[Any] = []

    class Watched(make):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

        def begin(self) -> None:
            super().begin()
            calls.clear()

    def watched(func: Any, args: Any, ins: Any, outs: Any) -> Any:
        calls.append(Call(str(func), *(tree_map(described, each) for each in (list(args), ins, outs)),
                          len(made[0].captured.events)))  # fmt: skip
        return original(func, args, ins, outs)

    recorder.works_of, capture.StepRecorder = watched, Watched  # type: ignore[assignment, misc]
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "program.py"
            text = trace_programs.SCRIPT.format(folder=str(trace_programs.HERE), name=name)
            script.write_text(text, encoding="utf-8")
            return capture.traced(script, 1), calls
    finally:
        recorder.works_of, capture.StepRecorder = original, make  # type: ignore[misc]


def _operator(name: str) -> Any:
    space, op, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), op), overload)


def _made(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.made() if isinstance(leaf, Shape) else leaf, tree)


def repriced(captured: Any, calls: list[Call], known: dict[str, Any]) -> dict[int, Call]:
    """Puts the works of today's laws into the events; which call each event is of."""
    import shardwise.run.trace.rms_norm  # noqa: F401
    from shardwise.run.trace.operators import works_of

    at = {call.place: call for call in calls}
    events, owners = [], {}
    old = captured.events
    index = 0
    while index < len(old):
        call = at.get(index)
        if call is None:
            events.append(old[index])
            index += 1
            continue
        end = index + 1
        while end < len(old) and end not in at and old[end].calls == 0 and not old[end].is_message:
            end += 1
        key = repr((call.op, call.args, call.ins, call.outs))
        if key not in known:
            # tensors of the arguments are those of `ins`: one tensor given twice is one
            args, ins, outs = _made(call.args), _made(call.ins), _made(call.outs)
            known[key] = works_of(_operator(call.op), args, ins, outs)
        for place, (name, work) in enumerate(known[key]):
            first, last = place == 0, place == len(known[key]) - 1
            owners[len(events)] = call
            events.append(replace(
                old[index], name=name, work=work, calls=old[index].calls if first else 0,
                quiet=old[index].quiet if first else 0, python=old[index].python if first else (0, 0),
                read_by_host=old[end - 1].read_by_host and last,
            ))  # fmt: skip
        index = end
    captured.events = events
    return owners


def shapes_of(call: Call) -> str:
    leaves = tree_leaves(call.ins, is_leaf=lambda leaf: isinstance(leaf, Shape))
    return "".join(str(list(leaf.shape)).replace(" ", "") for leaf in leaves if isinstance(leaf, Shape))


def key_of(operator: str, shapes: str) -> tuple[str, tuple[str, ...]]:
    """By which the two tables find each other: the operator and the shapes of its larger arguments."""
    name = operator.split("::")[-1]
    name = ALIKE.get(name, name)
    if name.startswith(("_foreach", "_fused")):
        return name, ()
    if name in ("cat", "stack", "unsafe_chunk"):
        return name, ()  # lists of tensors have no shapes in a profile
    found = sorted({"[" + part for part in shapes.split("[") if part and part != "]"})
    return name.removesuffix("_") if name not in ("copy_", "fill_") else name, tuple(found)


def of_operators(rows: list[dict[str, str]]) -> Iterator[tuple[dict[str, str], float]]:
    """Rows and their microseconds. Events of CUDA's own ("Command Buffer Full") name kernels of operators once more."""
    for row in rows:
        if "::" in row["operator"] and PROBE not in row["shapes"]:
            yield row, float(row["us"])


def compare(folder: Path, table: Path, by: str, only: set[str] | None) -> dict[str, Any]:
    from shardwise.run.trace.price import prices_of
    from shardwise.run.trace.result import result_of
    from shardwise.spec.load import cluster_of
    from shardwise.spec.software import known_stack

    measured: dict[str, list[dict[str, str]]] = defaultdict(list)
    with gzip.open(table, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            measured[row["name"]].append(row)
    known: dict[str, Any] = {}
    groups: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    said: dict[str, Any] = {}
    for path in sorted(folder.glob("*.pickle")):
        name = path.stem
        if name not in measured or (only and name not in only):
            continue
        captured, calls = pickle.loads(path.read_bytes())
        owners = repriced(captured, calls, known)
        stack = known_stack("torch-eager@compiled" if captured.compiled else "torch-eager")
        prices = prices_of(captured, cluster_of(trace_programs.ON), stack)
        found, times = result_of(captured, prices)
        assert times is not None
        assert found.time is not None
        if captured.compiled:
            continue
        gap = prices.stack.host.gap_s_per_op
        guess: Counter[Any] = Counter()
        many: Counter[Any] = Counter()
        ways: dict[Any, str] = {}
        for place, span in enumerate(times.spans):
            call = owners.get(place)
            if call is None:
                continue
            key = key_of(call.op.split(".")[1], shapes_of(call))
            guess[key] += (span.end_s - span.start_s - gap) * 1e6
            many[key] += captured.events[place].calls > 0
            work = captured.events[place].work
            ways.setdefault(key, str(getattr(work, "kind", type(work).__name__)))
        seen: Counter[Any] = Counter()
        names: dict[Any, str] = {}
        for row, spent in of_operators(measured[name]):
            key = key_of(row["operator"], row["shapes"])
            seen[key] += spent
            names.setdefault(key, row["kernel"])
        said[name] = {"guess_ms": sum(guess.values()) / 1e3, "seen_ms": sum(seen.values()) / 1e3,
                      "step_ms": 1e3 * found.time.step_s, "waits_ms": 1e3 * times.host_s}  # fmt: skip
        for key in set(guess) | set(seen):
            op, shapes, way, kernel = key[0], "".join(key[1]), ways.get(key, "?"), names.get(key, "-")[:40]
            label = {"class": (op,), "way": (op, way), "shape": (op, shapes, way, kernel),
                     "program": (name, op, way, shapes[:60], kernel)}[by]  # fmt: skip
            group = groups[label]
            group[0] += guess[key]
            group[1] += seen[key]
            group[2] += many[key]
    order = sorted(groups, key=lambda label: -abs(groups[label][0] - groups[label][1]))
    rows = [{"what": " ".join(label), "guess_ms": guessed / 1e3, "seen_ms": spent / 1e3, "calls": int(calls)}
            for label, (guessed, spent, calls) in ((label, groups[label]) for label in order)]  # fmt: skip
    return {"programs": said, "gaps": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("given", nargs="*", type=Path, help="compare: the folder and the table of kernels")
    parser.add_argument("--only", metavar="NAMES", help="these programs, with commas between")
    parser.add_argument("--out", type=Path, help="record: folder to write to")
    parser.add_argument(
        "--by", default="way", choices=("class", "way", "shape", "program"), help="compare: what is added up"
    )
    parser.add_argument("--most", type=int, default=60, help="compare: rows to print")
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else None
    if asked.verb == "record":
        from _trace_programs_eleventh import NINTH

        asked.out.mkdir(exist_ok=True)
        for name in names or NINTH:
            try:
                found = recorded(name)
            except ValueError as error:
                print(name, error, file=sys.stderr)
                continue
            (asked.out / f"{name}.pickle").write_bytes(pickle.dumps(found))
            print(name, len(found[0].events), file=sys.stderr, flush=True)
        return 0
    said = compare(*asked.given, asked.by, set(names) if names else None)
    for row in said["gaps"][: asked.most]:
        print(f"{row['guess_ms']:9.3f} {row['seen_ms']:9.3f} {row['guess_ms'] - row['seen_ms']:+9.3f} "
              f"{row['calls']:6} {row['what']}")  # fmt: skip
    for name, row in said["programs"].items():
        print(f"{name:32} {row['guess_ms']:9.2f} {row['seen_ms']:9.2f} {row['guess_ms'] / row['seen_ms'] - 1:+7.1%} "
              f"step {row['step_ms']:9.2f} of which the GPU waits for the host {row['waits_ms']:8.2f}")  # fmt: skip
    print(json.dumps({"programs": len(said["programs"])}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
