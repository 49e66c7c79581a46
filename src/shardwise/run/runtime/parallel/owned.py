"""ZeRO 1 and 2 for optimizers of whole matrices: every matrix has one owner, who gets its summed gradient and sends the
new values to the others. Messages are as long as those of equal shares, but ranks' parts of them are not."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shardwise.run.runtime.parallel.comm import CollectiveHandle
from shardwise.run.runtime.parallel.flat import BucketMessage, FlatBuffers
from shardwise.run.runtime.parallel.held import Local, PieceRuns, RankParameter, overlap, runs_of

Owners = Mapping[tuple[str, int], int]
"""(name of a tensor, expert or 0) -> place of its owner among the ranks that share it"""


class OwnedBuffers(FlatBuffers):
    """One chunk's matrices; `owners` by tensor and expert."""

    def __init__(self, held: list[RankParameter], owners: Owners, *settings: Any) -> None:
        self.owners = owners
        self._known: dict[tuple[int, int], list[list[tuple[int, int]]]] = {}
        super().__init__(held, *settings)

    @staticmethod
    def _filled(elements: int, ranks: int) -> int:  # noqa: ARG004
        return elements

    @property
    def in_place(self) -> bool:
        return False

    def _runs(self, message: BucketMessage | None = None) -> list[list[tuple[int, int]]]:
        """Of the buffer, or of one message: what each rank owns."""
        low, high = (message.first, message.end) if message else (0, len(self.parameters))
        if (low, high) in self._known:
            return self._known[low, high]
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.shard.size)]
        for span in self.spans:
            shape = span.held.piece.local_shape
            number = shape[0] if span.held.piece.expert else 1
            size = span.length // number
            for each in range(number):
                first, end = max(span.at + each * size, low), min(span.at + (each + 1) * size, high)
                if first < end:
                    found[self.owners[span.held.piece.name, each]].append((first, end))
        self._known[low, high] = found
        return found

    def _joined(self, flat: Tensor, runs: Sequence[tuple[int, int]]) -> Tensor:
        return torch.cat([flat[first:end] for first, end in runs]) if runs else flat[:0].clone()

    def _own_parts(self, whole: Tensor) -> list[Tensor]:
        return [self._joined(whole, self._runs()[self.shard.index])]

    def _kept_elements(self) -> int:
        return sum(end - first for first, end in self._runs()[self.shard.index])

    def shares(self, held: RankParameter) -> PieceRuns | None:
        runs = (
            tuple(run for first, end in mine for run in runs_of(overlap(self.spans, first, end), held))
            for mine in self._runs()
        )
        return PieceRuns(self.shard, tuple(runs))

    def _send(self, message: BucketMessage) -> tuple[CollectiveHandle, Tensor | None]:
        comm, runs = self.world.comm, self._runs(message)
        flat = self.gradients
        if self.zero == 2:
            flat = self.gradients.new_zeros(message.end - message.first)
            for span in message.spans:
                grad = self._grad(span.held)
                if grad is not None:
                    flat[span.at : span.at + span.length] = grad.flatten()[span.first : span.first + span.length]
            runs = [[(a - message.first, b - message.first) for a, b in mine] for mine in runs]
        data = torch.cat([self._joined(flat, mine) for mine in runs])
        lengths = [sum(end - first for first, end in mine) for mine in runs]
        return comm.start_uneven_scatter(data, self.shard, lengths)

    def _keep(self, message: BucketMessage, own: Tensor) -> None:
        own = own.view(self.shard.size, -1).sum(0)
        if self.replica.size > 1:
            self.world.comm.all_reduce(own, self.replica)
        at, before = 0, self._before(message)
        for first, end in self._runs(message)[self.shard.index]:
            part = own[at : at + end - first]
            if self.zero == 1:
                self.gradients[first:end] = part
            else:
                self.gradients[before + at : before + at + end - first] += part
            at += end - first

    def _before(self, message: BucketMessage) -> int:
        """Own elements of earlier messages."""
        return sum(min(end, message.first) - first for first, end in self._runs()[self.shard.index]
                   if first < message.first)  # fmt: skip

    def locals(self) -> list[Local]:
        found, at = [], 0
        for first, end in self._runs()[self.shard.index]:
            here, at = slice(at, at + end - first), at + end - first
            rounded = self.parameters[first:end]
            grad = self.gradients[here] if self.zero == 2 else self.gradients[first:end]
            tensor = self.masters[0][here] if self.masters else rounded
            spans = tuple(overlap(self.spans, first, end))
            found.append(Local(tensor, spans, self.replica.size, grad, rounded if self.masters else None))
        return found

    def gather(self, *, rounded: bool = False) -> None:
        if not rounded:
            for local in self.locals():
                if local.rounded is not None:
                    local.rounded.copy_(local.tensor)
        for message in self.messages:
            runs = self._runs(message)
            own = self._joined(self.parameters, runs[self.shard.index])
            lengths = [sum(end - first for first, end in mine) for mine in runs]
            every, at = self.world.comm.gathered(own, self.shard, lengths), 0
            for first, end in (run for mine in runs for run in mine):
                self.parameters[first:end] = every[at : at + end - first]
                at += end - first
