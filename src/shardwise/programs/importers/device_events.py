"""Gathers spans, steps and what the host did while they come in, and makes a RankTrace of them."""

import re
from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from shardwise.measured.diagnose.device_trace import HOST_KINDS, HostRanges, RankTrace, SpanName

MOST_SPANS = 10_000_000
LONGEST_NAME = 300
_COMM = re.compile(r"nccl|rccl|msccl|oneccl|deep_ep|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.I)
_OPS = (
    ("all_reduce", r"all_?reduce"), ("reduce_scatter", r"reduce_?scatter"), ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all|deep_ep|dispatch|combine"), ("send", r"send|recv"), ("broadcast", r"broadcast"),
    ("barrier", r"barrier"), ("reduce", r"reduce"),
)  # fmt: skip
_HOST = (
    ("data", r"dataloader|data_loader|get_batch|next_batch|data_loading|load_batch|fetch_batch|batch[-_]generator"),
    ("checkpoint", r"save_checkpoint|checkpoint.{0,40}save|\bdcp\b.{0,20}save|save_state|torch\.save"),
)
_STEP = re.compile(r"ProfilerStep#\d+|(?:train_?)?(?:iteration|iter|step)[ _#:=]{0,3}\d+", re.I)
SYNC = re.compile(r"(?:cuda|hip|cu)(?:Device|Stream|Event|Ctx)Synchronize")
ALLOCATES = re.compile(r"(?:cuda|hip)(?:Malloc|Free|HostAlloc)|cuMem(?:Create|Alloc|Free|Map)")


@lru_cache(maxsize=4096)
def op_of(name: str) -> str:
    return next((op for op, form in _OPS if re.search(form, name, re.IGNORECASE)), "collective")


def is_collective(name: str) -> bool:
    return _COMM.search(name[:LONGEST_NAME]) is not None


def host_kind(name: str) -> str:
    """Of a range that a program or a library named; empty: nothing that explains a wait."""
    text = name[:LONGEST_NAME]
    if SYNC.match(text):
        return "sync"
    if ALLOCATES.match(text):
        return "memory"
    return next((kind for kind, form in _HOST if re.search(form, text, re.IGNORECASE)), "")


def is_launch(name: str) -> bool:
    """Calls that ask the device for work and do not wait for it."""
    return "aunch" in name or "Async" in name


def is_step(name: str) -> bool:
    return _STEP.fullmatch(name[:LONGEST_NAME]) is not None


def ranks_of(text: Any) -> tuple[int, ...]:
    """'[0, 1, 2]'; a long list is cut off in the middle by the profiler, and then says nothing sure."""
    if isinstance(text, list):
        return tuple(each for each in text[:4096] if isinstance(each, int) and not isinstance(each, bool))
    if not isinstance(text, str) or "..." in text or len(text) > 40_000:
        return ()
    return tuple(int(word) for word in re.findall(r"\d{1,9}", text))


def check_spans(count: int) -> None:
    """Of all ranks in a file."""
    if count > MOST_SPANS:
        raise ValueError(f"run: a trace of more than {MOST_SPANS:,} spans; profile fewer steps")


@dataclass
class SpanCollector:
    start: "array[float]" = field(default_factory=lambda: array("d"))
    end: "array[float]" = field(default_factory=lambda: array("d"))
    what: "array[int]" = field(default_factory=lambda: array("q"))
    launched: "array[float]" = field(default_factory=lambda: array("d"))
    """of all spans, or empty"""
    told: dict[int, tuple[int, float]] = field(default_factory=dict)
    """of a collective's span: its number in the group, and elements of its message"""
    names: dict[SpanName, int] = field(default_factory=dict)
    steps: list[tuple[float, float]] = field(default_factory=list)
    host: dict[str, tuple["array[float]", "array[float]"]] = field(
        default_factory=lambda: {kind: (array("d"), array("d")) for kind in HOST_KINDS}
    )

    def index_of(self, name: SpanName) -> int:
        return self.names.setdefault(name, len(self.names))

    def add(self, start: float, end: float, what: int) -> None:
        self.start.append(start)
        self.end.append(end)
        self.what.append(what)

    def host_did(self, kind: str, start: float, end: float) -> None:
        self.host[kind][0].append(start)
        self.host[kind][1].append(end)

    def trace(self, name: str, *, rank: int | None, world: int | None, device: str, on_cpu: bool = False,
              simulated: bool = False, cut_off: bool = False) -> RankTrace:  # fmt: skip
        count = len(self.start)
        sequence, message = np.full(count, -1, dtype=np.int64), np.zeros(count)
        for row, (number, elements) in self.told.items():
            sequence[row], message[row] = number, elements
        start, launched = np.array(self.start), np.array(self.launched) if self.launched else np.full(count, np.nan)
        order = np.argsort(start, kind="stable")
        return RankTrace(
            name=name, rank=rank, world=world, device=device, start_s=start[order],
            end_s=np.array(self.end)[order], what=np.array(self.what)[order], names=tuple(self.names),
            launched_s=launched[order], sequence=sequence[order],
            message=message[order], steps=tuple(sorted(set(self.steps))),
            host={kind: HostRanges(np.array(begin), np.array(end)) for kind, (begin, end) in self.host.items()},
            on_cpu=on_cpu, simulated=simulated, cut_off=cut_off,
        )  # fmt: skip
