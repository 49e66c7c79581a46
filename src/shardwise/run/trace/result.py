"""What a trace says: messages by group, memory at its fullest moment, FLOPs, and with a cluster the step in seconds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct

from shardwise.cost.curve import curve_of
from shardwise.run.trace.compiled import compiled_changes, fused
from shardwise.run.trace.events import (
    KINDS,
    PHASES,
    AttentionCall,
    Capture,
    CollectiveCall,
    Convolution,
    Pass,
    Product,
    StepEvent,
)
from shardwise.run.trace.overlap import Playback, played
from shardwise.run.trace.price import KernelPrices
from shardwise.spec.software import named
from shardwise.step.estimate.band import ErrorBand, band_for
from shardwise.step.estimate.stragglers import waiting_share


class MessageRow(Struct, frozen=True, kw_only=True):
    group: str
    ranks: int
    stride: int
    op: str
    phase: str
    dtype: str
    count: int
    bytes: int
    seconds: float | None
    """before any overlap; null without a cluster"""


class OperatorRow(Struct, frozen=True, kw_only=True):
    name: str
    count: int
    flops: float
    bytes: int
    """read and written by passes; products and attention are priced by their shapes"""
    seconds: float | None


class StepTime(Struct, frozen=True, kw_only=True):
    step_s: float
    low_s: float
    high_s: float
    parts: dict[str, float]
    """seconds by cause; they add up to step_s"""
    exposed: dict[str, float]
    """kernels waiting for messages, by group: the part `messages`"""
    message_s: float
    hidden_s: float
    mfu_causal_half: float
    """FLOPs without recompute, of attention what a fused causal kernel computes, over the peak of the dtype that most
    FLOPs have"""
    mfu_full_square: float
    """the same with the whole attention square"""
    peak_dtype: str
    batch_tokens_per_s: float | None
    """of this rank's batch, which the ranks of a tensor-parallel group share"""
    batch_samples_per_s: float | None
    stack: str
    band: str


class Fit(Struct, frozen=True, kw_only=True):
    limit_bytes: float
    """the GPU's memory less what the stack keeps free"""
    needed_bytes: float
    """peak, the stack's fixed bytes and its fragmentation"""
    fits: bool


WORKSPACE = "workspace"
"""kind of memory: what cuBLAS works in"""


class TraceResult(Struct, frozen=True, kw_only=True):
    rank: int
    world: int
    messages: tuple[MessageRow, ...]
    operators: tuple[OperatorRow, ...]
    peak_bytes: int
    """of tensors, and on a named GPU of the libraries' workspace too: what torch.cuda.max_memory_allocated counts"""
    memory_bytes: dict[str, int]
    """by kind at the fullest moment"""
    kind_peaks: dict[str, int]
    """each kind at its own fullest moment"""
    peak_phase: str
    flops: dict[str, float]
    """of products and fused attention, by phase"""
    tokens: int
    samples: int
    compiled: bool
    time: StepTime | None
    fit: Fit | None


def result_of(captured: Capture, prices: KernelPrices | None) -> tuple[TraceResult, Playback | None]:
    events = fused(captured) if captured.compiled and prices else captured.events
    times = None
    if prices is not None:
        prices, times = _settled(events, prices)
    peak, kinds, own, phase = _fullest(captured)
    fit = None
    if prices is not None:
        memory = prices.stack.memory
        needed = peak * (1.0 + memory.fragmentation) + memory.base_bytes
        limit = prices.cluster.gpu.memory_bytes - memory.reserve_bytes
        fit = Fit(limit_bytes=limit, needed_bytes=needed, fits=needed <= limit)
        # torch takes it from its own allocator when the first product runs, and keeps it
        workspace = round(memory.base_bytes)
        peak += workspace
        kinds, own = kinds | {WORKSPACE: workspace}, own | {WORKSPACE: workspace}
    found = TraceResult(
        rank=captured.rank, world=captured.world, messages=_messages(captured, prices),
        operators=_operators(events, times), peak_bytes=peak, memory_bytes=kinds, kind_peaks=own, peak_phase=phase,
        flops=_flops(captured), tokens=captured.tokens, samples=captured.samples, compiled=captured.compiled,
        time=None if prices is None or times is None else _time(captured, prices, times), fit=fit,
    )  # fmt: skip
    return found, times


def _settled(events: Sequence[StepEvent], prices: KernelPrices) -> tuple[KernelPrices, Playback]:
    """The clock follows from the step's time and the step's time from the clock; twice round is enough."""
    times = played(events, prices)
    for _ in range(2):
        busy = times.busy["products"] + times.busy["attention"]
        prices = replace(prices, duty=busy / times.end_s if times.end_s else 1.0)
        times = played(events, prices)
    return prices, times


