"""What all parts of one rank's model share."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from shardwise.run.runtime.net.attention import FlashAttention
from shardwise.run.runtime.parallel.products import Cut
from shardwise.run.runtime.parallel.world import RankWorld
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.software import Stack


@dataclass
class ExpertVisits:
    """Copies that each expert gets from this rank, router by router, for who asks to have them kept."""

    kept: bool = False
    counts: list[Tensor] = field(default_factory=list)

    def taken(self) -> list[Tensor]:
        found, self.counts = self.counts, []
        return found


class DecodeCache:
    """Keys and values of the tokens before, layer by layer, while sequences are rolled out one token after another."""

    def __init__(self) -> None:
        self.kept: dict[object, tuple[Tensor, Tensor]] = {}
        self.positions = torch.arange(0)
        """of the tokens that pass now; the same for all sequences"""

    def clear(self) -> None:
        self.kept.clear()
        self.positions = torch.arange(0)

    def advance(self, count: int, device: torch.device) -> None:
        """The next `count` tokens of every sequence pass."""
        first = int(self.positions[-1]) + 1 if len(self.positions) else 0
        self.positions = torch.arange(first, first + count, device=device)

    def attended(self, layer: object, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Of the new tokens, over all so far."""
        if layer in self.kept:
            k, v = (torch.cat(pair) for pair in zip(self.kept[layer], (k, v), strict=True))
        self.kept[layer] = k, v
        y: Tensor = FlashAttention.apply(q, k, v, self.positions, torch.arange(len(k), device=k.device))
        return y

    def keep(self, rows: Tensor) -> None:
        """Of these sequences only."""
        self.kept = {layer: (k[:, rows], v[:, rows]) for layer, (k, v) in self.kept.items()}


@dataclass(frozen=True)
class Context:
    model: Model
    policy: Policy
    world: RankWorld
    cut: Cut
    seq: int
    stack: Stack
    """says how embedding and attention are cut"""
    seed: int = 0
    balance: float = 0.01
    """weight of the loss that keeps experts evenly used"""
    capacity: float = 0.0
    """copies an expert takes from one rank, over an even share; 0: all of them"""
    drawn_here: bool = False
    """every rank draws its weights on its own device: quick, but other layouts start from others"""
    ends_together: bool = False
    """the embedding and the head are in two chunks of one rank"""
    even_routing: bool = False
    """every expert gets as many copies, whatever the router says"""
    visits: ExpertVisits = field(default_factory=ExpertVisits)
    cache: DecodeCache | None = None
    """None: whole sequences pass at once"""

    @property
    def positions(self) -> Tensor:
        return self._whole if self.cache is None else self.cache.positions

    @cached_property
    def _whole(self) -> Tensor:
        return positions_of(self.world.cp.index, self.policy.cp, self.seq, self.world.device)


def positions_of(index: int, parts: int, seq: int, device: torch.device) -> Tensor:
    """Places in the sequence a context-parallel rank holds: one piece from the front and its mirror from the back, so
    that every rank computes as much of the causal triangle."""
    if parts == 1:
        return torch.arange(seq, device=device)
    piece = seq // (2 * parts)
    front, back = index * piece, (2 * parts - 1 - index) * piece
    return torch.cat([torch.arange(first, first + piece, device=device) for first in (front, back)])


def context_of(
    model: Model, policy: Policy, world: RankWorld, seq: int, *, seed: int = 0, capacity: float = 0.0, stack: Stack,
    even_routing: bool = False, ends_together: bool = False, drawn_here: bool = False,
) -> Context:  # fmt: skip
    cut = Cut(world.comm, world.tp, policy.sp and policy.tp > 1)
    return Context(
        model, policy, world, cut, seq, stack, seed, capacity=capacity, even_routing=even_routing,
        ends_together=ends_together, drawn_here=drawn_here,
    )  # fmt: skip
