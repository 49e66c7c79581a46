"""A trace of torch.profiler (Chrome form) -> products and attention with their device times, and launch intervals.

Shapes are there when the profiler ran with record_shapes=True; without them only the launches say something.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import msgspec

from shardwise.bounded import json_of
from shardwise.cost.calibrate.profile import Point

MOST_EVENTS = 5_000_000
MOST_POINTS = 2_000
FEW_LAUNCHES = 50
LATEST = 1e18
"""microseconds that a clock can show; JSON may hold integers that no float can"""
LONGEST_LAUNCH_S = 2e-4
"""a longer pause between launches is the program doing something else"""
TYPES = {"c10::BFloat16": "bf16", "c10::Half": "fp16"}
LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel"}
# op -> (pass, where the sequence stands in the dimensions of its first input)
ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": ("forward", 2),
    "aten::_scaled_dot_product_cudnn_attention": ("forward", 2),
    "aten::_flash_attention_forward": ("forward", 1),
    "aten::_scaled_dot_product_flash_attention_backward": ("backward", 2),
    "aten::_scaled_dot_product_cudnn_attention_backward": ("backward", 2),
    "aten::_flash_attention_backward": ("backward", 1),
}


class Event(msgspec.Struct):
    """Only what is read; other fields of an event are skipped."""

    name: Any = ""
    cat: Any = ""
    ts: Any = 0
    dur: Any = 0
    pid: Any = 0
    tid: Any = 0
    args: Any = None


class Trace(msgspec.Struct):
    traceEvents: list[Event]
    deviceProperties: Any = None


@dataclass(frozen=True)
class TraceFacts:
    points: dict[str, list[Point]]
    device: str
    kernels: int
    idle_share: float | None
    """of the busiest stream, between its first and last kernel"""
    notes: list[str] = field(default_factory=list)


def parse(raw: bytes) -> TraceFacts:
    try:
        trace = json_of(raw, Trace)
    except ValueError as error:
        raise ValueError(f"from: not readable as a trace with 'traceEvents': {str(error)[:200]}") from None
    events = trace.traceEvents
    if len(events) > MOST_EVENTS:
        raise ValueError(f"from: a trace of more than {MOST_EVENTS:,} events; profile fewer steps")
    kernels = [event for event in events if event.cat == "kernel" and _time(event.dur) > 0]
    if not kernels:
        raise ValueError("from: no GPU kernel in the trace; profile with ProfilerActivity.CUDA")
    spent: dict[int, float] = defaultdict(float)
    for kernel in kernels:
        spent[_external(kernel)] += _time(kernel.dur)
    spent.pop(-1, None)
    points = {"gemm": _products(events, spent), "attention": _attention(events, spent), "launch": _launches(events)}
    notes = [] if points["gemm"] else ["no GEMM with shapes: profile with record_shapes=True to get kernel rates"]
    if points["attention"]:
        notes.append("attention is taken as causal")
    return TraceFacts(
        {kind: rows for kind, rows in points.items() if rows}, _device(trace), len(kernels), _idle(kernels), notes
    )


def _time(value: Any) -> float:
    """Seconds of a time in microseconds; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LATEST < value < LATEST:
        return 0.0
    return float(value) * 1e-6


def _external(event: Event) -> int:
    found = event.args.get("External id") if isinstance(event.args, dict) else None
    return found if isinstance(found, int) else -1


def _shapes(event: Event) -> list[list[int]]:
    found = event.args.get("Input Dims") if isinstance(event.args, dict) else None
    if not isinstance(found, list):
        return []
    return [d if isinstance(d, list) and all(_size(n) for n in d) else [] for d in found[:8]]


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9


def _dtype(event: Event, index: int) -> str | None:
    found = event.args.get("Input type") if isinstance(event.args, dict) else None
    word = found[index] if isinstance(found, list) and len(found) > index else None
    return TYPES.get(word) if isinstance(word, str) else None


def _products(events: Iterable[Event], spent: dict[int, float]) -> list[Point]:
    seen: dict[tuple[str, int, int, int], list[float]] = defaultdict(list)
    for event in events:
        if event.cat != "cpu_op" or event.name not in ("aten::mm", "aten::addmm"):
            continue
        at = 1 if event.name == "aten::addmm" else 0
        shapes, dtype, seconds = _shapes(event), _dtype(event, at), spent.get(_external(event), 0.0)
        if dtype is None or seconds <= 0 or len(shapes) < at + 2:
            continue
        left, right = shapes[at], shapes[at + 1]
        if len(left) == 2 and len(right) == 2 and left[1] == right[0]:
            seen[dtype, left[0], right[1], left[1]].append(seconds)
    return [
        {"dtype": dtype, "m": m, "n": n, "k": k, "seconds": median(times)}
        for (dtype, m, n, k), times in list(seen.items())[:MOST_POINTS]
    ]


def _attention(events: Iterable[Event], spent: dict[int, float]) -> list[Point]:
    seen: dict[tuple[str, int, int, int, int], list[float]] = defaultdict(list)
    for event in events:
        known = ATTENTION.get(event.name) if event.cat == "cpu_op" and isinstance(event.name, str) else None
        seconds = spent.get(_external(event), 0.0)
        if known is None or seconds <= 0:
            continue
        side, at = known
        first = next(iter(_shapes(event)), [])
        if len(first) == 4:
            seen[side, first[0], first[3 - at], first[at], first[3]].append(seconds)
    return [
        {
            "batch": batch, "heads": heads, "kv_heads": heads, "seq": seq, "head_dim": dim, "pass": side,
            "flops": 2.0 * batch * heads * float(seq) ** 2 * dim * (2.5 if side == "backward" else 1.0),
            "seconds": median(times),
        }
        for (side, batch, heads, seq, dim), times in list(seen.items())[:MOST_POINTS]
    ]  # fmt: skip


def _launches(events: Iterable[Event]) -> list[Point]:
    """The host's pace: time from one launch to the next on the same thread."""
    starts: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.cat == "cuda_runtime" and isinstance(event.name, str) and event.name in LAUNCHES:
            starts[f"{event.pid!r} {event.tid!r}"[:200]].append(_time(event.ts))
    pauses: list[float] = []
    for times in starts.values():
        times.sort()
        pauses += [b - a for a, b in pairwise(times) if 0 < b - a < LONGEST_LAUNCH_S]
    return [{"what": "host", "seconds": median(pauses)}] if len(pauses) >= FEW_LAUNCHES else []


def _idle(kernels: list[Event]) -> float | None:
    streams: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for kernel in kernels:
        start = _time(kernel.ts)
        streams[f"{kernel.pid!r} {kernel.tid!r}"[:200]].append((start, start + _time(kernel.dur)))
    busiest = max(streams.values(), key=lambda spans: sum(b - a for a, b in spans))
    whole = max(b for _, b in busiest) - min(a for a, _ in busiest)
    return max(0.0, 1.0 - sum(b - a for a, b in busiest) / whole) if whole > 0 else None


def _device(trace: Trace) -> str:
    listed = trace.deviceProperties
    first = listed[0] if isinstance(listed, list) and listed else None
    return str(first.get("name", ""))[:200] if isinstance(first, dict) else ""
