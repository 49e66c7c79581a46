"""Every message of a training step goes through here: explicit collectives on local tensors, each one recorded.

Bytes follow the planner's contract: the whole buffer of an all-reduce, the output of an all-gather, the input of a
reduce-scatter or all-to-all, the message of a send.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from msgspec import Struct
from torch import Tensor

# torch 2.13 renamed both; the old names warn there and the new ones are missing in 2.11
_gather_into: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

CONTROL = "control"
"""the axis of messages that steer the loop (loss, gradient norm): the planner does not count them"""


@dataclass(frozen=True)
class RankGroup:
    """The ranks of one axis that this rank belongs to."""

    axis: str
    ranks: tuple[int, ...]
    index: int
    """place of this rank among them"""
    handle: Any = None
    """torch's process group; None where the rank is alone"""

    @property
    def size(self) -> int:
        return len(self.ranks)


class CommEvent(Struct, frozen=True, kw_only=True):
    """One message of this rank."""

    axis: str
    op: str
    phase: str
    """forward, backward, recompute or step (once, after the last backward)"""
    bytes: int
    dtype: str
    ranks: tuple[int, ...]
    start_s: float
    end_s: float


class CollectiveHandle:
    """A collective under way; its event ends when it is waited for."""

    def __init__(self, comm: "RankComm", work: Any, note: dict[str, Any], keep: tuple[Tensor, ...] = ()) -> None:
        self._comm, self._work, self._note, self.keep = comm, work, note, keep

    @property
    def done(self) -> bool:
        return bool(self._work.is_completed())

    def wait(self) -> None:
        begun = perf_counter()
        self._work.wait()
        ended = perf_counter()
        self._comm.stood(self._note["axis"], ended - begun)
        self._comm.events.append(CommEvent(**self._note, end_s=ended))


