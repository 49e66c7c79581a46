"""What an operation costs when it does nothing: on the device, and on the host that launches it."""

import statistics
import time

import torch
import torch.nn.functional as F

from shardwise.calibrate.measure._bench import Bench, Point

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


def host_point(bench: Bench, repeats: int = 15) -> Point:
    """Seconds per operation of a step so small that only the host takes time, autograd included."""
    x = torch.randn(4, WIDTH, device=bench.device, requires_grad=True)
    weights = [torch.randn(WIDTH, WIDTH, device=bench.device, requires_grad=True) for _ in range(LAYERS)]

    def step() -> None:
        y = x
        for weight in weights:
            y = y + F.gelu(F.linear(F.layer_norm(y, (WIDTH,)), weight))
        torch.autograd.grad(y.sum(), [x, *weights])

    def timed() -> float:
        start = time.perf_counter()
        step()
        if bench.cuda:
            torch.cuda.synchronize(bench.device)
        return time.perf_counter() - start

    for _ in range(3):
        timed()
    seconds = statistics.median(timed() for _ in range(repeats))
    return {"what": "host", "seconds": seconds / (LAYERS * OPERATIONS_PER_LAYER * PASSES)}


POINTS = (floor_point, host_point)
