"""A small copy of a user's program, to prove a plan on before the whole is run: fewer blocks, fewer ranks."""

from msgspec.structs import replace
from torch import nn

from shardwise.auto.blocks import block_kinds
from shardwise.auto.plan import Degrees
from shardwise.auto.program import UserProgram, forward_loss
from shardwise.auto.wide import comparable
from shardwise.spec.pipeline import refusal

LEAST_BLOCKS = 2
MOST = 2
"""ranks of one kind of sharing"""


def few_ranks(degrees: Degrees, samples: int) -> Degrees:
    """The same kinds of sharing, two ranks each. Micro-batches: as many as the samples allow, at most four."""
    axes = ("dp", "tp", "pp", "cp", "ep", "vpp", "replicas")
    fewer = replace(degrees, **{axis: min(MOST, getattr(degrees, axis)) for axis in axes})
    if fewer.replicas > 1:
        fewer = replace(fewer, dp=MOST * fewer.replicas)
    each = samples // fewer.dp
    counts = [n for n in range(min(degrees.micro_batches, 4), 0, -1) if each % n == 0]
    legal = (n for n in counts if not refusal(fewer.order, fewer.pp, fewer.vpp, n))
    return replace(fewer, micro_batches=next(legal, counts[0]) if fewer.pp > 1 else 1)


def few_blocks(program: UserProgram, degrees: Degrees) -> UserProgram:
    """Lists keep their first blocks of each kind; where the program does not run so, it stays whole."""
    own = program.copy()
    try:
        _shorten(own.model, max(LEAST_BLOCKS, degrees.pp * degrees.vpp))
        held = {id(p) for p in own.model.parameters()}
        for optimizer in own.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if id(p) in held]
            optimizer.param_groups = [group for group in optimizer.param_groups if group["params"]]
        with comparable(wide=own.dtype == "float64"):
            forward_loss(own.copy(), own.batches[0])
    except Exception:  # code that counts its blocks in its own way
        return program
    return own


def _shorten(model: nn.Module, least: int) -> None:
    keep: dict[str, set[str]] = {}
    for kind in block_kinds(model):
        for name in kind.names[:least]:
            holder, _, key = name.rpartition(".")
            keep.setdefault(holder, set()).add(key)
    for holder, keys in keep.items():
        blocks = model.get_submodule(holder)
        if not isinstance(blocks, nn.ModuleList):
            continue
        kept = [block for key, block in blocks.named_children() if key in keys]
        del blocks[:]
        blocks.extend(kept)
