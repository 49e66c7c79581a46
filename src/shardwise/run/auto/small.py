"""A small copy of a user's program, to prove a plan on before the whole is run: fewer blocks, fewer copies of data."""

from msgspec.structs import replace
from torch import nn

from shardwise.plugins.pipeline import refusal
from shardwise.run.auto.plan import AutoPlan, Degrees
from shardwise.run.auto.program import UserProgram, forward_loss
from shardwise.run.auto.wide import comparable

LEAST_BLOCKS = 2
MOST = 2
"""ranks that share the batch alike"""
MOST_RANKS = 16
"""processes of this machine in a proof; beyond them stages, then ranks that share a sequence, are fewer"""
MOST_MICRO = 4


def few_ranks(degrees: Degrees, samples: int) -> Degrees:
    """The planned degrees, but two ranks of data parallelism, which all do the same. Micro-batches: as many as the
    samples allow, at most twice the stages."""
    fewer = degrees
    if degrees.ep == 1:
        copies = min(MOST, degrees.replicas)
        fewer = replace(fewer, replicas=copies, dp=copies * min(MOST, degrees.shards))
    for axis in ("pp", "cp"):
        if fewer.ranks > MOST_RANKS:
            fewer = replace(fewer, **{axis: min(MOST, getattr(fewer, axis))})
    if fewer.pp == 1:
        return replace(fewer, micro_batches=1)
    shapes = (fewer, replace(fewer, dp=1, replicas=1), replace(fewer, pp=MOST))
    made = (replace(each, micro_batches=_micro_batches(each, samples)) for each in shapes)
    return next((each for each in made if each.micro_batches), replace(fewer, micro_batches=1))


def _micro_batches(degrees: Degrees, samples: int) -> int:
    """0 where the schedule takes none that the samples allow."""
    most = min(degrees.micro_batches, max(MOST_MICRO, 2 * degrees.pp))
    counts = (n for n in range(most, 0, -1) if samples // degrees.dp % n == 0)
    return next((n for n in counts if not refusal(degrees.order, degrees.pp, degrees.vpp, n)), 0)


def few_blocks(program: UserProgram, plan: AutoPlan, degrees: Degrees) -> UserProgram:
    """Lists keep their first blocks of each kind of the plan; where the program does not run so, it stays whole."""
    if program.loop is not None:
        return program
    own = program.copy()
    try:
        _shorten(own.model, plan, max(LEAST_BLOCKS, degrees.pp * degrees.vpp))
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


def _shorten(model: nn.Module, plan: AutoPlan, least: int) -> None:
    keep: dict[str, set[str]] = {}
    for kind in plan.kinds:
        for name in kind.blocks[:least]:
            holder, _, key = name.rpartition(".")
            keep.setdefault(holder, set()).add(key)
    for holder, keys in keep.items():
        blocks = model.get_submodule(holder)
        if not isinstance(blocks, nn.ModuleList):
            continue
        kept = [block for key, block in blocks.named_children() if key in keys]
        del blocks[:]
        blocks.extend(kept)
