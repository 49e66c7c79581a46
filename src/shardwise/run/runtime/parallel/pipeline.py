"""Runs a schedule file's order: what each rank computes next, with transfers to and from the ranks beside it.

A message is sent when it is there and taken when it is needed. Messages from one rank to another in one direction have
a process group of their own and arrive in the order the sender's schedule makes them, so nothing waits in a circle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from shardwise.plugins.schedules import schedules
from shardwise.plugins.schedules._contract import Action
from shardwise.run.runtime.net.decoder import Chunk
from shardwise.run.runtime.parallel.comm import CollectiveHandle, RankComm, RankGroup
from shardwise.run.runtime.parallel.flat import sum_over
from shardwise.run.runtime.parallel.products import Later, Owed
from shardwise.run.runtime.parallel.sync import Sync
from shardwise.run.runtime.parallel.vocabulary import Targets
from shardwise.run.runtime.parallel.world import RankWorld, group_of

Key = tuple[int, int]
"""stage that needs it, micro-batch"""
Batch = Callable[[int], tuple[Tensor, Targets]]
"""micro-batch -> tokens and targets, [sequence, batch] each"""


@dataclass(frozen=True)
class Done:
    """One piece of compute, as it happened."""

    kind: str
    micro_batch: int
    chunk: int
    start_s: float
    end_s: float


class Channel:
    """Messages of one direction (forward activations or backward gradients) from one rank to another."""

    def __init__(self, comm: RankComm, group: RankGroup, order: list[Key], peer: int) -> None:
        self.comm, self.group, self.order, self.peer = comm, group, order, peer
        self.next = 0
        self.early: dict[Key, Tensor] = {}
        self.pending: list[CollectiveHandle] = []

    def send(self, x: Tensor) -> None:
        self.pending.append(self.comm.start_send(x.contiguous(), self.peer, self.group))
        while self.pending and self.pending[0].done:
            self.pending.pop(0).wait()

    def take(self, key: Key, like: Tensor) -> Tensor:
        while key not in self.early:
            self.early[self.order[self.next]] = self.comm.received(like, self.peer, self.group)
            self.next += 1
        return self.early.pop(key)

    def end_step(self) -> None:
        for pending in self.pending:
            pending.wait()
        self.pending, self.next = [], 0


class StagePipeline:
    """All chunks of one rank, and the order in which they run."""

    def __init__(
        self, chunks: list[Chunk], syncs: list[Sync], world: RankWorld, later: Later, micro_batches: int, like: Tensor
    ) -> None:
        policy = world.policy
        self.chunks, self.syncs, self.world, self.later, self.like = chunks, syncs, world, later, like
        schedule = schedules()[policy.schedule]
        self.orders = schedule.order(policy.pp, policy.vpp, micro_batches)
        self.mine = self.orders[world.stage]
        self.stage_of = {
            (rank, chunk): schedule.stage(rank, chunk, policy.pp, policy.vpp)
            for rank in range(policy.pp)
            for chunk in range(len(chunks))
        }
        self.both_ends = schedule.both_ends
        self.rank_of = {(stage, self.line(chunk)): rank for (rank, chunk), stage in self.stage_of.items()}
        self.last = max(self.stage_of.values())
        self.done: list[Done] = []
        self.kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        """input and output of each chunk and micro-batch that waits for its backward"""
        self.owed: dict[tuple[int, int], list[Owed]] = {}
        self.kept_here: dict[tuple[str, int, int], Tensor] = {}
        """what one chunk of this rank has for another: direction, stage, micro-batch"""
        self.channels = self._channels()

    def line(self, chunk: int) -> int:
        """Chunks that hand their results to each other; from both ends there are two such lines."""
        return chunk if self.both_ends else 0

    def _channels(self) -> dict[tuple[str, int, int], Channel]:
        """By direction, sender and receiver (pipeline ranks)."""
        routes: dict[tuple[str, int, int], list[Key]] = {}
        for rank, order in enumerate(self.orders):
            for action in order:
                stage = self.stage_of[rank, action.chunk]
                target = self._target(action, stage)
                if target is None:
                    continue
                receiver = self.rank_of[target, self.line(action.chunk)]
                if receiver != rank:
                    way = "forward" if action.kind == "F" else "backward"
                    routes.setdefault((way, rank, receiver), []).append((target, action.micro_batch))
        here, stride = self.world.stage, self.world.size // self.world.policy.pp
        found = {}
        for (way, sender, receiver), keys in sorted(routes.items()):
            pairs = [(base + sender * stride, base + receiver * stride) for base in range(stride)]
            group = group_of("pp", [(min(pair), max(pair)) for pair in pairs], self.world.rank, self.world.wait)
            if here in (sender, receiver):
                pair = pairs[self.world.rank - here * stride]
                found[way, sender, receiver] = Channel(self.world.comm, group, keys, pair[here == sender])
        return found

    def _target(self, action: Action, stage: int) -> int | None:
        """The stage that needs what this piece makes."""
        if action.kind == "F":
            return stage + 1 if stage < self.last else None
        return stage - 1 if action.kind in "BI" and stage > 0 else None

    def run(self, batch: Batch) -> Tensor:
        """One step's forwards and backwards; the sum of the losses seen here."""
        loss = torch.zeros((), device=self.like.device)
        comm = self.world.comm
        final = {action.chunk: i for i, action in enumerate(self.mine) if action.kind in "BW"}
        for position, action in enumerate(self.mine):
            start = perf_counter()
            if action.kind == "F":
                with comm.during("forward"):
                    y = self._forward(action, batch)
                if self.stage_of[self.world.stage, action.chunk] == self.last:
                    loss += y.detach()
            else:
                with comm.during("backward"):
                    self._back(action, last=final[action.chunk] == position)
            self.done.append(Done(action.kind, action.micro_batch, action.chunk, start, perf_counter()))
        for channel in self.channels.values():
            channel.end_step()
        # sums over both ends of the pipeline wait for the other end, so no rank may come here with work left to give
        with comm.during("backward"):
            for sync in self.syncs:
                sync.finish(True)
        with comm.during("step"):
            # both ranks of a mirror take the stages they share in the same order
            for chunk in sorted(range(len(self.syncs)), key=lambda c: self.stage_of[self.world.stage, c]):
                sum_over(comm, self.world.mirror, [local.grad for local in self.syncs[chunk].locals()])
        return loss

    def _back(self, action: Action, *, last: bool) -> None:
        """A whole backward, its input half, or the weight gradients that half has put off."""
        key, sync = (action.chunk, action.micro_batch), self.syncs[action.chunk]
        if action.kind == "I":
            self.later.owed = []
            self._backward(action, *self.kept.pop(key))
            self.owed[key], self.later.owed = self.later.owed, None
            return
        sync.begin(last)
        if action.kind == "B":
            self._backward(action, *self.kept.pop(key))
        else:
            with torch.no_grad():
                for pay, _ in self.owed.pop(key):
                    pay()
        if not last:
            sync.finish(False)

    def _forward(self, action: Action, batch: Batch) -> Tensor:
        stage = self.stage_of[self.world.stage, action.chunk]
        tokens, targets = batch(action.micro_batch)
        x = tokens if stage == 0 else self._taken("forward", stage - 1, stage, action).requires_grad_()
        y: Tensor = self.chunks[action.chunk](x, targets)
        if stage < self.last:
            self._give("forward", stage + 1, action, y.detach())
        self.kept[action.chunk, action.micro_batch] = x, y
        return y

    def _backward(self, action: Action, x: Tensor, y: Tensor) -> None:
        stage = self.stage_of[self.world.stage, action.chunk]
        grad = None if stage == self.last else self._taken("backward", stage + 1, stage, action)
        torch.autograd.backward(y, grad)
        if stage > 0:
            assert x.grad is not None
            self._give("backward", stage - 1, action, x.grad)

    def _give(self, way: str, target: int, action: Action, x: Tensor) -> None:
        receiver = self.rank_of[target, self.line(action.chunk)]
        if receiver == self.world.stage:
            self.kept_here[way, target, action.micro_batch] = x
        else:
            self.channels[way, self.world.stage, receiver].send(x)

    def _taken(self, way: str, source: int, stage: int, action: Action) -> Tensor:
        sender = self.rank_of[source, self.line(action.chunk)]
        if sender == self.world.stage:
            return self.kept_here.pop((way, stage, action.micro_batch))
        return self.channels[way, sender, self.world.stage].take((stage, action.micro_batch), self.like)