def _messages(captured: Capture, prices: KernelPrices | None) -> tuple[MessageRow, ...]:
    counts: Counter[tuple[str, int, int, str, str, str]] = Counter()
    sizes: Counter[tuple[str, int, int, str, str, str]] = Counter()
    seconds: dict[tuple[str, int, int, str, str, str], float] = {}
    for event, message in captured.messages:
        group = message.group
        key = (group.name, group.size, group.stride, message.op, event.phase, message.dtype)
        counts[key] += 1
        sizes[key] += message.bytes
        if prices is not None:
            seconds[key] = seconds.get(key, 0.0) + prices.of(event)
    order = sorted(counts, key=lambda key: (key[0], key[3], PHASES.index(key[4])))
    return tuple(
        MessageRow(group=key[0], ranks=key[1], stride=key[2], op=key[3], phase=key[4], dtype=key[5],
                   count=counts[key], bytes=sizes[key], seconds=seconds.get(key))
        for key in order
    )  # fmt: skip


def _operators(events: Sequence[StepEvent], times: Playback | None) -> tuple[OperatorRow, ...]:
    counts: Counter[str] = Counter()
    flops: dict[str, float] = {}
    moved: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for place, event in enumerate(events):
        if isinstance(event.work, CollectiveCall):
            continue
        counts[event.name] += 1
        if isinstance(event.work, Pass):
            moved[event.name] += event.work.bytes
        else:
            flops[event.name] = flops.get(event.name, 0.0) + event.work.flops
        if times is not None:
            span = times.spans[place]
            seconds[event.name] = seconds.get(event.name, 0.0) + span.end_s - span.start_s
    order = sorted(counts, key=lambda name: (-seconds.get(name, 0.0), -flops.get(name, 0.0), -moved[name]))
    return tuple(
        OperatorRow(name=name, count=counts[name], flops=flops.get(name, 0.0), bytes=moved[name],
                    seconds=seconds.get(name))
        for name in order
    )  # fmt: skip


def _fullest(captured: Capture) -> tuple[int, dict[str, int], dict[str, int], str]:
    """(bytes, by kind then, each kind at its own peak, phase)."""
    now: Counter[str] = Counter()
    own: Counter[str] = Counter()
    total = peak = at = 0
    kinds: dict[str, int] = {}
    changes = (
        compiled_changes(captured)
        if captured.compiled
        else [(index, held, change) for index, (held, change) in enumerate(captured.changes)]
    )
    for index, held, change in changes:
        now[held.kind] += change
        total += change
        own[held.kind] = max(own[held.kind], now[held.kind])
        if total > peak:
            peak, kinds, at = total, dict(now), index
    phase = next((event.phase for event in captured.events if event.at > at), "forward")
    by_kind = {kind: kinds.get(kind, 0) for kind in KINDS}
    return peak, by_kind, {kind: own[kind] for kind in KINDS}, phase


def _flops(captured: Capture) -> dict[str, float]:
    found = dict.fromkeys(PHASES, 0.0)
    for event in captured.events:
        if isinstance(event.work, (Product, Convolution, AttentionCall)):
            found[event.phase] += event.work.flops
    return found


def _time(captured: Capture, prices: KernelPrices, times: Playback) -> StepTime:
    stack, cluster = prices.stack, prices.cluster
    # as the closed form has it: a part of what hides does not, and kernels beside a message are slower
    beside = times.hidden_s * (
        (1.0 - stack.overlap.hidden_share) + stack.overlap.overlap_slowdown * stack.overlap.hidden_share
    )
    parts = {**{kind: times.busy[kind] for kind in ("products", "attention", "passes", "optimizer")},
             "messages": times.exposed_s, "beside": beside, "host": times.host_s}  # fmt: skip
    busy = sum(parts.values())
    parts["other"] = busy * float(waiting_share(captured.world, stack)) + stack.host.step_overhead_s
    step = busy + parts["other"]
    band: ErrorBand = band_for(named(stack), curve_of(cluster.gpu), gpus=captured.world, experts=False, source=None)
    counted, square, dtype = _useful(captured)
    peak = cluster.gpu.peak(prices.dtype(dtype))
    return StepTime(
        step_s=step, low_s=step * (1 + band.low), high_s=step * (1 + band.high), parts=parts,
        exposed=dict(times.waits), message_s=float(sum(times.messages.values())), hidden_s=times.hidden_s,
        mfu_causal_half=counted / step / peak, mfu_full_square=square / step / peak, peak_dtype=prices.dtype(dtype),
        stack=stack.name,
        batch_tokens_per_s=captured.tokens / step if captured.tokens else None,
        batch_samples_per_s=captured.samples / step if captured.samples else None, band=str(band),
    )  # fmt: skip


def _useful(captured: Capture) -> tuple[float, float, str]:
    """(FLOPs computed, the same with whole attention squares, dtype of most), recompute left out."""
    counted = square = 0.0
    dtypes: dict[str, float] = {}
    for event in captured.events:
        work = event.work
        if event.phase == "recompute" or not isinstance(work, (Product, Convolution, AttentionCall)):
            continue
        counted += work.flops
        square += work.square_flops if isinstance(work, AttentionCall) else work.flops
        dtypes[work.dtype] = dtypes.get(work.dtype, 0.0) + work.flops
    return counted, square, max(dtypes, key=lambda name: dtypes[name], default="bf16")
