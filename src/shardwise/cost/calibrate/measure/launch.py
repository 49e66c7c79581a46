"""What an operation costs when it does nothing: on the device, and on the host that launches it."""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from shardwise.cost.calibrate.measure._bench import Bench, Point

KERNELS = 200
LAYERS = 40
OPERATIONS_PER_LAYER = 4
PASSES = 3
"""the backward launches about twice what the forward does"""
WIDTH = 32


def floor_point(bench: Bench) -> Point:
    """Device time of the smallest kernel: many in one graph, so that the host is out of the way."""
    x = torch.ones(8, device=bench.device)
    if not bench.cuda:
        return {"what": "kernel_floor", "seconds": bench.seconds([lambda: x.add_(1.0)])}
    stream = torch.cuda.Stream(bench.device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(bench.device))
    with torch.cuda.stream(stream):
        x.add_(1.0)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(KERNELS):
            x.add_(1.0)
    return {"what": "kernel_floor", "seconds": bench.seconds([graph.replay]) / KERNELS}


def operations() -> int:
    """Of one `host_step`."""
    return LAYERS * OPERATIONS_PER_LAYER * PASSES


def host_passes(device: torch.device) -> Callable[[], tuple[float, float]]:
    """Seconds of the forward and of the backward pass of a step so small that only the host takes time. Autograd runs
    the backward in a thread of its own, which may have a slower core than the script's."""
    x = torch.randn(4, WIDTH, device=device, requires_grad=True)
    weights = [torch.randn(WIDTH, WIDTH, device=device, requires_grad=True) for _ in range(LAYERS)]

    def timed() -> tuple[float, float]:
        start = time.perf_counter()
        y = x
        for weight in weights:
            y = y + F.gelu(F.linear(F.layer_norm(y, (WIDTH,)), weight))
        y = y.sum()
        between = time.perf_counter()
        torch.autograd.grad(y, [x, *weights])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return between - start, time.perf_counter() - between

    return timed


def host_step(device: torch.device) -> Callable[[], float]:
    """Seconds of both passes."""
    passes = host_passes(device)
    return lambda: sum(passes())


def host_point(bench: Bench, repeats: int = 15) -> Point:
    """Seconds per operation of such a step."""
    step = host_step(bench.device)
    for _ in range(3):
        step()
    return {"what": "host", "seconds": statistics.median(step() for _ in range(repeats)) / operations()}


POINTS = (floor_point, host_point)
