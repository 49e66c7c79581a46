"""A traced step in time: kernels on one stream, messages on one stream for each group, launches by the host.

An operator starts when the one before it on its stream has ended, the host has launched it and everything it reads is
there; a message likewise, behind the kernels called before it. So what overlaps follows from the order of the calls and
from who reads what. FSDP2's gathers and reductions run beside the kernels, as torch does on CUDA: a gather waits only
for the copy out of the last but one, what follows a reduction in its own hook stays on the reduction's stream. Any
other message that is waited for at once holds the kernels up.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardwise.run.trace.cache import Cache
from shardwise.run.trace.events import AttentionCall, CollectiveCall, Convolution, Product, StepEvent
from shardwise.run.trace.launches import ENTERED, launches
from shardwise.run.trace.price import KernelPrices

KERNELS = "kernels"
READ_S = 1e-5
"""until the host goes on behind a number it has waited for (`host_item` of `trace-kernels-h200.csv` less its sum)"""
SIDE = ("before gathers", "behind reductions")
GATHER, COPY_OUT, REDUCE = "all_gather", "all_gather_copy_out", "post_backward_reduce"
"""FSDP2's labels"""


@dataclass(frozen=True, slots=True)
class LaneSpan:
    lane: str
    name: str
    phase: str
    start_s: float
    end_s: float
    bytes: int
    at: int


@dataclass
class Playback:
    """Seconds of the step by cause; without the cost of overlap and what a stack adds."""

    spans: list[LaneSpan] = field(default_factory=list)
    busy: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """products, attention, passes, optimizer"""
    waits: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """kernels waiting, by group"""
    host_s: float = 0.0
    """kernels waiting for their launch"""
    messages: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """seconds of messages by group"""
    end_s: float = 0.0

    @property
    def exposed_s(self) -> float:
        return float(sum(self.waits.values()))

    @property
    def hidden_s(self) -> float:
        return max(float(sum(self.messages.values())) - self.exposed_s, 0.0)


class _Stage:
    """Where each stream stands, and when and by whom each storage was last written."""

    def __init__(self, prices: KernelPrices) -> None:
        self.prices = prices
        self.free: dict[str, float] = {}
        self.ready: dict[int, tuple[float, str]] = {}
        self.host = 0.0
        self.cache = Cache(prices.cluster.gpu.l2_bytes)
        self.copied_out = [0.0, 0.0]
        self.reduced = False
        self.entered: set[tuple[str, int]] = set()
        """phases of compiled calls that have begun"""
        self.played = Playback()

    def put(self, event: StepEvent) -> None:
        lane = self._lane(event)
        message = isinstance(event.work, CollectiveCall)
        host = self.prices.stack.host
        self.host += host.host_s_per_op * (launches(event, host.ops_per_collective) + self._entrance(event))
        seconds = self.prices.of(event, self.cache.touched(event))
        free = self.free.get(lane, 0.0)
        needed, by = max((self.ready.get(id(held), (0.0, KERNELS)) for held, _ in event.reads), default=(0.0, KERNELS))
        if message:
            # a message starts behind the kernels called before it, a gather on its own stream
            needed = max(needed, self.copied_out[0] if event.scope == GATHER else self.free.get(KERNELS, 0.0))
        start = max(free, self.host, needed)
        if lane == KERNELS:
            self._waited(free, start, needed, by)
            self._worked(event, seconds)
        end = start + seconds
        self.free[lane] = end
        if event.read_by_host:
            self.host = max(self.host, end + READ_S)
        # what runs on a side stream is waited for on account of the message before it
        blamed = by if lane in SIDE else lane
        for held, _ in event.writes:
            self.ready[id(held)] = (end, blamed)
        self._after(event, lane, end, seconds)
        size = event.work.bytes if isinstance(event.work, CollectiveCall) else 0
        self.played.spans.append(LaneSpan(lane, event.name, event.phase, start, end, size, event.at))
        self.played.end_s = max(self.played.end_s, end)

    def _entrance(self, event: StepEvent) -> float:
        """Of a compiled call, in operations of the host."""
        call = event.phase, event.compiled
        if not event.compiled or call in self.entered:
            return 0.0
        self.entered.add(call)
        return ENTERED[event.phase]

    def _lane(self, event: StepEvent) -> str:
        if isinstance(event.work, CollectiveCall):
            return event.work.group.name
        if event.scope == GATHER:
            return SIDE[0]
        if event.scope == REDUCE and self.reduced:
            return SIDE[1]
        return KERNELS

    def _waited(self, free: float, start: float, needed: float, by: str) -> None:
        gap = start - free
        launch = min(max(self.host - free, 0.0), gap)
        self.played.host_s += launch
        if needed > free + launch:
            self.played.waits[by] += gap - launch

    def _worked(self, event: StepEvent, seconds: float) -> None:
        kind = {Product: "products", Convolution: "products", AttentionCall: "attention"}.get(
            type(event.work), "passes"
        )
        self.played.busy["optimizer" if event.phase == "optimizer" else kind] += seconds

    def _after(self, event: StepEvent, lane: str, end: float, seconds: float) -> None:
        if isinstance(event.work, CollectiveCall):
            self.played.messages[lane] += seconds
            if event.scope == REDUCE:
                self.reduced = True
            elif event.work.waited and event.scope != GATHER:
                free = self.free.get(KERNELS, 0.0)
                self.played.waits[lane] += max(end - free, 0.0)
                self.free[KERNELS] = max(free, end)
        elif event.scope != REDUCE or event.name == "chunk_cat":
            self.reduced = False
        if event.scope == COPY_OUT and event.name == "split_with_sizes_copy":
            self.copied_out = [self.copied_out[1], end]


def played(events: Sequence[StepEvent], prices: KernelPrices) -> Playback:
    stage = _Stage(prices)
    for event in events:
        stage.put(event)
    found = stage.played
    tail = found.end_s - stage.free.get(KERNELS, 0.0)
    if tail > 0:
        last = max((span for span in found.spans if span.lane in found.messages), key=lambda span: span.end_s)
        found.waits[last.lane] += tail
    return found
