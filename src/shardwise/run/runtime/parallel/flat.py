"""Data parallelism with ZeRO 0, 1 and 2: parameters and gradients as flat buffers, reduced in messages of equal size.

A message leaves as soon as the backward pass has produced all of its gradients, so it runs under the rest of it.
ZeRO 0 reduces whole gradients, 1 keeps only the own share of the sum, 2 never holds more than that between
micro-batches and so reduces in each of them. Gradients that must first be summed over tensor-parallel ranks or over the
two ends of the pipeline lie at the end of the buffer.
16-bit parameters have gradients summed in fp32 and a copy of the own share in fp32 that the optimizer updates, unless
the precision says that all of it has 16 bits.
"""

import weakref
from functools import cached_property, partial

import torch
from torch import Tensor

from shardwise.run.runtime.parallel.comm import CollectiveHandle, RankComm, RankGroup
from shardwise.run.runtime.parallel.held import Local, ParameterSpan, PieceRuns, RankParameter, overlap
from shardwise.run.runtime.parallel.products import TAKES_PRODUCTS
from shardwise.run.runtime.parallel.world import RankWorld
from shardwise.spec.job import Precision

TAKEN_ON = ("cuda",)
"""kinds of device on which weight gradients are added up by the product's own kernel"""


class BucketMessage:
    def __init__(self, first: int, end: int, spans: list[ParameterSpan]) -> None:
        self.first, self.end, self.spans = first, end, spans
        self.late = any(span.held.late for span in spans)
        self.missing = 0
        self.sent: tuple[CollectiveHandle, Tensor | None] | None = None


