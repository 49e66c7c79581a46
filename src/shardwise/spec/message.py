"""A message between ranks: one type for what a model's layers send, what a step sends, and what lies on a fabric.

Whoever prices, places or checks a message takes this type; placed on a cluster it is `fabric.calls.PlacedMessage`.
"""

from typing import Generic, Literal, TypeVar

from msgspec import Struct

Axis = Literal["tp", "cp", "dp", "ep", "etp", "pp"]
Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]
Phase = Literal["forward", "backward", "recompute", "step", "update"]
"""step: once, after the last backward; update: behind that, for the optimizer"""
Part = Literal["whole", "shard", "replicas"]
"""whole group, `shard` (consecutive ranks of it) or `replicas` (the same place in each shard)"""
Number = TypeVar("Number", covariant=True)


class Message(Struct, Generic[Number], frozen=True):
    """`count` messages of `bytes` over the ranks of an axis; both are numbers, or arrays of one for each policy."""

    name: str
    op: Operation
    axis: Axis
    bytes: Number
    """of one message on one rank"""
    count: Number
    """times in a step, of a layer's in a micro-batch; 0 where a policy does not send it"""
    phase: Phase
    group: str = ""
    """who takes part, by the names of `Placement.sizes` or a pair of stages; empty: the axis"""
    part: Part = "whole"
    ranks: Number | int = 0
    """that take part; 0: all of the group"""
    copies: float = 1.0
    """of each token in `bytes`, one for each of its experts: some programs send one to all experts of a place"""
    experts: float = 1.0
    """in all, over which tokens are spread"""
    repeated_by: int = 0
    """bits of the recomputed modules that send it again"""
    for_weights: bool = False
    """only the weight gradients of a product need what it brings"""
