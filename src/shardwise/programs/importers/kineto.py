"""Traces in Chrome's form - torch.profiler's (Kineto), and shardwise's own - as what each rank's device did."""

from array import array
from dataclasses import replace as with_
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict, astuple, replace

from shardwise.measured.diagnose.device_trace import ProductTime, RankTrace, SpanName
from shardwise.programs.importers.asked_for import MARKS, AskedFor
from shardwise.programs.importers.device_events import (
    LONGEST_NAME,
    SpanCollector,
    check_spans,
    host_kind,
    is_collective,
    is_launch,
    is_step,
    op_of,
    ranks_of,
)
from shardwise.programs.importers.torch_trace import TYPES
from shardwise.programs.importers.trace_stream import NO_TEXT, EventArgs, EventStream, TraceEvent
from shardwise.step.simulate.timeline import LANES

LATEST = 1e18
"""microseconds that a clock can show; JSON may hold integers that no float can"""
COPIES = ("gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "hip_runtime")
NAMED = ("user_annotation", "cpu_op", "python_function")
MOST_CALLS = 10_000_000
MOST_LANES = 100_000
MOST_KEPT, KEPT_EACH = 2**29, 500
"""bytes of distinct names and notes, and of one beside its text"""
PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2)}
"""operator -> which of its inputs are multiplied"""
MOST_WIDE = 10**9
NO_ARGS = EventArgs()


def read_trace(path: Path) -> list[RankTrace]:
    """One for each rank in the file: a profiler writes one, a simulated step has all."""
    stream, reading = _read(path, with_operators=False)
    if not reading.device.start and not reading.lanes:
        # nothing ran on a device: what the host computed is all there is
        stream, reading = _read(path, with_operators=True)
    return reading.traces(path.name, stream.about, stream.cut_off)


def _read(path: Path, *, with_operators: bool) -> "tuple[EventStream, TraceReading]":
    stream, reading = EventStream(path), TraceReading(with_operators)
    for events in stream:
        reading.take(events)
    return stream, reading


