"""What a strategy sends, holds and touches for each parameter of a worker: its own trace on shapes, per step."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from shardwise.plugins.sync import ParameterLayout, Strategy
from shardwise.plugins.sync._cost import sent_by_worker, trace_of
from shardwise.plugins.sync._events import FP32, SyncEvent
from shardwise.spec.arch.tuned import trained_embedding, trained_head, trained_layer
from shardwise.spec.model import Model

ROW = 1 << 24
"""parameters the trace is taken with where matrices do not matter; all of it grows with them"""


@dataclass(frozen=True)
class StrategyTraffic:
    exchanges: tuple[tuple[SyncEvent, float, float], ...]
    """(event, its bytes per parameter, times per step)"""
    sent: float
    """bytes per parameter and step that the busiest worker sends"""
    state: float
    """bytes per parameter held beyond parameters, gradients and the optimizer's state"""
    encoded: tuple[tuple[str, float], ...]
    """numbers encoded per parameter and step, by compressor"""
    decoded: float
    """bytes per parameter and step that decoding reads and writes"""
    busy: float
    """share of the steps that exchange anything"""

    @property
    def gathers(self) -> bool:
        """Everyone receives everyone's compressed message, so that its traffic grows with the workers."""
        ops = {event.op for event, _, _ in self.exchanges}
        return bool(self.encoded) and "all_gather" in ops and "all_to_all" not in ops


@lru_cache(maxsize=4096)
def traffic_of(strategy: Strategy, workers: int, model: Model, tp: int) -> StrategyTraffic:
    layout = layout_of_model(model, tp) if strategy.needs_whole else ParameterLayout.flat(ROW)
    start, length, d = strategy.settles(), strategy.period(workers), float(layout.d)
    trace = trace_of(strategy, layout, workers, start + length)
    ticks, passes = trace.steps[start:], trace.passes[start:]
    steps = strategy.steps_in(length, workers)
    counts = Counter(event for tick in ticks for event in tick)
    # rounds of a graph that differ in the partners only take the same time
    kinds: dict[tuple[object, ...], tuple[SyncEvent, int]] = {}
    for event, times in counts.items():
        key = (event.op, event.algorithm, event.bytes, event.size, event.stride, max(event.sent), sum(event.sent))
        kinds[key] = (event, times + (kinds[key][1] if key in kinds else 0))
    encoded: Counter[str] = Counter()
    for each in passes:
        encoded.update(each.encoded)
    return StrategyTraffic(
        exchanges=tuple((event, event.bytes / d, times / steps) for event, times in kinds.values()),
        sent=float(sent_by_worker(counts, workers).max()) / d / steps,
        state=trace.state_bytes / d,
        encoded=tuple((name, number / d / steps) for name, number in encoded.items()),
        decoded=sum(each.decoded_bytes for each in passes) / d / steps,
        busy=sum(map(bool, ticks)) / length,
    )


def layout_of_model(model: Model, tp: int = 1) -> ParameterLayout:
    """The model's matrices, each cut along its rows over tp: enough for what factors them. Each expert has its own."""
    tensors = [*trained_embedding(model), *(t for kind in model.pattern for t in trained_layer(model, kind)),
               *trained_head(model)]  # fmt: skip
    shapes = [shape for t in tensors for shape in ([t.shape[1:]] * t.shape[0] if len(t.shape) == 3 else [t.shape])]
    cut = [(max(shape[0] // tp, 1), *shape[1:]) if len(shape) > 1 else shape for shape in shapes]
    return ParameterLayout.named((str(index), shape) for index, shape in enumerate(cut))


def dense_bytes(workers: int) -> float:
    """Of a ring all-reduce in fp32, sent per parameter."""
    return 2.0 * FP32 * (workers - 1) / workers
