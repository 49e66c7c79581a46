"""Traces that torch.profiler wrote on an H200, with causes put in on purpose.

A step of 12 linear layers of 4096 x 4096 over 8192 rows in bf16, AdamW. `data`: 20 ms in `get_batch`; `checkpoint`:
50 ms in `save_checkpoint`; `host`: the host waits for the GPU and sleeps 2 ms before every layer; `copy`: 20 copies of
64 MiB from pinned memory. WALL_MS: the same steps without a profiler. Of the traces the host's operators were left out.
"""

from pathlib import Path

import pytest

from shardwise.cost.curve import curve_of
from shardwise.measured.diagnose.measured_step import measured_step
from shardwise.measured.diagnose.products import beside_curve
from shardwise.measured.diagnose.why_slow import why_step
from shardwise.programs.importers.run_files import read_run
from shardwise.spec.load import gpu_of

TRACES = Path(__file__).parent / "h200"
WALL_MS = {"sound": 15.90, "data": 25.65, "checkpoint": 55.85, "host": 41.97, "copy": 39.16}


@pytest.mark.parametrize("name", WALL_MS)
def test_the_step_is_the_one_without_a_profiler(name):
    (trace,) = read_run([TRACES / f"{name}.json.gz"]).traces
    found = why_step(measured_step([trace], None), None)
    assert found.step_s * 1e3 == pytest.approx(WALL_MS[name], rel=0.06)
    assert trace.device == "NVIDIA H200"
    lost = {cause.code: found.lost_s(cause) * 1e3 for cause in found.causes}
    if name == "sound":
        assert sum(lost.values()) < 0.03 * WALL_MS[name]
        return
    assert found.causes[0].code == name
    # the profiler slows the host by a few percent of the step
    assert lost[name] == pytest.approx(WALL_MS[name] - WALL_MS["sound"], abs=0.08 * WALL_MS[name])


def test_the_product_of_an_odd_shape_is_named_first():
    """`shapes`: six pairs of layers 4096 to 11008 and back, and a last one 333 wide; record_shapes=True."""
    (trace,) = read_run([TRACES / "shapes.json.gz"]).traces
    found = beside_curve(trace.products, curve_of(gpu_of("h200")))
    ratios = [
        (each.measured_s / each.curve_s, 333 in (each.product.m, each.product.n, each.product.k)) for each in found
    ]
    assert [odd for _, odd in ratios] == [True] * 3 + [False] * 4
    assert all(ratio > 4 if odd else 0.85 < ratio < 1.05 for ratio, odd in ratios)
    # four steps: forward, and the gradient of each input but the first
    large = {(each.product.m, each.product.n, each.product.k): each.product.calls for each in found[3:]}
    assert large[8192, 4096, 11008] == 4 * 6 + 4 * 5
