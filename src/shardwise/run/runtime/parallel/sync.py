"""Data parallelism of one chunk, by the policy's ZeRO stage, for dense parameters and experts alike."""

from typing import Protocol

import torch

from shardwise.plugins.optimizers import UpdateRule
from shardwise.run.runtime.net.decoder import Chunk
from shardwise.run.runtime.parallel.comm import RankGroup
from shardwise.run.runtime.parallel.flat import FlatBuffers
from shardwise.run.runtime.parallel.held import Local, ParameterSpan, PieceRuns, RankParameter, frozen_in, held_by
from shardwise.run.runtime.parallel.owned import OwnedBuffers, Owners
from shardwise.run.runtime.parallel.sharded import FsdpChunk
from shardwise.run.runtime.parallel.world import RankWorld
from shardwise.spec.job import Precision
from shardwise.spec.software import Stack


class Sync(Protocol):
    @property
    def held(self) -> list[RankParameter]: ...

    def begin(self, last: bool, /) -> None:
        """Before a micro-batch's backward; `last`: it is the chunk's last of the step."""

    def finish(self, last: bool, /) -> None:
        """After it."""

    def locals(self) -> list[Local]:
        """What the optimizer updates; gradients are there after the last `finish`."""

    def frozen(self) -> list[Local]:
        """What nothing updates."""

    def shares(self, held: RankParameter, /) -> PieceRuns | None:
        """How ranks share a parameter; None where every rank has all of it."""

    def gather(self, *, rounded: bool = False) -> None:
        """After the optimizer; `rounded`: it wrote the 16-bit parameters as well."""

    def clear(self) -> None:
        """Gradients are zero again."""

    def parameter_bytes(self) -> int:
        """Held between steps."""

    def gradient_bytes(self) -> int:
        """Held between micro-batches."""

    def master_bytes(self) -> int:
        """Copies in fp32 that the optimizer updates."""


class Flats:
    """ZeRO 0, 1 or 2: one buffer for dense parameters, one for experts; with ZeRO 2 one for a table both ends hold."""

    def __init__(self, flats: list[FlatBuffers], frozen: list[RankParameter], dtype: torch.dtype) -> None:
        self.flats, self._frozen = flats, frozen
        self.held = [h for flat in flats for h in flat.held]
        for one in frozen:
            one.parameter.data = one.parameter.data.to(dtype)

    def begin(self, last: bool, /) -> None:
        for flat in self.flats:
            flat.begin(sync=last)

    def finish(self, last: bool, /) -> None:
        for flat in self.flats:
            flat.finish(last=last)

    def locals(self) -> list[Local]:
        return [local for flat in self.flats for local in flat.locals()]

    def frozen(self) -> list[Local]:
        wholes = ((held, held.parameter.detach().view(-1)) for held in self._frozen)
        return [Local(whole, (ParameterSpan(held, 0, 0, whole.numel()),), 1) for held, whole in wholes]

    def shares(self, held: RankParameter, /) -> PieceRuns | None:
        return next(flat.shares(held) for flat in self.flats if held in flat.held)

    def gather(self, *, rounded: bool = False) -> None:
        for flat in self.flats:
            flat.gather(rounded=rounded)

    def clear(self) -> None:
        for flat in self.flats:
            flat.clear()

    def parameter_bytes(self) -> int:
        held = sum(t.nbytes for t in (*(flat.parameters for flat in self.flats), *(f.tensor for f in self.frozen())))
        parts = {id(one.part): one.part for one in self._frozen}.values()
        return held + sum(matrix.scale_bytes for part in parts for matrix in part.packed.values())

    def gradient_bytes(self) -> int:
        return sum(flat.gradients.numel() * flat.gradients.element_size() for flat in self.flats)

    def master_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for flat in self.flats for tensor in flat.masters)


def sync_of(
    chunk: Chunk, world: RankWorld, precision: Precision, stack: Stack, rule: UpdateRule, owners: Owners
) -> Sync:
    """`owners`: of whole matrices, where they have some. What a rule updates as a whole has buffers of its own, so that
    its state is cut evenly too."""
    zero = world.policy.zero
    if zero == 3 and world.dp.size > 1:
        return FsdpChunk(chunk, world, precision)
    held = held_by(chunk)
    sharded = zero > 0 and world.shard.size > 1

    def kind(h: RankParameter) -> tuple[bool, bool, bool]:
        """(experts, tied apart, whole matrices)"""
        whole = sharded and rule.lies_apart(h.piece.kind)
        return h.piece.expert, sharded and zero == 2 and h.piece.tied, whole and not h.piece.expert

    every = [[h for h in held if kind(h) == each] for each in sorted({*map(kind, held)})]
    flats = [_flat(mine, world, precision, stack, owners) for mine in every]
    return Flats(flats, frozen_in(chunk), torch.float32 if precision.param_bytes == 4 else torch.bfloat16)


def _flat(
    held: list[RankParameter], world: RankWorld, precision: Precision, stack: Stack, owners: Owners
) -> FlatBuffers:
    policy, expert = world.policy, held[0].piece.expert
    everyone = world.edp if expert else world.dp
    shard, replica = (world.expert_shard, world.expert_replica) if expert else (world.shard, world.replica)
    zero = policy.zero
    if policy.sync:
        replica = RankGroup("dp", (world.rank,), 0)  # a strategy has this axis
    elif zero == 0 or shard.size == 1:
        zero, shard, replica = 0, everyone, RankGroup("dp", (world.rank,), 0)
    bytes_ = max(stack.network.bucket_bytes, stack.network.bucket_bytes_per_rank * shard.size)
    settings = world, shard, replica, zero, bytes_, precision, policy.overlap_grad
    owned = zero and (held[0].piece.name, 0) in owners
    return OwnedBuffers(held, owners, *settings) if owned else FlatBuffers(held, *settings)
