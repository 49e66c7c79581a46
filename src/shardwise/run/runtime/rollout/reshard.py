"""Weights from the layout that trains to the layout that rolls out: which rank sends which block of which tensor.

All ranks know what each one has and needs, so all make the same plan; a rank sends another at most one message.
"""

from collections.abc import Iterable, Iterator
from math import prod
from operator import itemgetter

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from shardwise.run.runtime.net.decoder import Chunk
from shardwise.run.runtime.parallel.held import held_by
from shardwise.run.runtime.rollout.bridge import Bridge
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.parts import blocks_of

PHASE = "weight sync"


class WeightBlock(Struct, frozen=True):
    """A rectangle of a whole tensor."""

    name: str
    first: tuple[int, ...]
    sizes: tuple[int, ...]

    def common(self, other: "WeightBlock") -> "WeightBlock | None":
        starts = tuple(map(max, self.first, other.first))
        ends = tuple(min(a + b, c + d) for a, b, c, d in zip(
            self.first, self.sizes, other.first, other.sizes, strict=True
        ))  # fmt: skip
        sizes = tuple(end - start for start, end in zip(starts, ends, strict=True))
        return WeightBlock(self.name, starts, sizes) if all(size > 0 for size in sizes) else None

    def of(self, block: "WeightBlock", values: Tensor) -> Tensor:
        """This part of the values of a block around it."""
        for axis, (start, outer, size) in enumerate(zip(self.first, block.first, self.sizes, strict=True)):
            values = values.narrow(axis, start - outer, size)
        return values


class HeldBlocks(Struct, frozen=True, kw_only=True):
    """What one rank has of the trainer's weights, and what it needs as part of an engine."""

    has: tuple[WeightBlock, ...] = ()
    needs: tuple[WeightBlock, ...] = ()


class WeightMove(Struct, frozen=True, kw_only=True):
    source: int
    to: int
    part: WeightBlock
    have: WeightBlock
    """the source's block around it"""
    need: WeightBlock


def moves_of(ranks: list[HeldBlocks]) -> list[WeightMove]:
    """Every needed block once: from the rank itself where it has it, else from those that hold it in turn."""
    holders: dict[str, dict[WeightBlock, list[int]]] = {}
    for rank, held in enumerate(ranks):
        for block in held.has:
            holders.setdefault(block.name, {}).setdefault(block, []).append(rank)
    return [move for to, held in enumerate(ranks) for need in held.needs for move in _into(to, need, holders)]


def _into(to: int, need: WeightBlock, holders: dict[str, dict[WeightBlock, list[int]]]) -> Iterator[WeightMove]:
    found = 0
    for block, owners in holders.get(need.name, {}).items():
        part = need.common(block)
        if part is not None:
            source = to if to in owners else owners[to % len(owners)]
            found += prod(part.sizes)
            yield WeightMove(source=source, to=to, part=part, have=block, need=need)
    if found != prod(need.sizes):
        raise ValueError(
            f"weights: {found:,} of {prod(need.sizes):,} elements of {need.name} are sent to rank {to}; trainer and "
            "engine do not have the same model"
        )


class WeightMover:
    """Of one rank, with its own blocks. Made by all ranks together."""

    def __init__(self, bridge: Bridge, trainer: TrainingEngine | None, engine: Chunk | None) -> None:
        self.bridge, self.trainer = bridge, trainer
        self.targets = dict(_whole(engine)) if engine is not None else {}
        mine = HeldBlocks(
            has=tuple(block for block, _ in trained(trainer)) if trainer is not None else (), needs=tuple(self.targets)
        )
        told = bridge.told_to_all("weights", msgspec.json.encode(mine))
        moves = moves_of([msgspec.json.decode(each, type=HeldBlocks) for each in told])
        self.sent = _by_peer(moves, bridge.rank, "source", "to")
        self.received = _by_peer(moves, bridge.rank, "to", "source")
        self.dtype = next((target.dtype for target in self.targets.values()), _dtype(trainer))

    @torch.no_grad()
    def move(self) -> None:
        """The trainer's weights of now into the engines."""
        have = dict(trained(self.trainer)) if self.trainer is not None else {}
        mine = self.bridge.rank
        sent, landing = [], []
        for peer, moves in self.sent.items():
            if peer != mine:
                sent.append((peer, torch.cat([
                    move.part.of(move.have, have[move.have]).to(self.dtype).flatten() for move in moves
                ])))  # fmt: skip
        for peer, moves in self.received.items():
            if peer != mine:
                count = sum(prod(move.part.sizes) for move in moves)
                landing.append((peer, torch.empty(count, dtype=self.dtype), moves))
        self.bridge.exchange(PHASE, sent, [(peer, buffer) for peer, buffer, _ in landing])
        for move in self.received.get(mine, ()):
            self._put(move, move.part.of(move.have, have[move.have]))
        for _, buffer, moves in landing:
            for move, values in zip(moves, torch.split(buffer, [prod(m.part.sizes) for m in moves]), strict=True):
                self._put(move, values.view(move.part.sizes))

    def _put(self, move: WeightMove, values: Tensor) -> None:
        move.part.of(move.need, self.targets[move.need]).copy_(values)


def _by_peer(moves: list[WeightMove], rank: int, mine: str, other: str) -> dict[int, list[WeightMove]]:
    found: dict[int, list[WeightMove]] = {}
    for move in moves:
        if getattr(move, mine) == rank:
            found.setdefault(getattr(move, other), []).append(move)
    return dict(sorted(found.items(), key=itemgetter(0)))


def trained(engine: TrainingEngine) -> list[tuple[WeightBlock, Tensor]]:
    """Blocks of the trainer's weights on this rank; with ZeRO 3 its shards."""
    if engine.task.policy.zero == 3 and engine.world.dp.size > 1:
        return [
            (WeightBlock(span.held.piece.name, tuple(block.offsets), tuple(block.sizes)), block.values)
            for local in engine.locals() for span in local.spans for block in blocks_of(span, local.tensor.view(-1))
        ]  # fmt: skip
    return [each for chunk in engine.chunks for each in _whole(chunk)]


def _whole(chunk: Chunk) -> Iterable[tuple[WeightBlock, Tensor]]:
    for held in held_by(chunk):
        piece = held.piece
        yield WeightBlock(piece.name, piece.offsets, piece.local_shape), held.parameter.detach()


def _dtype(trainer: TrainingEngine | None) -> torch.dtype:
    narrow = trainer is not None and trainer.task.job.precision.compute != "fp32"
    return torch.bfloat16 if narrow else torch.float32
