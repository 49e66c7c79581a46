"""The same kernel takes the same seconds on the way of `plan` and on that of `trace`."""

import pytest

torch = pytest.importorskip("torch")

from shardwise.cost.gpu import curve_of  # noqa: E402
from shardwise.cost.network import network_of  # noqa: E402
from shardwise.run.trace.events import Product, StepEvent  # noqa: E402
from shardwise.run.trace.price import KernelPrices  # noqa: E402
from shardwise.spec.job import Job  # noqa: E402
from shardwise.spec.load import cluster_of  # noqa: E402
from shardwise.spec.software import known_stack  # noqa: E402
from shardwise.step.estimate.layers import gemm_passes  # noqa: E402
from shardwise.step.estimate.machine import Machine  # noqa: E402
from shardwise.work.ops import Gemm  # noqa: E402

STACK = known_stack("torch-eager")


def both(on: str) -> tuple[Machine, KernelPrices]:
    cluster = cluster_of(on)
    curve, network = curve_of(cluster.gpu), network_of(cluster)
    precision = Job(seq=1, global_batch=1).precision
    machine = Machine(curve=curve, network=network, stack=STACK, precision=precision, sizes={}, strides={})
    return machine, KernelPrices(cluster, STACK, curve, network, tf32=False)


def traced(prices: KernelPrices, work) -> float:
    seconds = prices.of(StepEvent("op", "forward", work, "", (), (), 0, 1))
    return seconds - STACK.host.gap_s_per_op


@pytest.mark.parametrize("on", ["1xh200", "1xh100", "1xa100-80", "1xb200"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(8192, 4096, 4096), (2048, 50304, 768), (4096, 50257, 1024), (512, 640, 8192)]
)
def test_a_gemm_takes_as_long_in_a_plan_as_in_a_trace(on: str, m: int, n: int, k: int) -> None:
    machine, prices = both(on)
    forward, *_ = gemm_passes(Gemm("one", float(m), float(n), float(k)), machine)
    product = Product(m, n, k, 1, "bf16", (float(k), float(k), float(n)))
    assert traced(prices, product) == pytest.approx(float(forward), rel=1e-12)
