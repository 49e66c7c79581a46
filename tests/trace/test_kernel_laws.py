"""What the laws of traced kernels say of shapes, and how far they are from the grid they were fitted on."""

import csv
import math
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

torch = pytest.importorskip("torch")

from shardwise.cost.gpu import curve_of  # noqa: E402
from shardwise.run.trace.attention_rates import attention_kernel_seconds  # noqa: E402
from shardwise.run.trace.cache import CACHED_TIME, Cache  # noqa: E402
from shardwise.run.trace.convolution_rates import convolution_seconds  # noqa: E402
from shardwise.run.trace.events import AttentionCall, Capture, Convolution, Pass, StepEvent, TensorStorage  # noqa: E402
from shardwise.run.trace.operators import works_of  # noqa: E402
from shardwise.run.trace.overlap import played  # noqa: E402
from shardwise.run.trace.price import prices_of  # noqa: E402
from shardwise.run.trace.rates import pass_seconds  # noqa: E402
from shardwise.run.trace.reductions import reduced  # noqa: E402
from shardwise.spec.load import cluster_of  # noqa: E402
from shardwise.spec.software import known_stack  # noqa: E402

GRID = Path(__file__).parents[2] / "evidence" / "timed" / "trace-grid-h200.csv"
CLUSTER = cluster_of("1xh200")
GPU = CLUSTER.gpu
CURVE = curve_of(GPU)
PRICES = prices_of(Capture(0, 1), CLUSTER, known_stack("torch-eager"))
MIB = 2**20


def attention(heads: int, keys: int = 1024, **given) -> float:
    square = 4.0 * heads * keys * keys * 64
    call = AttentionCall(square, square, keys, 64, heads, False, given.pop("dtype", "bf16"), causal=False, **given)
    return attention_kernel_seconds(CURVE, GPU, call, "flash")


def test_attention_takes_whole_waves_of_blocks() -> None:
    """Eight blocks a head, 132 at a time."""
    assert attention(16) == attention(1)
    assert attention(17) == pytest.approx(2 * attention(16) - CURVE.kernel_floor_s)
    assert attention(1, 1000) == attention(1, 1024)
    assert attention(16, masked=True) > 1.5 * attention(16)
    assert attention(16, 1023, masked=True) > attention(16, 1024, masked=True)
    assert attention(512, dtype="fp32") > 4 * attention(512)


CONVOLUTION = Convolution("forward", "grouped", 64 * 56 * 56, 64 * 56 * 56, 9, 256, 256, 32, "bf16", True, 10**8)