class RankComm:
    def __init__(self) -> None:
        self.events: list[CommEvent] = []
        self.phase = "forward"
        self.current: dict[str, Any] = {}
        """the message under way, for the report of one that never ends"""
        self.blocked: dict[str, float] = {}
        """seconds that this rank stood in messages, by axis; on a GPU the host's, which does not stand long"""

    def stood(self, axis: str, seconds: float) -> None:
        self.blocked[axis] = self.blocked.get(axis, 0.0) + seconds

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    def all_reduce(self, x: Tensor, group: RankGroup, op: Any = dist.ReduceOp.SUM) -> Tensor:
        """In place."""
        if group.size > 1:
            with self._recorded(group, "all_reduce", x):
                dist.all_reduce(x, op=op, group=group.handle)
        return x

    def gathered(self, x: Tensor, group: RankGroup, lengths: Sequence[int] | None = None) -> Tensor:
        """Shards of the first axis joined; shards of different `lengths` are sent to every rank, since backends gather
        equal ones only."""
        rows = x.shape[0] * group.size if lengths is None else sum(lengths)
        out = x.new_empty((rows, *x.shape[1:]))
        with self._recorded(group, "all_gather", out):
            if lengths is None or len(set(lengths)) == 1:
                _gather_into(out, x.contiguous(), group=group.handle)
            else:
                copies = x.repeat(group.size, *(1 for _ in x.shape[1:]))
                dist.all_to_all_single(out, copies, list(lengths), [len(x)] * group.size, group=group.handle)
        return out

    def scattered(self, x: Tensor, group: RankGroup, lengths: Sequence[int] | None = None) -> Tensor:
        """The own share of the first axis of the sum over the group; of given `lengths`, or equal ones."""
        own = x.shape[0] // group.size if lengths is None else lengths[group.index]
        with self._recorded(group, "reduce_scatter", x):
            if lengths is None or len(set(lengths)) == 1:
                out = x.new_empty((own, *x.shape[1:]))
                _reduce_scatter(out, x.contiguous(), group=group.handle)
                return out
            parts = x.new_empty((own * group.size, *x.shape[1:]))
            dist.all_to_all_single(parts, x.contiguous(), [own] * group.size, list(lengths), group=group.handle)
            return parts.view(group.size, own, *x.shape[1:]).sum(0)

    def broadcast(self, x: Tensor, group: RankGroup) -> Tensor:
        """From the group's first rank, in place."""
        if group.size > 1:
            with self._recorded(group, "broadcast", x):
                dist.broadcast(x, src=group.ranks[0], group=group.handle)
        return x

    def exchanged(
        self, x: Tensor, group: RankGroup, sent: Sequence[int] | None = None, received: Sequence[int] | None = None
    ) -> Tensor:
        """all-to-all over blocks of the first axis, equal ones unless their lengths are given."""
        rows = x.shape[0] if received is None else sum(received)
        out = x.new_empty((rows, *x.shape[1:]))
        with self._recorded(group, "all_to_all", x):
            dist.all_to_all_single(
                out, x.contiguous(), output_split_sizes=None if received is None else list(received),
                input_split_sizes=None if sent is None else list(sent), group=group.handle,
            )  # fmt: skip
        return out

    def start_all_reduce(self, x: Tensor, group: RankGroup) -> CollectiveHandle:
        note = self._note(group, "all_reduce", x)
        return CollectiveHandle(self, dist.all_reduce(x, group=group.handle, async_op=True), note)

    def start_gather(self, out: Tensor, own: Tensor, group: RankGroup) -> CollectiveHandle:
        note = self._note(group, "all_gather", out)
        return CollectiveHandle(self, _gather_into(out, own, group=group.handle, async_op=True), note, (own,))

    def start_scatter(self, out: Tensor, x: Tensor, group: RankGroup, op: Any = dist.ReduceOp.SUM) -> CollectiveHandle:
        note = self._note(group, "reduce_scatter", x)
        return CollectiveHandle(self, _reduce_scatter(out, x, op=op, group=group.handle, async_op=True), note, (x,))

    def start_uneven_scatter(
        self, x: Tensor, group: RankGroup, lengths: Sequence[int]
    ) -> tuple[CollectiveHandle, Tensor]:
        """What every rank has of this one's share, one after the other: still to be added up."""
        own = lengths[group.index]
        note, parts = self._note(group, "reduce_scatter", x), x.new_empty(own * group.size)
        work = dist.all_to_all_single(
            parts, x, [own] * group.size, list(lengths), group=group.handle, async_op=True
        )  # fmt: skip
        return CollectiveHandle(self, work, note, (x,)), parts

    def start_send(self, x: Tensor, to: int, group: RankGroup) -> CollectiveHandle:
        note = self._note(group, "send", x)
        return CollectiveHandle(self, dist.isend(x, dst=to, group=group.handle), note, (x,))

    def received(self, like: Tensor, source: int, group: RankGroup) -> Tensor:
        """Waits for a message; the sender records it."""
        out = torch.empty_like(like)
        self._note(group, "receive", out)
        work = dist.irecv(out, src=source, group=group.handle)
        assert work is not None, "this rank is not in the group"
        begun = perf_counter()
        work.wait()
        self.stood(group.axis, perf_counter() - begun)
        return out

    def passed_on(self, x: Tensor, group: RankGroup, step: int) -> Tensor:
        """The ring: to the rank `step` places on, from the one as far behind."""
        out = torch.empty_like(x)
        to = group.ranks[(group.index + step) % group.size]
        source = group.ranks[(group.index - step) % group.size]
        with self._recorded(group, "send", x):
            # on gloo word that this rank receives would wait behind what it sends, where both go to one rank
            operations = [
                dist.P2POp(dist.irecv, out, source, group.handle),
                dist.P2POp(dist.isend, x, to, group.handle),
            ]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        return out

    def _note(self, group: RankGroup, op: str, x: Tensor) -> dict[str, Any]:
        self.current = {
            "axis": group.axis, "op": op, "phase": self.phase, "bytes": x.numel() * x.element_size(),
            "dtype": str(x.dtype).removeprefix("torch."), "ranks": group.ranks, "start_s": perf_counter(),
        }  # fmt: skip
        return self.current

    @contextmanager
    def _recorded(self, group: RankGroup, op: str, x: Tensor) -> Iterator[None]:
        note = self._note(group, op, x)
        yield
        ended = perf_counter()
        self.stood(group.axis, ended - note["start_s"])
        self.events.append(CommEvent(**note, end_s=ended))
