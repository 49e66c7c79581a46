"""One rank of an elastic run: the same place in its replica as its peers have in theirs.

It computes its gradient, adds it up with its peers', and waits for the launcher's word before it updates anything:
until then a step can be tried again without whoever was lost.
"""

import socket
from contextlib import suppress
from time import perf_counter

import torch
from msgspec.structs import replace
from torch import Tensor

from shardwise.run.runtime.elastic.checksum import checksum
from shardwise.run.runtime.elastic.held_state import gradients, state_tensors
from shardwise.run.runtime.elastic.mean import SealedGradient, SpoiledGradient
from shardwise.run.runtime.elastic.mesh import PeerGone, PeerMesh
from shardwise.run.runtime.elastic.replicas import ReplicaSplit, part_of_batch
from shardwise.run.runtime.elastic.talk import Turn, Vote, hear, tell
from shardwise.run.runtime.train.feed import batch_of
from shardwise.run.runtime.train.lines import StepLine
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.quiet import quiet
from shardwise.run.runtime.train.rates import rate_at


class ReplicaMember:
    def __init__(self, split: ReplicaSplit, replica: int, launcher: socket.socket, every: int) -> None:
        """`every`: steps between two checksums of the state; 0: none."""
        self.split, self.replica, self.launcher, self.every = split, replica, launcher, every
        self.trainer = Trainer(split.order, torch.device("cpu"))
        self.engine = self.trainer.engine
        self.trainer.resume()
        state_tensors(self.engine)
        self.engine.optimizer.set_steps(0)
        self.mesh = PeerMesh({})
        self.sealed: SealedGradient | None = None
        self.mean: Tensor | None = None
        self.loss = self.begun = 0.0
        self.line: StepLine | None = None
        # a process's first step takes long: the others would wait for it
        self._compute(0)
        self._forget()

    def run(self) -> None:
        """Until the launcher says that it is over."""
        tell(self.launcher, Vote(epoch=0))
        with quiet():
            while True:
                turn, sockets = hear(self.launcher, Turn)
                if turn.committed:
                    self._update(turn)
                if turn.ends:
                    self._end(turn)
                    return
                if turn.meets:
                    self.mesh.close()
                    others = [other for other in turn.members if other != self.replica]
                    self.mesh = PeerMesh(dict(zip(others, sockets, strict=True)))
                tell(self.launcher, self._tried(turn))

    def _tried(self, turn: Turn) -> Vote:
        blamed, state = -1, None
        try:
            if self.replica in (turn.source, *turn.heals):
                self._heal(turn)
            if self.sealed is None:
                self._compute(turn.step)
            assert self.sealed is not None
            tell(self.launcher, Vote(epoch=turn.epoch, computed=True))
            spent = 0.0
            if self.every and turn.step % self.every == 0:
                begun = perf_counter()
                # odd factors: two tensors that change places are noticed
                sums = enumerate(state_tensors(self.engine))
                state = sum((2 * n + 1) * checksum(tensor) for n, tensor in sums) % 2**63
                spent = perf_counter() - begun
            self.mean = self.sealed.mean(self.mesh, turn.members, self.replica)
            spent += self.sealed.seconds
            return Vote(epoch=turn.epoch, loss=self.loss, state=state, line=self.line, checksum_s=spent)
        except SpoiledGradient as spoiled:
            blamed = spoiled.replica
        except PeerGone:
            pass
        # the others notice by it
        self.mesh.close()
        return Vote(epoch=turn.epoch, ok=False, blamed=blamed, line=self.line)

    def _compute(self, step: int) -> None:
        engine, self.begun = self.engine, perf_counter()
        part = engine.accumulate(batch_of(engine, self.trainer.source, part_of_batch(self.split, self.replica, step)))
        with engine.world.comm.during("step"):
            told = engine.world.comm.all_reduce(
                (part.double() / engine.world.tp.size).reshape(1), engine.world.everyone
            )
        self.loss = float(told)
        self.sealed, self.mean = SealedGradient(gradients(engine)), None

    def _heal(self, turn: Turn) -> None:
        """Everything from a peer's memory."""
        tensors = state_tensors(self.engine)
        if self.replica == turn.source:
            for tensor in tensors:
                self.mesh.swap(dict.fromkeys(turn.heals, _bytes(tensor)), {})
            return
        for tensor in tensors:
            self.mesh.swap({}, {turn.source: _bytes(tensor)})
        self.engine.optimizer.set_steps(turn.step)
        self.trainer.step, self.line = turn.step, None
        self._forget()

    def _update(self, turn: Turn) -> None:
        """With the gradient that all hold."""
        assert self.mean is not None
        at = 0
        for grad in gradients(self.engine):
            grad.view(-1).copy_(self.mean[at : at + grad.numel()])
            at += grad.numel()
        trainer, rate = self.trainer, rate_at(self.trainer.settings, self.trainer.step)
        norm = self.engine.update(rate)
        trainer.step += 1
        losses = [loss for _, loss in sorted(turn.losses.items())]
        count = len(losses)
        line = trainer.line(sum(losses) / count, norm, rate, perf_counter() - self.begun)
        self.line = replace(
            line, tokens_per_s=line.tokens_per_s * count, ranks=line.ranks * count, replicas=tuple(sorted(turn.losses))
        )
        self._forget()

    def _forget(self) -> None:
        """The gradient of a step."""
        self.sealed = self.mean = None
        for sync in self.engine.syncs:
            sync.clear()
        self.engine.world.comm.events.clear()
        self.engine.pipeline.done.clear()

    def _end(self, turn: Turn) -> None:
        exported, why = "", ""
        if turn.exports and self.trainer.settings.export:
            why = self.trainer.export()
            exported = "" if why else self.trainer.settings.export
        self.trainer.release()
        with suppress(OSError):
            tell(self.launcher, Vote(epoch=turn.epoch, line=self.line, exported=exported, why=why))
            # until it ends this process: not before its peers in the replica have answered too
            hear(self.launcher, Turn)


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