class FlatBuffers:
    """One chunk's parameters of one kind (dense, or experts)."""

    def __init__(
        self, held: list[RankParameter], world: RankWorld,
        shard: RankGroup, replica: RankGroup, zero: int, message_bytes: float,
        precision: Precision, overlap_backward: bool = True,
    ) -> None:  # fmt: skip
        self.world, self.shard, self.replica, self.zero = world, shard, replica, zero
        narrow, wide = torch.bfloat16, torch.get_default_dtype()
        self.dtype = wide if precision.param_bytes == 4 else narrow
        self.grad_dtype = wide if precision.grad_bytes == 4 else narrow
        self.armed, self.overlap_backward = False, overlap_backward
        ordered = [h for h in reversed(held) if not h.late] + [h for h in held if h.late]
        self.held = ordered
        sizes = [h.parameter.numel() for h in ordered]
        ranks = shard.size if zero else 1
        total = self._filled(sum(sizes), ranks)
        self.spans = _spans(ordered)
        step = max(int(message_bytes / self.grad_dtype.itemsize) // ranks, 1) * ranks
        # no other rank holds these parameters: nothing is sent
        alone = shard.size * replica.size == 1
        self.messages = [
            BucketMessage(at, min(at + step, total), overlap(self.spans, at, min(at + step, total)))
            for at in range(0, 0 if alone else total, step)
        ]
        device = ordered[0].parameter.device
        self.parameters = torch.zeros(total, dtype=self.dtype, device=device)
        self.masters = self._masters(total) if precision.master_bytes else []
        self._move_in()
        kept = total if zero < 2 else self._kept_elements()
        self.gradients = torch.zeros(kept, dtype=self.grad_dtype, device=device)
        self.sums: dict[RankParameter, Tensor] = {}
        """gradients summed in another precision than they arrive in"""
        self.fresh: set[RankParameter] = set()
        """those of them that hold nothing of this step yet"""
        self._attach()
        self.by_parameter = {id(h.parameter): h for h in ordered}
        # the parameter keeps the hook where the collector of cycles cannot see it
        me = weakref.ref(self)

        def arrived(p: Tensor) -> None:
            if (flat := me()) is not None:
                flat._arrived(flat.by_parameter[id(p)])

        def take(held: RankParameter, left: Tensor, right: Tensor) -> None:
            if (flat := me()) is not None:
                flat._take(held, left, right)

        for h in ordered:
            h.parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]
            # a table that is looked up has gradients that are no products, tied or not
            if device.type in TAKEN_ON and not h.piece.name.endswith("token.weight"):
                setattr(h.parameter, TAKES_PRODUCTS, partial(take, h))

    @staticmethod
    def _filled(elements: int, ranks: int) -> int:
        """Every rank's share is as long as the others'."""
        return -(-elements // ranks) * ranks

    def _kept_elements(self) -> int:
        """Of a rank's share."""
        return len(self.parameters) // self.shard.size

    def shares(self, held: RankParameter) -> PieceRuns | None:
        """None where every rank has all of it."""
        return PieceRuns(self.shard, tuple(map(tuple, self._runs_of_ranks[held]))) if self.zero else None

    @cached_property
    def _runs_of_ranks(self) -> dict[RankParameter, list[list[tuple[int, int]]]]:
        """Of each parameter the runs of elements that each rank of the group has."""
        size = self.shard.size
        found: dict[RankParameter, list[list[tuple[int, int]]]] = {h: [[] for _ in range(size)] for h in self.held}
        for message in self.messages:
            spans = [span for span in self.spans if span.at < message.end and message.first < span.at + span.length]
            for index in range(size):
                for span in overlap(spans, *_own_edges(message, index, size)):
                    found[span.held][index].append((span.first, span.length))
        return found

    @property
    def in_place(self) -> bool:
        """NCCL reduces into the own part of the buffer itself; gloo needs another."""
        return self.zero == 1 and self.gradients.is_cuda

    @property
    def widens(self) -> bool:
        return self.grad_dtype != self.dtype

    def _masters(self, total: int) -> list[Tensor]:
        """The own shares in fp32, before the parameters are rounded."""
        whole = torch.zeros(total, device=self.spans[0].held.parameter.device)
        for span in self.spans:
            whole[span.at : span.at + span.length] = span.held.parameter.detach().flatten()
        return self._own_parts(whole) if self.zero else [whole]

    def _own_parts(self, whole: Tensor) -> list[Tensor]:
        return [self._own(whole, m).clone() for m in self.messages]

    def _move_in(self) -> None:
        for span in self.spans:
            p = span.held.parameter
            view = self.parameters[span.at : span.at + span.length].view_as(p)
            view.copy_(p.detach())
            p.data = view

    def _attach(self) -> None:
        if self.zero == 2:
            self.sums.clear()
            return
        if not (self.widens and self.sums):
            for span in self.spans:
                p = span.held.parameter
                view = self.gradients[span.at : span.at + span.length].view_as(p)
                if self.widens:
                    self.sums[span.held] = view
                else:
                    p.grad = view
        self.fresh = set(self.sums)

    def _grad(self, held: RankParameter) -> Tensor | None:
        return self.sums.get(held) if self.widens else held.parameter.grad

    def _widen(self, held: RankParameter) -> None:
        """Adds what has arrived to the sum."""
        grad = held.parameter.grad
        if grad is None:
            return
        if held not in self.sums:
            self.sums[held] = grad.to(self.grad_dtype)
        elif held in self.fresh:
            self.sums[held].copy_(grad)
            self.fresh.discard(held)
        else:
            self.sums[held] += grad
        held.parameter.grad = None

    def _take(self, held: RankParameter, left: Tensor, right: Tensor) -> None:
        """Adds a weight gradient as the product it is: one kernel writes the sum in its own precision. It has not
        arrived by then: autograd calls the parameter's hook after all GEMMs that add to it, whatever they return;
        deferred weight gradients leave at the end."""
        target, dtype = self._grad(held), self.grad_dtype
        if not self.widens:
            held.parameter.grad = left @ right if target is None else target.addmm_(left, right)
        elif target is None:
            self.sums[held] = torch.mm(left, right, out_dtype=dtype)
        elif held in self.fresh:
            torch.ops.aten.mm.dtype_out(left, right, dtype, out=target)
            self.fresh.discard(held)
        else:
            torch.ops.aten.addmm.dtype_out(target, left, right, dtype, out=target)

    def begin(self, *, sync: bool) -> None:
        """Before a backward pass; `sync`: its gradients complete the sum, so messages may leave."""
        self.armed = sync or self.zero == 2
        if self.armed:
            for message in self.messages:
                message.missing, message.sent = len(message.spans), None

    def _arrived(self, held: RankParameter) -> None:
        if self.widens:
            self._widen(held)
        if not self.armed:
            return
        for message in self.messages:
            message.missing -= sum(span.held is held for span in message.spans)
            if self.overlap_backward and message.missing == 0 and not message.late and message.sent is None:
                message.sent = self._send(message)

    def finish(self, *, last: bool) -> None:
        """After the backward pass: sums over other axes, then whatever has not left yet, then waits for all of it."""
        if self.widens:
            for h in self.held:
                self._widen(h)
        if not self.armed:
            return
        for h in self.fresh:
            self.sums[h].zero_()
        self.fresh.clear()
        self._sum_late()
        for message in self.messages:
            if message.sent is None:
                message.sent = self._send(message)
        for message in self.messages:
            assert message.sent is not None
            pending, own = message.sent
            pending.wait()
            if own is not None:
                self._keep(message, own)
            message.sent = None
        if self.zero == 2:
            self.sums.clear()
            for h in self.held:
                h.parameter.grad = None
            if last and self.held[0].piece.tied:
                # the other end reduces other micro-batches meanwhile: only the step's sums can be added up
                with self.world.comm.during("step"):
                    sum_over(self.world.comm, self.world.ends, [self.gradients])
        self.armed = False

    def _sum_late(self) -> None:
        comm, world = self.world.comm, self.world
        with comm.during("step"):
            sum_over(comm, world.tp, [self._grad(h) for h in self.held if h.piece.partial])
            sum_over(comm, world.kv, [self._grad(h) for h in self.held if h.piece.copied])
            if self.zero < 2:
                sum_over(comm, world.ends, [self._grad(h) for h in self.held if h.piece.tied])

    def _send(self, message: BucketMessage) -> tuple[CollectiveHandle, Tensor | None]:
        comm = self.world.comm
        if self.zero < 2:
            data = self.gradients[message.first : message.end]
        else:
            data = self.gradients.new_zeros(message.end - message.first)
            for span in message.spans:
                grad = self._grad(span.held)
                # with a split backward an earlier flush may have taken what this one would bring
                if grad is not None:
                    data[span.at : span.at + span.length] = grad.flatten()[span.first : span.first + span.length]
        if not self.zero:
            return comm.start_all_reduce(data, self.shard), None
        own = self._own(self.gradients, message) if self.in_place else data.new_empty(len(data) // self.shard.size)
        return comm.start_scatter(own, data, self.shard), own

    def _keep(self, message: BucketMessage, own: Tensor) -> None:
        if self.replica.size > 1:
            self.world.comm.all_reduce(own, self.replica)
        if self.zero == 1:
            if not self.in_place:
                self._own(self.gradients, message).copy_(own)
        else:
            first = message.first // self.shard.size
            self.gradients[first : first + len(own)] += own

    def _own(self, flat: Tensor, message: BucketMessage) -> Tensor:
        first, end = _own_edges(message, self.shard.index, self.shard.size)
        return flat[first:end]

    def locals(self) -> list[Local]:
        if not self.zero:
            tensor, rounded = (self.masters[0], self.parameters) if self.masters else (self.parameters, None)
            return [Local(tensor, tuple(self.spans), self.shard.size, self.gradients, rounded)]
        found = []
        for index, message in enumerate(self.messages):
            rounded = self._own(self.parameters, message)
            own = self.masters[index] if self.masters else rounded
            first = message.first + self.shard.index * len(own)
            grad = self._own(self.gradients, message)
            if self.zero == 2:
                at = message.first // self.shard.size
                grad = self.gradients[at : at + len(own)]
            spans = tuple(overlap(self.spans, first, first + len(own)))
            found.append(Local(own, spans, self.replica.size, grad, rounded if self.masters else None))
        return found

    def gather(self, *, rounded: bool = False) -> None:
        """After the optimizer: parameters are rounded, unless it did that, and every rank gets the others' shares."""
        if not rounded:
            for local in self.locals():
                if local.rounded is not None:
                    local.rounded.copy_(local.tensor)
        if not self.zero:
            return
        waits = [
            self.world.comm.start_gather(
                self.parameters[m.first : m.end], self._own(self.parameters, m).clone(), self.shard
            )
            for m in self.messages
        ]
        for pending in waits:
            pending.wait()

    def clear(self) -> None:
        if not (self.widens and self.zero < 2):
            self.gradients.zero_()
        self._attach()


def _own_edges(message: BucketMessage, index: int, ranks: int) -> tuple[int, int]:
    """Of a rank's share of a message."""
    length = (message.end - message.first) // ranks
    return message.first + index * length, message.first + (index + 1) * length


def _spans(ordered: list[RankParameter]) -> list[ParameterSpan]:
    spans, at = [], 0
    for h in ordered:
        spans.append(ParameterSpan(h, 0, at, h.parameter.numel()))
        at += h.parameter.numel()
    return spans


def sum_over(comm: RankComm, group: RankGroup, grads: list[Tensor | None]) -> None:
    """One message for all of them; in place."""
    tensors = [g for g in grads if g is not None]
    if group.size == 1 or not sum(t.numel() for t in tensors):
        return
    joined = comm.all_reduce(torch.cat([t.flatten() for t in tensors]), group)
    for tensor, part in zip(tensors, torch.split(joined, [t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
