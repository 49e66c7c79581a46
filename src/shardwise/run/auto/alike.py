"""Whether blocks that look alike compute alike: one is run with the weights of another, on the same inputs."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from shardwise.run.auto.blocks import BlockCall, BlockKind, Watched
from shardwise.run.auto.trial import FAILURES, first_of
from shardwise.run.auto.wide import comparable

SAME = {True: 1e-12, False: 1e-6}
"""in 64 bits and in 32: the same operators on the same numbers"""


def alike(model: nn.Module, kinds: list[BlockKind], seen: Watched) -> list[BlockKind]:
    """The kinds, each divided where its blocks compute otherwise: by a number that no attribute shows. Blocks without
    values, of a model that is too large, are taken as their attributes show them."""
    return [each for kind in kinds for each in _divided(model, kind, seen)]


def _divided(model: nn.Module, kind: BlockKind, seen: Watched) -> list[BlockKind]:
    call = seen.calls.get(kind.names[0])
    blocks = {name: model.get_submodule(name) for name in kind.names}
    if call is None or not all(_has_values(block) for block in blocks.values()):
        return [kind]
    groups: list[BlockKind] = []
    for name, block in blocks.items():
        group = next((each for each in groups if _same(each.first, block, call)), None)
        if group is not None:
            group.names.append(name)
            continue
        groups.append(BlockKind(kind.class_name, [name], block))
        seen.calls.setdefault(name, call)
        seen.returns.setdefault(name, seen.returns.get(kind.names[0], -1))
    return groups


def _has_values(block: nn.Module) -> bool:
    return not any(p.is_meta or (p.dim() and p.stride() == (0,) * p.dim()) for p in block.parameters())


def _same(one: nn.Module, other: nn.Module, call: BlockCall) -> bool:
    wide = next(one.parameters()).dtype is torch.float64
    weights = {name: x.detach().clone() for name, x in (*other.named_parameters(), *other.named_buffers())}

    def run(block: nn.Module) -> Tensor:
        args, kwargs = call.fresh()
        with torch.no_grad(), torch.random.fork_rng(devices=[]), comparable(wide=wide):
            torch.manual_seed(0)
            return first_of(functional_call(block, weights, args, kwargs))

    try:
        found, wanted = run(one), run(other)
    except FAILURES:
        return False
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=SAME[wide], atol=SAME[wide])
