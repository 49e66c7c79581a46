"""The recurrence of a mixer, forward and backward, timed beside the bytes that the planner counts."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from _timed_rows import write_rows
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.work.layer import layer_work
from shardwise.work.layout import layout_of
from shardwise.work.ops import SCAN_BYTES_PER_SM_S

if TYPE_CHECKING:
    import torch

WARM, REPEATS = 5, 20


class Shape(NamedTuple):
    model: str
    tp: int
    sequences: int
    seq: int


class Timed(NamedTuple):
    model: str
    tp: int
    sequences: int
    seq: int
    forward_bytes: float
    backward_bytes: float
    forward_s: float
    backward_s: float


class Call(NamedTuple):
    """What is timed: a function of nothing, what it is differentiated by, and the gradient of its result."""

    run: Callable[[], "torch.Tensor"]
    inputs: Sequence["torch.Tensor"]
    gradient: "torch.Tensor"


def counted(shape: Shape) -> tuple[float, float]:
    """Bytes that the planner says the kernels move."""
    model, job = model_of(shape.model), Job(seq=shape.seq, global_batch=shape.sequences)
    layout = layout_of(model, job, Policies.of([Policy(tp=shape.tp, micro_batch=shape.sequences)]))
    works = (layer_work(model, kind, layout, precision_of("bf16"), stack_of("megatron-core"), shape.seq)
             for kind in model.kinds)  # fmt: skip
    scan = next(work.scan for work in works if work.scan is not None)
    return float(np.ravel(scan.forward_bytes)[0]), float(np.ravel(scan.backward_bytes)[0])


def timed(shape: Shape, call: Call) -> Timed:
    import torch

    forward, backward = [], []
    for _ in range(WARM + REPEATS):
        start, between, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        start.record()
        out = call.run()
        between.record()
        torch.autograd.grad(out, call.inputs, call.gradient)
        end.record()
        torch.cuda.synchronize()
        forward.append(start.elapsed_time(between) / 1e3)
        backward.append(between.elapsed_time(end) / 1e3)
    return Timed(*shape, *counted(shape), median(forward[WARM:]), median(backward[WARM:]))


def run(
    doc: str | None,
    load: Callable[[], Any],
    call_of: Callable[[Any, Shape], Call],
    shapes: Sequence[Shape],
    stated: str,
) -> int:
    """The command: `load` fetches the kernels or raises ImportError, `stated` is the rule they follow."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the times as CSV")
    given = parser.parse_args()
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no CUDA device: the kernels can only be timed on a GPU")
        kernels = load()
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    properties = torch.cuda.get_device_properties(0)
    rate = SCAN_BYTES_PER_SM_S[stated] / 1e9
    print(f"{properties.name}, {properties.multi_processor_count} SMs; planner: {rate:g} GB/s per SM")
    print(f"{'model':<20} {'tp':>3} {'tokens':>7} {'fwd ms':>8} {'GB/s/SM':>8} {'bwd ms':>8} {'GB/s/SM':>8}")
    found = []
    for shape in shapes:
        one = timed(shape, call_of(kernels, shape))
        found.append(one)
        pairs = ((one.forward_bytes, one.forward_s), (one.backward_bytes, one.backward_s))
        ahead, back = (moved / seconds / properties.multi_processor_count / 1e9 for moved, seconds in pairs)
        print(
            f"{one.model:<20} {one.tp:>3} {one.sequences * one.seq:>7} {1e3 * one.forward_s:8.3f} {ahead:8.2f} "
            f"{1e3 * one.backward_s:8.3f} {back:8.2f}",
            flush=True,
        )
    if given.out:
        write_rows(given.out, found)
    return 0
