"""Three ways to train on sequences of different lengths: padded, packed, and each on as many ranks as it asks for."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as with_fields

from shardwise.arrays import Floats
from shardwise.spec.lengths import Tokens
from shardwise.spec.policy import Policy
from shardwise.step.estimate.lengths.prices import (
    GRID,
    UPPER_HALF,
    MicroBatchPrices,
    TokenPrices,
    micro_batch_prices,
    token_prices,
)
from shardwise.step.estimate.lengths.waits import Dealt, Piece, dealt_evenly, dealt_out
from shardwise.work.case import Case


@dataclass(frozen=True)
class Packed:
    dealt: Dealt
    filled: float
    """share of the buffers that is data"""
    buffers: float
    """in a step"""


@dataclass(frozen=True)
class Spread:
    """Dynamic context parallelism."""

    dealt: Dealt
    shares: dict[int, float]
    """of the sequences, by the ranks that share one"""


def padded(prices: MicroBatchPrices, drawn: Tokens, lockstep: bool) -> Dealt:
    """`drawn`: (steps, ranks, micro-batches, sequences of one). A micro-batch is as long as its longest sequence."""
    seconds = prices.of(drawn.max(axis=-1))
    return Dealt.over(dealt_out(step, lockstep) for step in seconds)


def packed(
    prices: TokenPrices, steps: Sequence[Tokens], policy: Policy, seq: int, lockstep: bool, order: "np.random.Generator"
) -> Packed:
    """Each step's sequences into as few buffers as they fill, which ranks get in no order; all of a buffer is
    computed."""
    found, data, buffers = [], 0, 0
    for lengths in steps:
        buffer, number = buffers_of(lengths, seq)
        room = seq - np.bincount(buffer, weights=lengths, minlength=number).astype(np.int64)
        seconds = np.bincount(buffer, weights=prices.of(lengths), minlength=number) + prices.empty(room)
        found.append(dealt_out(_by_rank(order.permutation(seconds), policy), lockstep))
        data, buffers = data + int(lengths.sum()), buffers + number
    return Packed(Dealt.over(found), data / (buffers * seq), buffers / len(steps))


def _by_rank(seconds: Floats, policy: Policy) -> Floats:
    """Buffers dealt out to the ranks in turn, then joined to micro-batches: (ranks, micro-batches)."""
    micro = -(-len(seconds) // (policy.dp * policy.micro_batch))
    whole = np.zeros((micro * policy.micro_batch, policy.dp))
    whole.ravel()[: len(seconds)] = seconds
    return np.asarray(whole.T.reshape(policy.dp, micro, policy.micro_batch).sum(axis=-1))


def buffers_of(lengths: Tokens, seq: int) -> tuple[Tokens, int]:
    """Which buffer of `seq` tokens each sequence goes into, and how many there are: the longest first, each into the
    buffer it leaves least room in."""
    found = np.zeros(len(lengths), dtype=np.int64)
    room: list[tuple[int, int]] = []
    number = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        at = bisect_left(room, (length, -1))
        left, buffer = room.pop(at) if at < len(room) else (seq, number)
        number += buffer == number
        found[index] = buffer
        if left > length:
            insort(room, (left - length, buffer))
    return found, number


def group_sizes(policy: Policy) -> tuple[int, ...]:
    """Ranks that may share a sequence: powers of two that divide the policy's own context parallelism, and that."""
    powers = [2**k for k in range(policy.cp.bit_length()) if policy.cp % 2**k == 0]
    return tuple(sorted({*powers, policy.cp}))


@dataclass(frozen=True)
class GroupPrices:
    """Of sequences that so many ranks share."""

    size: int
    most: int
    """tokens of the longest that fits"""
    prices: MicroBatchPrices | TokenPrices
    """on single ranks packed with others, on several alone"""


def group_prices(case: Case, policy: Policy, micro: int) -> list[GroupPrices]:
    """A rank has room for the tokens it has now; a group of several for as many times that."""
    found, ranks, room = list[GroupPrices](), policy.dp * policy.cp, policy.micro_batch * case.job.seq // policy.cp
    for size in group_sizes(policy):
        here = replace(case, job=with_fields(case.job, seq=room * size))
        shared = with_fields(policy, cp=size, dp=ranks // size, micro_batch=1)
        # shorter ones than half go to a smaller group, but for one that is no power of two
        alone = UPPER_HALF if found and found[-1].size * 2 == size else GRID
        prices = token_prices(here, shared, micro) if size == 1 else micro_batch_prices(here, shared, micro, alone)
        found.append(GroupPrices(size, room * size, prices))
        if room * size >= case.job.seq:
            break
    return found


def spread(groups: Sequence[GroupPrices], steps: Sequence[Tokens], ranks: int, lockstep: bool) -> Spread:
    """Short sequences are packed onto single ranks, longer ones shared by the fewest that have room; dealt out so that
    ranks are ready together."""
    found, counts = [], dict.fromkeys((group.size for group in groups), 0)
    for lengths in steps:
        pieces, least = list[Piece](), 0
        for group in groups:
            here = lengths[(lengths > least) & (lengths <= group.most)]
            counts[group.size] += len(here)
            pieces += [(group.size, float(seconds)) for seconds in _pieces(group, here)]
            least = group.most
        found.append(dealt_evenly(pieces, ranks, lockstep))
    total = sum(counts.values())
    return Spread(Dealt.over(found), {size: count / total for size, count in counts.items()})


def _pieces(group: GroupPrices, lengths: Tokens) -> Floats:
    """Seconds of each piece of work that the group's sequences make."""
    if isinstance(group.prices, MicroBatchPrices) or not len(lengths):
        return group.prices.of(lengths)
    buffer, number = buffers_of(lengths, group.most)
    return np.asarray(np.bincount(buffer, weights=group.prices.of(lengths), minlength=number), dtype=np.float64)