class TraceReading:
    """Events in any order, and then the ranks they make."""

    def __init__(self, with_operators: bool) -> None:
        self.with_operators = with_operators
        self.device, self.operators = SpanCollector(), SpanCollector()
        self.lanes: dict[int, SpanCollector] = {}
        self.known: dict[str, int] = {}
        self.did: dict[str, str] = {}
        self.kept = 0
        self.told: dict[int, EventArgs] = {}
        self.correlation = array("q")
        self.calls, self.called_for, self.called_at = array("q"), array("q"), array("d")
        self.called_by = array("q")
        self.asked, self.unnamed = AskedFor(), array("q")
        self.external = array("q")
        self.shapes: dict[int, tuple[str, bytes, bytes]] = {}
        self.seen: dict[tuple[str, bytes, bytes], tuple[str, bytes, bytes]] = {}

    def take(self, events: list[TraceEvent]) -> None:
        for event in events:
            category, name = event.cat, event.name
            if not isinstance(category, str) or not isinstance(name, str) or not name or event.ph != "X":
                continue
            start, length = event.ts, event.dur
            if type(start) is not float or type(length) is not float:
                start, length = _time(start), _time(length)
            if not 0 <= length < LATEST or not -LATEST < start < LATEST:
                continue
            name = name[:LONGEST_NAME]
            start *= 1e-6
            end = start + length * 1e-6
            if category == "kernel":
                self._kernel(event, name, start, end)
            elif category in COPIES:
                self._copy(event, name, start, end)
            elif category in RUNTIME:
                self._call(event, name, start, end)
            elif category in NAMED:
                self._named(event, category, name, start, end)
            elif category in LANES:
                self._lane(event, category, name, start, end)
        check_spans(sum(len(each.start) for each in (self.device, self.operators, *self.lanes.values())))
        if self.kept > MOST_KEPT:
            raise ValueError(
                f"run: a trace with more than {MOST_KEPT // 2**20} MiB of names and notes; profile fewer steps"
            )

    def _keep(self, *texts: str | bytes) -> None:
        self.kept += KEPT_EACH + sum(map(len, texts))

    def _kernel(self, event: TraceEvent, name: str, start: float, end: float) -> None:
        args = event.args or NO_ARGS
        what = self.known.get(name)
        if what is None:
            # a collective is more than its name: its group stands with each
            self._keep(name)
            compute = SpanName(kind="compute", name=name[:120])
            what = self.known[name] = -1 if is_collective(name) else self.device.index_of(compute)
        if what >= 0:
            self.device.add(start, end, what)
        else:
            told = args if args.op is not None else self.told.get(_whole(args.external), NO_ARGS)
            if told.op is None:
                self.unnamed.append(len(self.device.start))
            self._keep()
            self.device.told[len(self.device.start)] = _whole(told.sequence), float(max(_whole(told.message), 0))
            self.device.add(start, end, self.device.index_of(_collective(name, told)))
        self.correlation.append(_whole(args.correlation))
        self.external.append(_whole(args.external))

    def _copy(self, event: TraceEvent, name: str, start: float, end: float) -> None:
        # a copy inside the device runs as a kernel does
        kind = "copy" if "HtoD" in name or "DtoH" in name or "Host" in name else "compute"
        self.device.add(start, end, self.device.index_of(SpanName(kind=kind, name=name[:120])))
        self.correlation.append(_whole((event.args or NO_ARGS).correlation))
        self.external.append(-1)

    def _call(self, event: TraceEvent, name: str, start: float, end: float) -> None:
        if is_launch(name) and len(self.calls) < MOST_CALLS:
            args = event.args or NO_ARGS
            self.calls.append(_whole(args.correlation))
            self.called_for.append(_whole(args.external))
            self.called_at.append(start)
            self.called_by.append(self.asked.thread(event.pid, event.tid))
            return
        self._host(name, start, end)

    def _host(self, name: str, start: float, end: float) -> None:
        kind = self.did.get(name)
        if kind is None:
            self._keep(name)
            kind = self.did[name] = host_kind(name)
        if kind:
            self.device.host_did(kind, start, end)

    def _named(self, event: TraceEvent, category: str, name: str, start: float, end: float) -> None:
        if category == "cpu_op":
            self._operator(event, name, start, end)
        elif category == "user_annotation":
            if is_step(name):
                self._keep()
                self.device.steps.append((start, end))
                return
            if name.startswith(MARKS):
                self.asked.mark(self.asked.thread(event.pid, event.tid), name, start, end)
                return
            backend, _, op = name.partition(":")
            if backend in ("gloo", "mpi", "ucc") and op:
                exchange = SpanName(kind="comm", name=name[:120], op=op_of(op))
                self.operators.add(start, end, self.operators.index_of(exchange))
        self._host(name, start, end)

    def _operator(self, event: TraceEvent, name: str, start: float, end: float) -> None:
        args = event.args or NO_ARGS
        if name in PRODUCTS and args.dims:
            # as bytes of their own: a part of the text would keep all of it
            shape = name, bytes(args.dims), bytes(args.types)
            self._keep(*(() if shape in self.seen else shape[1:]))
            self.shapes[_whole(args.external)] = self.seen.setdefault(shape, shape)
        if name == "record_param_comms":
            if args.op is not None:
                told = _plain(args)
                self._keep(*(value for value in astuple(told) if isinstance(value, str)))
                self.told[_whole(args.external)] = told
        elif self.with_operators and not name.startswith("c10d::"):
            compute = SpanName(kind="compute", name=name[:120])
            self.operators.add(start, end, self.operators.index_of(compute))

    def _lane(self, event: TraceEvent, lane: str, name: str, start: float, end: float) -> None:
        """Of a step that shardwise simulated or recorded: a process for each rank, a category for each lane."""
        spans = self.lanes.setdefault(_whole(event.pid), SpanCollector())
        if len(self.lanes) > MOST_LANES:
            raise ValueError(f"run: a trace of more than {MOST_LANES:,} ranks; draw fewer of them")
        if name.startswith(("recompute", "other")) and lane == "compute":
            return
        kind = {"compute": "compute", "copy": "copy"}.get(lane, "comm")
        axis, op = (lane if kind == "comm" else ""), ("send" if lane == "pp" else "")
        spans.add(start, end, spans.index_of(SpanName(kind=kind, name=name.partition(" ")[0], axis=axis, op=op)))

    def traces(self, name: str, about: dict[str, Any], cut_off: bool = False) -> list[RankTrace]:
        """`about`: what the file says beside its events."""
        distributed = about.get("distributedInfo")
        rank = world = None
        if isinstance(distributed, dict):
            rank, world = _known(distributed.get("rank")), _known(distributed.get("world_size"))
        if self.lanes and not self.device.start:
            return [each.trace(name, rank=place, world=len(self.lanes), device="", simulated=True,
                               cut_off=cut_off)
                    for place, each in sorted(self.lanes.items())]  # fmt: skip
        on_cpu = not self.device.start
        if on_cpu:
            self.operators.steps, self.operators.host = self.device.steps, self.device.host
        else:
            self._launched()
        chosen = self.operators if on_cpu else self.device
        if not chosen.start:
            raise ValueError(f"run: {name} has neither kernels nor operators; profile with ProfilerActivity.CUDA")
        device = "CPU" if on_cpu else _device(about)
        found = chosen.trace(name, rank=rank, world=world, device=device, on_cpu=on_cpu, cut_off=cut_off)
        return [found if on_cpu else with_(found, products=self._products())]

    def _launched(self) -> None:
        """When the host asked for each kernel and for which operator, by the number that joins the two."""
        if not self.calls:
            return
        calls, order = np.array(self.calls), np.argsort(np.array(self.calls), kind="stable")
        calls, wanted = calls[order], np.array(self.correlation)
        place = np.minimum(np.searchsorted(calls, wanted), len(calls) - 1)
        known = (calls[place] == wanted) & (wanted >= 0)
        self.device.launched = array("d", np.where(known, np.array(self.called_at)[order][place], np.nan).tobytes())
        self._name_collectives(np.where(known, np.array(self.called_by)[order][place], -1))
        own = np.array(self.external)
        self.external = array("q", np.where(known & (own < 0), np.array(self.called_for)[order][place], own).tobytes())

    def _name_collectives(self, thread: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        """By what the host asked for, where neither the kernel nor a note of its operator tells."""
        rows = np.array(self.unnamed, dtype=np.int64)
        names = list(self.device.names)
        found = self.asked.at(thread[rows], np.array(self.device.launched)[rows])
        for row, op in zip(rows.tolist(), found, strict=True):
            if op:
                name = replace(names[self.device.what[row]], op=op)
                self.device.what[row] = self.device.index_of(name)

    def _products(self) -> tuple[ProductTime, ...]:
        # an operator may take several kernels: a product, and what clears or adds up its parts
        spent: dict[int, float] = {}
        for row, external in enumerate(self.external if self.shapes else ()):
            if external in self.shapes:
                spent[external] = spent.get(external, 0.0) + self.device.end[row] - self.device.start[row]
        together: dict[tuple[str, bytes, bytes], tuple[int, float]] = {}
        for external, seconds in spent.items():
            calls, before_s = together.get(self.shapes[external], (0, 0.0))
            together[self.shapes[external]] = calls + 1, before_s + seconds
        found: dict[tuple[str, int, int, int], ProductTime] = {}
        for shape, (calls, seconds) in together.items():
            one = product_of(*shape)
            if one is not None:
                before = found.get(one, ProductTime(dtype=one[0], m=one[1], n=one[2], k=one[3], calls=0, seconds=0.0))
                found[one] = replace(before, calls=before.calls + calls, seconds=before.seconds + seconds)
        return tuple(found.values())


def product_of(name: str, dims: bytes, types: bytes) -> tuple[str, int, int, int] | None:
    """Type, m, n and k; None where the shapes are no product in 16 bits."""
    try:
        shapes, kinds = msgspec.json.decode(dims, type=list[Any]), msgspec.json.decode(types, type=list[Any])
        left, right = PRODUCTS[name]
        (m, k), (inner, n) = shapes[left], shapes[right]
        dtype = TYPES[kinds[left]]
    except (msgspec.DecodeError, ValueError, TypeError, IndexError, KeyError):
        return None
    sound = all(type(size) is int and 0 < size < MOST_WIDE for size in (m, k, inner, n)) and k == inner
    return (dtype, m, n, k) if sound else None


def _collective(name: str, told: EventArgs) -> SpanName:
    op = op_of(told.op) if isinstance(told.op, str) and told.op else op_of(name)
    ranks = ranks_of(told.ranks)
    return SpanName(
        kind="comm", name=name[:120], op=op, group=_text(told.group), description=_text(told.description),
        group_size=max(_whole(told.group_size), len(ranks), 0), ranks=ranks,
    )  # fmt: skip


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LATEST < value < LATEST:
        return float("nan")
    return float(value)


def _whole(value: Any) -> int:
    return value if type(value) is int and -1 < value < 2**62 else -1


def _plain(args: EventArgs) -> EventArgs:
    """What is kept of a collective's note: texts, numbers and its ranks."""
    nested = {name: None for name, value in asdict(args).items() if isinstance(value, list | dict)}
    ranks = list(ranks_of(args.ranks)) if isinstance(args.ranks, list) else args.ranks
    return replace(args, **(nested | {"dims": NO_TEXT, "types": NO_TEXT, "ranks": ranks}))


def _known(value: Any) -> int | None:
    return value if type(value) is int and -1 < value < 2**31 else None


def _device(about: dict[str, Any]) -> str:
    listed = about.get("deviceProperties")
    first = listed[0] if isinstance(listed, list) and listed else None
    return str(first.get("name", ""))[:200] if isinstance(first, dict) else ""