def test_groups_are_filled_up_to_a_tile() -> None:
    eight, thirty_two = (convolution_seconds(CURVE, GPU, replace(CONVOLUTION, groups=256 // c)) for c in (8, 32))
    assert eight == thirty_two
    thin, odd = (
        convolution_seconds(CURVE, GPU, replace(CONVOLUTION, channels=c * 32, filters=c * 32)) for c in (2, 24)
    )
    assert thin > eight
    assert odd > convolution_seconds(CURVE, GPU, replace(CONVOLUTION, channels=1024, filters=1024))


def test_the_gradient_of_a_strided_input_is_as_large_as_the_input() -> None:
    strided = replace(CONVOLUTION, places=CONVOLUTION.places // 4)
    assert convolution_seconds(CURVE, GPU, replace(strided, part="input")) > convolution_seconds(CURVE, GPU, strided)


def test_short_rows_take_longer_to_add_up_than_columns() -> None:
    x = torch.empty(2**14, 64, 64, device="meta")
    rows, columns = (pass_seconds(CURVE, GPU, reduced(axis, x, x.numel() * 4)) for axis in (2, 1))
    assert rows > 2 * columns
    long = torch.empty(2**12, 2**14, device="meta")
    assert pass_seconds(CURVE, GPU, reduced(1, long, x.numel() * 4)) < 1.2 * x.numel() * 4 / CURVE.bandwidth


def touched(*storages: TensorStorage, size: int) -> StepEvent:
    both = tuple((storage, size) for storage in storages)
    return StepEvent("mul_", "forward", Pass(2 * size), "", both, both, 0, 1)


def test_what_was_touched_a_moment_ago_is_in_the_cache() -> None:
    first, second = TensorStorage("other", 0), TensorStorage("other", 0)
    cache = Cache(48 * MIB)
    assert cache.touched(touched(first, size=16 * MIB)) == 0
    assert cache.touched(touched(first, size=16 * MIB)) == 16 * MIB
    assert cache.touched(touched(second, size=30 * MIB)) == 0
    assert cache.touched(touched(first, size=16 * MIB)) == 0
    work = Pass(32 * MIB)
    assert pass_seconds(CURVE, GPU, work, 32 * MIB) == pytest.approx(CACHED_TIME * pass_seconds(CURVE, GPU, work))


def test_the_second_pass_over_a_small_tensor_is_faster() -> None:
    event = touched(TensorStorage("other", 0), size=16 * MIB)
    first, second = played([event, event], PRICES).spans
    assert second.end_s - second.start_s < first.end_s - first.start_s


def test_views_are_launched_faster_than_kernels() -> None:
    def host(calls: int, python: tuple[int, int] = (0, 0)) -> float:
        small = StepEvent("add", "forward", Pass(1), "", (), (), 0, calls, python=python)
        return played([small], PRICES).host_s

    assert host(1) < host(2) < 2 * host(1)
    assert host(1, python=(9, 0)) > host(1)
    assert host(1, python=(0, 9)) > host(1)


BOUNDS = {
    "convolution": 0.30, "convolution_backward": 0.40, "sum": 0.20, "mean": 0.20, "mul": 0.15, "cat": 0.30,
    "_to_copy": 0.30, "_softmax": 0.25, "native_layer_norm": 0.25, "mm": 0.20,
}  # fmt: skip
"""mean distance of logarithms that a class may have; about 1.3 times what it has"""
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int64": torch.int64, "bool": torch.bool}


def value_of(text: str):
    """Of the table's own writing: `float32[8x64]/64x1`, a number, a list in parentheses."""
    if text.startswith("("):
        return [value_of(part) for part in text[1:-1].split()]
    found = re.fullmatch(r"(\w+)\[([\dx]*)\](?:/([\dx]+))?", text)
    if found is None:
        return {"None": None, "True": True, "False": False}.get(text) if not text[-1].isdigit() else float(text)
    shape = [int(size) for size in found[2].split("x") if size]
    if found[3]:
        return torch.empty_strided(shape, [int(s) for s in found[3].split("x")], dtype=DTYPES[found[1]], device="meta")
    return torch.empty(shape, dtype=DTYPES[found[1]], device="meta")


def arguments(text: str) -> list:
    parts = [value_of(part) for part in re.findall(r"\([^)]*\)|[^ ]+", text)]
    return [int(p) if isinstance(p, float) and p == int(p) else p for p in map(_whole, parts)]


def _whole(part):
    return [int(p) if isinstance(p, float) else p for p in part] if isinstance(part, list) else part


def test_the_laws_are_near_the_grid_they_were_fitted_on() -> None:
    errors = defaultdict(list)
    with GRID.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["op"].split(".")[1] in BOUNDS]
    for row in rows[::3]:
        space, name, overload = row["op"].split(".")
        microseconds = float(row["us"])
        if space != "aten" or microseconds < 15:
            continue
        args, outs = arguments(row["args"]), [t for t in arguments(row["outs"]) if isinstance(t, torch.Tensor)]
        ins = [t for arg in args for t in (arg if isinstance(arg, list) else [arg]) if isinstance(t, torch.Tensor)]
        operator = getattr(getattr(torch.ops.aten, name), overload)
        events = [StepEvent(name, "forward", w, "", (), (), 0, 1) for _, w in works_of(operator, args, ins, outs)]
        predicted = sum(PRICES.of(event) - PRICES.stack.host.gap_s_per_op for event in events)
        errors[name].append(abs(math.log(predicted * 1e6 / microseconds)))
    assert set(errors) == set(BOUNDS)
    for name, distances in errors.items():
        assert fmean(distances) < BOUNDS[name], name
