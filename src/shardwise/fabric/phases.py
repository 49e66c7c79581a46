"""Collectives as messages between GPUs: who sends how much to whom at the same time.

Steps of an algorithm that repeat one pattern (the n - 1 steps of a ring) and steps that a library pipelines chunk by
chunk (up and down a tree, inside and across nodes) run side by side, so they are one phase with all their bytes. Bytes
are fractions of the operation's buffer, as in `collectives`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shardwise.collectives._trees import double_tree
from shardwise.fabric.links import Floats, Ints, Routed
from shardwise.fabric.solver import Flows, joined

PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
MOST_MESSAGES = 4_000_000


@dataclass(frozen=True)
class Messages:
    """Sent side by side: GPU to GPU, and between GPUs and the switch of their node, which adds or copies."""

    source: Ints
    target: Ints
    bytes: Floats
    switched: Ints
    """GPUs that exchange with their node's switch"""
    switched_bytes: Floats
    """each of them, into the switch and out of it"""

    def flows(self, fabric: Routed) -> Flows:
        routes = fabric.routes(self.source, self.target)
        parts = [Flows(routes.links, self.bytes[routes.message] * routes.share, routes.weight)]
        if len(self.switched):
            for links in fabric.reducing(self.switched):
                there = links >= 0
                parts.append(Flows(links[there, None], self.switched_bytes[there]))
        return joined(parts, len(fabric.links)).folded()


def messages_of(algorithm: str, op: str, members: Ints, fabric: Routed, cards: int) -> Messages:
    """`members`: groups x ranks, as GPUs in ring order. `cards`: how many of a node's cards one group spreads over."""
    if algorithm not in PATTERNS:
        raise ValueError(f"algorithm: {algorithm} has no pattern of messages; write one of {', '.join(PATTERNS)}")
    size = members.shape[1]
    if algorithm == "pairwise" and members.size * size > MOST_MESSAGES:
        raise ValueError(
            f"all-to-all over {size:,} ranks is more than {MOST_MESSAGES:,} messages; write a smaller group"
        )
    blocks = _by_node(members, fabric.node)
    return PATTERNS[algorithm](op, blocks, cards)


