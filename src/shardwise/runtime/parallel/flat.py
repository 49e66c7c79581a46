"""Data parallelism with ZeRO 0, 1 and 2: parameters and gradients as flat buffers, reduced in messages of equal size.

A message leaves as soon as the backward pass has produced all of its gradients, so it runs under the rest of it.
ZeRO 0 reduces whole gradients, 1 keeps only the own share of the sum, 2 never holds more than that between
micro-batches and so reduces in each of them. Gradients that must first be summed over tensor-parallel ranks or over the
two ends of the pipeline lie at the end of the buffer.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from shardwise.runtime.parallel.comm import Comm, Group, Pending
from shardwise.runtime.parallel.held import Held, Local, Span, overlap
from shardwise.runtime.parallel.world import World


class Message:
    def __init__(self, first: int, end: int, spans: list[Span]) -> None:
        self.first, self.end, self.spans = first, end, spans
        self.late = any(span.held.late for span in spans)
        self.missing = 0
        self.sent: tuple[Pending, Tensor | None] | None = None


class Flat:
    """One chunk's parameters of one kind (dense, or experts)."""

    def __init__(
        self, held: list[Held], world: World, shard: Group, replica: Group, zero: int, message_bytes: float,
        overlap_backward: bool = True,
    ) -> None:  # fmt: skip
        self.world, self.shard, self.replica, self.zero = world, shard, replica, zero
        self.armed, self.overlap_backward = False, overlap_backward
        ordered = [h for h in reversed(held) if not h.late] + [h for h in held if h.late]
        self.held = ordered
        sizes = [h.parameter.numel() for h in ordered]
        ranks = shard.size if zero else 1
        total = -(-sum(sizes) // ranks) * ranks
        like = ordered[0].parameter
        self.parameters = like.new_zeros(total)
        self.spans = self._moved_in(ordered)
        step = max(int(message_bytes / like.element_size()) // ranks, 1) * ranks
        # no other rank holds these parameters: nothing is sent
        alone = shard.size * replica.size == 1
        self.messages = [
            Message(at, min(at + step, total), overlap(self.spans, at, min(at + step, total)))
            for at in range(0, 0 if alone else total, step)
        ]
        self.gradients = like.new_zeros(total if zero < 2 else total // ranks)
        self._attach()
        self.by_parameter = {id(h.parameter): h for h in ordered}
        for h in ordered:
            h.parameter.register_post_accumulate_grad_hook(lambda p: self._arrived([self.by_parameter[id(p)]]))  # type: ignore[no-untyped-call]

    def _moved_in(self, ordered: list[Held]) -> list[Span]:
        spans, at = [], 0
        for h in ordered:
            p = h.parameter
            view = self.parameters[at : at + p.numel()].view_as(p)
            view.copy_(p.detach())
            p.data = view
            spans.append(Span(h, 0, at, p.numel()))
            at += p.numel()
        return spans

    def _attach(self) -> None:
        if self.zero < 2:
            for span in self.spans:
                p = span.held.parameter
                p.grad = self.gradients[span.at : span.at + span.length].view_as(p)

    def begin(self, *, sync: bool) -> None:
        """Before a backward pass; `sync`: its gradients complete the sum, so messages may leave."""
        self.armed = sync or self.zero == 2
        if self.armed:
            for message in self.messages:
                message.missing, message.sent = len(message.spans), None

    def _arrived(self, held: Iterable[Held]) -> None:
        if not self.armed:
            return
        for h in held:
            for message in self.messages:
                message.missing -= sum(span.held is h for span in message.spans)
                if self.overlap_backward and message.missing == 0 and not message.late and message.sent is None:
                    message.sent = self._send(message)

    def finish(self, *, last: bool) -> None:
        """After the backward pass: sums over other axes, then whatever has not left yet, then waits for all of it."""
        if not self.armed:
            return
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
            sum_over(comm, world.tp, [h.parameter.grad for h in self.held if h.piece.partial])
            sum_over(comm, world.kv, [h.parameter.grad for h in self.held if h.piece.copied])
            if self.zero < 2:
                sum_over(comm, world.ends, [h.parameter.grad for h in self.held if h.piece.tied])

    def _send(self, message: Message) -> tuple[Pending, Tensor | None]:
        comm = self.world.comm
        if self.zero < 2:
            data = self.gradients[message.first : message.end]
        else:
            data = self.gradients.new_zeros(message.end - message.first)
            for span in message.spans:
                grad = span.held.parameter.grad
                # with a split backward an earlier flush may have taken what this one would bring
                if grad is not None:
                    data[span.at : span.at + span.length] = grad.flatten()[span.first : span.first + span.length]
        if not self.zero:
            return comm.start_all_reduce(data, self.shard), None
        own = data.new_empty(len(data) // self.shard.size)
        return comm.start_scatter(own, data, self.shard), own

    def _keep(self, message: Message, own: Tensor) -> None:
        if self.replica.size > 1:
            self.world.comm.all_reduce(own, self.replica)
        if self.zero == 1:
            self._own(self.gradients, message).copy_(own)
        else:
            first = message.first // self.shard.size
            self.gradients[first : first + len(own)] += own

    def _own(self, flat: Tensor, message: Message) -> Tensor:
        length = (message.end - message.first) // self.shard.size
        first = message.first + self.shard.index * length
        return flat[first : first + length]

    def locals(self) -> list[Local]:
        if not self.zero:
            return [Local(self.parameters, tuple(self.spans), self.shard.size, self.gradients)]
        found = []
        for message in self.messages:
            own = self._own(self.parameters, message)
            first = message.first + self.shard.index * len(own)
            grad = self._own(self.gradients, message)
            if self.zero == 2:
                at = message.first // self.shard.size
                grad = self.gradients[at : at + len(own)]
            spans = tuple(overlap(self.spans, first, first + len(own)))
            found.append(Local(own, spans, self.replica.size, grad))
        return found

    def gather(self) -> None:
        """After the optimizer: every rank gets the others' updated shares."""
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
        self.gradients.zero_()
        self._attach()


def sum_over(comm: Comm, group: Group, grads: list[Tensor | None]) -> None:
    """One message for all of them; in place."""
    tensors = [g for g in grads if g is not None]
    if group.size == 1 or not sum(t.numel() for t in tensors):
        return
    joined = comm.all_reduce(torch.cat([t.flatten() for t in tensors]), group)
    for tensor, part in zip(tensors, torch.split(joined, [t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