def _by_node(members: Ints, node: Ints) -> Ints:
    """groups x nodes x ranks of a node, where every group has runs of equal length inside its nodes; else every rank
    counts as a node of its own, which is what an order that ignores nodes makes of it."""
    groups, size = members.shape
    change = np.diff(node[members], axis=1) != 0
    cuts = np.flatnonzero(change.any(axis=0))
    run = int(cuts[0]) + 1 if len(cuts) else size
    regular = size % run == 0 and np.array_equal(cuts, np.arange(run - 1, size - 1, run)) and change[:, cuts].all()
    return members.reshape(groups, size // run, run) if regular else members[:, :, None]


def _plain(source: Ints, target: Ints, bytes_: Floats | float) -> Messages:
    nobody = np.zeros(0, dtype=np.int64)
    flat = np.broadcast_to(np.asarray(bytes_, dtype=np.float64), source.shape)
    return Messages(source.ravel(), target.ravel(), flat.ravel(), nobody, np.zeros(0))


def _together(parts: list[Messages]) -> Messages:
    return Messages(*(np.concatenate([getattr(p, f) for p in parts]) for f in Messages.__dataclass_fields__))


def _channels(run: int, cards: int) -> list[int]:
    """First local rank of each channel: one per card that the group may use."""
    many = min(run, max(cards, 1))
    return [number * run // many for number in range(many)]


def ring(op: str, blocks: Ints, cards: int) -> Messages:
    """Each channel enters every node on the rail it left the last one: nodes are walked up and down by turns."""
    _, nodes, run = blocks.shape
    starts = _channels(run, cards) if nodes > 1 else [0]
    parts = []
    for first in starts:
        up = (first + np.arange(run)) % run
        orders = np.where((np.arange(nodes) % 2 == 0)[:, None], up, up[::-1])
        path = np.take_along_axis(blocks, np.broadcast_to(orders, blocks.shape), axis=2).reshape(len(blocks), -1)
        size = path.shape[1]
        if op == "broadcast":
            parts.append(_plain(path[:, :-1], path[:, 1:], 1.0 / len(starts)))
        else:
            parts.append(_plain(path, np.roll(path, -1, axis=1), PASSES[op] * (size - 1) / size / len(starts)))
    return _together(parts)


def tree(op: str, blocks: Ints, cards: int) -> Messages:  # noqa: ARG001
    """Up and down two trees over the nodes, a chain inside each node that ends at the channel's card."""
    run = blocks.shape[2]
    starts = _channels(run, cards)
    parts = [*_trees(blocks, starts)]
    for first in starts if run > 1 else ():
        chain = blocks[:, :, (first + np.arange(run)) % run]
        for source, target in ((chain[..., 1:], chain[..., :-1]), (chain[..., :-1], chain[..., 1:])):
            parts.append(_plain(source, target, 1.0 / len(starts)))
    return _together(parts)


def _trees(blocks: Ints, starts: list[int]) -> list[Messages]:
    parts = []
    for edges in double_tree(blocks.shape[1]):
        child, parent = (np.array(ends, dtype=np.int64) for ends in (list(edges), list(edges.values())))
        for first in starts:
            low, high = blocks[:, child, first], blocks[:, parent, first]
            parts += [_plain(low, high, 0.5 / len(starts)), _plain(high, low, 0.5 / len(starts))]
    return parts


def nvls(op: str, blocks: Ints, cards: int) -> Messages:  # noqa: ARG001
    """Inside a node every rank gives its buffer to the switch and multicasts its own part of the sum."""
    gpus = blocks.ravel()
    nobody = np.zeros(0, dtype=np.int64)
    return Messages(nobody, nobody, np.zeros(0), gpus, np.full(len(gpus), 1.0 + 1.0 / blocks.shape[2]))


def nvls_tree(op: str, blocks: Ints, cards: int) -> Messages:
    parts = _trees(blocks, _channels(blocks.shape[2], cards))
    return _together([*parts, nvls(op, blocks, cards)] if blocks.shape[2] > 1 else parts)


def two_level(op: str, blocks: Ints, cards: int) -> Messages:  # noqa: ARG001
    """Rings inside the nodes, and for each local rank one over the nodes with its part."""
    _, nodes, run = blocks.shape
    parts = []
    if run > 1:
        parts.append(_plain(blocks, np.roll(blocks, -1, axis=2), PASSES[op] * (run - 1) / run))
    if nodes > 1:
        parts.append(_plain(blocks, np.roll(blocks, -1, axis=1), PASSES[op] * (nodes - 1) / nodes / run))
    return _together(parts) if parts else _plain(blocks, blocks, 0.0)


def pairwise(op: str, blocks: Ints, cards: int) -> Messages:  # noqa: ARG001
    flat = blocks.reshape(len(blocks), -1)
    size = flat.shape[1]
    other = (np.arange(size)[:, None] + np.arange(1, size)[None, :]) % size
    return _plain(np.repeat(flat, size - 1, axis=1), flat[:, other].reshape(len(flat), -1), 1.0 / size)


def neighbours(members: Ints, along: float, closing: float, *, back: bool) -> Messages:
    """Pipeline stages: `along` bytes over every cut, `closing` from the last to the first; `back`: and as many back."""
    pairs = [(members[:, :-1], members[:, 1:], along), (members[:, -1:], members[:, :1], closing)]
    ways = [(a, b, size) for a, b, size in pairs if size > 0]
    ways += [(b, a, size) for a, b, size in ways] if back else []
    return _together([_plain(*way) for way in ways])


def send(op: str, blocks: Ints, cards: int) -> Messages:  # noqa: ARG001
    """Every rank to the next one, the last to the first: keys and values of ring attention."""
    flat = blocks.reshape(len(blocks), -1)
    return _plain(flat, np.roll(flat, -1, axis=1), 1.0)


PATTERNS: dict[str, Callable[[str, Ints, int], Messages]] = {
    "ring": ring, "tree": tree, "nvls": nvls, "nvls_tree": nvls_tree, "two_level": two_level, "pairwise": pairwise,
    "send": send,
}  # fmt: skip
