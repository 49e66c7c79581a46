"""A plan as ordinary torch code that runs without shardwise: a file with `parallelize(model, mesh)`.

Where every cut is one that torch's own styles say, it is `parallelize_module`; otherwise the few functions that the
plan needs are written into the file as they are here (explain_parts.py). Stages come with the step that runs them.
"""

from collections.abc import Iterator

from shardwise.run.auto.explain_parts import cut_text, functions_of, home_text, plan_text
from shardwise.run.auto.lanes import copied_rows
from shardwise.run.auto.means import AVERAGED
from shardwise.run.auto.meshes import COPIES, SHARDS
from shardwise.run.auto.plan import AXES, AutoPlan, CutKind, Degrees, ProductCut, Size

HEAD = '''"""Splits a model: {what}. Written by shardwise, runs without it.

    torchrun --nproc-per-node {ranks} train.py

    mesh = init_device_mesh(device, {shape}, mesh_dim_names={names})
    {model} = parallelize(build_model(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)  # shards and whole weights lie side by side
{kept}{loop}
Every rank of `dp` gets its own samples, all others of a step the same; gradients are means over `dp`. Clip gradients by
the norm over all ranks: torch's function sees the shares of one.
"""
'''
KEPT = """    state_away(optimizer)  # on the host between steps
"""
STAGED = """    losses = train_step(stage, step, (model, optimizer), batch)  # `step` is your own, up to its backward
"""


def explained(plan: AutoPlan) -> str:
    """The file's text."""
    degrees = plan.degrees
    staged = degrees.pp > 1
    simple = all(_simple(cut) for kind in plan.kinds for cut in kind.cuts)
    simple = (
        simple
        and not staged
        and not plan.whole
        and not _averages(plan)
        and not degrees.sp
        and degrees.cp == degrees.ep == 1
        and degrees.offload == "none"
    )
    axes = {axis: getattr(degrees, axis) for axis in AXES if axis in ("dp", "tp") or getattr(degrees, axis) > 1}
    if degrees.replicas > 1:
        copies = {COPIES: degrees.replicas, SHARDS: degrees.shards}
        axes = {
            name: size
            for axis, whole in axes.items()
            for name, size in (copies if axis == "dp" else {axis: whole}).items()
        }
    head = HEAD.format(
        what=degrees.text, ranks=degrees.ranks, shape=tuple(axes.values()), names=tuple(axes),
        model="model, stage" if staged else "model", loop=STAGED if staged else "",
        kept=KEPT if degrees.offload in ("optimizer", "both") else "",
    )  # fmt: skip
    parts = [head, *(_by_styles(plan) if simple else _by_hand(plan))]
    return "\n".join(parts).rstrip() + "\n"


def _simple(cut: ProductCut) -> bool:
    """Each rank has neighbouring outputs, and nothing else is shared or fitted."""
    even = all(_neighbours(own) for column in cut.columns for own in column.indices)
    copies = any(copied_rows(column.indices, 0, 0) for column in cut.columns)
    return bool(cut.row) and even and not copies and not (cut.inner or cut.fitted or cut.stacks or cut.norms)


def _neighbours(indices: tuple[int, ...]) -> bool:
    return indices == tuple(range(indices[0], indices[0] + len(indices)))


def _by_styles(plan: AutoPlan) -> Iterator[str]:
    degrees = plan.degrees
    yield (
        "import copy\n"
        if any(s.name.startswith("config.") for k in plan.kinds for c in k.cuts for s in c.sizes)
        else ""
    )
    yield "from torch import nn\nfrom torch.distributed.device_mesh import DeviceMesh"
    if degrees.dp > 1:
        yield "from torch.distributed.fsdp import fully_shard"
    if degrees.tp > 1:
        yield "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module"
    if degrees.recompute:
        yield "from functools import partial\n\nfrom torch.utils.checkpoint import checkpoint"
    yield "\n\ndef parallelize(model: nn.Module, mesh: DeviceMesh) -> nn.Module:"
    for kind in plan.kinds:
        if degrees.tp > 1 and kind.cuts:
            yield from _styles(kind)
    yield from _shards(plan)
    yield "    return model"


def _styles(kind: CutKind) -> Iterator[str]:
    yield f"    for name in {_names(kind)}:"
    yield "        block = model.get_submodule(name)"
    yield '        parallelize_module(block, mesh["tp"], {'
    for cut in kind.cuts:
        for column in cut.columns:
            yield f'            "{column.module}": ColwiseParallel(),'
        yield f'            "{cut.row}": RowwiseParallel(),'
    yield "        })"
    for cut in kind.cuts:
        yield from (line for size in cut.sizes for line in _size(size))


def _size(size: Size) -> Iterator[str]:
    owner = f'block.get_submodule("{size.module}")'
    if size.name.startswith("config."):
        yield f"        {owner}.config = copy.copy({owner}.config)  # its own: others keep the whole number"
    yield f"        {owner}.{size.name} = {size.value}"


def _names(kind: CutKind) -> str:
    holder, _, first = kind.blocks[0].rpartition(".")
    numbers = [name.rpartition(".")[2] for name in kind.blocks]
    if first.isdigit() and [int(n) for n in numbers] == list(range(int(first), int(first) + len(numbers))):
        return f'[f"{holder}.{{i}}" for i in range({first}, {int(first) + len(numbers)})]'
    return repr(list(kind.blocks))


def _shards(plan: AutoPlan) -> Iterator[str]:
    """Blocks recomputed and sharded; behind the cuts."""
    degrees, over = plan.degrees, _over(plan.degrees)
    apart = ", ignored_params=housed" if degrees.ep > 1 or plan.whole else ""
    if over and plan.whole:
        ends = " and name not in stage.ends" if degrees.pp > 1 else ""
        group = "batch_mesh(mesh)" if degrees.replicas > 1 else over
        yield f"    whole = [p for name, p in model.named_parameters() if name in {list(plan.whole)!r}{ends}]"
        yield f"    average_gradients(whole, {group}.get_group())"
        yield "    housed = {*whole" + (", *housed}" if degrees.ep > 1 else "}")
    saved = degrees.offload in ("activations", "both")
    if over or degrees.recompute or saved:
        loops = ["own"] if degrees.pp > 1 else [_names(kind) for kind in plan.kinds]
        for names in loops:
            yield f"    for name in {names}:"
            yield "        block = model.get_submodule(name)"
            if degrees.recompute:
                yield "        forward = partial(checkpoint, block.forward, use_reentrant=False)"
                yield "        block.forward = forward"
            if saved:
                yield "        activations_away(block)"
            if over:
                yield f"        fully_shard(block, mesh={over}, reshard_after_forward=True{apart})"
    if over and degrees.pp == 1:
        for name in (each for each in plan.roots if each not in plan.blocks):
            yield f"    fully_shard({f'model.get_submodule({name!r})' if name else 'model'}, mesh={over}{apart})"


def _averages(plan: AutoPlan) -> bool:
    return plan.token_means > 0 and plan.degrees.dp > 1


def _over(degrees: Degrees) -> str:
    """The mesh that FSDP2 shards over, in code."""
    if degrees.replicas > 1:
        return f'mesh["{COPIES}", "{SHARDS}"]'
    if degrees.dp > 1 and degrees.cp > 1:
        return 'mesh["dp", "cp"]._flatten("dp_cp")'
    return 'mesh["dp"]' if degrees.dp > 1 else 'mesh["cp"]' if degrees.cp > 1 else ""


def _by_hand(plan: AutoPlan) -> Iterator[str]:
    degrees = plan.degrees
    staged = degrees.pp > 1
    yield from functions_of(plan)
    if staged or degrees.cp > 1:
        yield plan_text(plan)
    returned = "tuple[nn.Module, SplitStage]" if staged else "nn.Module"
    yield f"\n\ndef parallelize(model: nn.Module, mesh: DeviceMesh) -> {returned}:"
    if staged:
        yield '    place = mesh["pp"].get_local_rank()'
        yield "    stage = staged(model, PLAN, mesh, ORDERS, WORDS)"
        yield "    own = [name for each in PLAN.held[place] for name in PLAN.stages[each]]"
    if degrees.tp > 1:
        yield from _cuts(plan, " if name in own" if staged else "")
    if degrees.ep > 1:
        yield from _homes(plan)
    if staged:
        yield "    stage.ends = ends_of(model, own)"
    yield from _shards(plan)
    if degrees.sp:
        yield f"    for part in {'(PLAN.stages[each] for each in PLAN.held[place])' if staged else [list(plan.order)]}:"
        yield "        share_between(model.get_submodule(part[0]), model.get_submodule(part[-1]), lane)"
    if degrees.cp > 1:
        yield '    share_tokens(model, PLAN, RankLane(mesh["cp"].get_group()))'
    if _averages(plan):
        group = ("batch_mesh(mesh)" if degrees.replicas > 1 else 'mesh["dp"]') + ".get_group()"
        yield f"    for name in {AVERAGED!r}:  # means over the tokens of all ranks"
        yield f"        setattr(F, name, token_mean(getattr(F, name), {group}))"
    if staged:
        yield "    connect(stage)\n    return model, stage"
        yield TRAIN_STEP
    else:
        yield "    return model"


def _homes(plan: AutoPlan) -> Iterator[str]:
    """Experts shared out whole; FSDP2 leaves them alone."""
    yield '    experts, housed = RankLane(mesh["dp"].get_group()), set()'
    for kind in plan.kinds:
        for home in kind.homes:
            yield f"    for name in {_names(kind)}:"
            for name in home.parameters:
                yield f'        housed.add(model.get_submodule(name).get_parameter("{home.module}.{name}"))'
            yield f"        house_experts(model.get_submodule(name), {home_text(home)}, experts, {plan.degrees.dp})"


def _cuts(plan: AutoPlan, condition: str) -> Iterator[str]:
    yield '    lane, held = RankLane(mesh["tp"].get_group()), set()'
    tokens = f", {plan.tokens // plan.degrees.tp}" if plan.degrees.sp else ""
    for kind in plan.kinds:
        names = f"(name for name in {_names(kind)}{condition})" if condition else _names(kind)
        for cut in kind.cuts:
            yield f"    for name in {names}:"
            yield f"        apply_cut(model.get_submodule(name), {cut_text(cut)}, lane, held{tokens})"
        if plan.degrees.sp:
            yield f"    for name in {names}:"
            yield f"        sum_outside(model.get_submodule(name), {list(kind.outside)!r}, lane, held)"
    for words, function in ((plan.vocabulary.tables, "share_table"), (plan.vocabulary.heads, "share_head")):
        for name in words:
            yield f'    {function}(model.get_submodule("{name}"), lane, held)'


TRAIN_STEP = '''

def train_step(stage: SplitStage, step: Callable[..., object], parts: tuple[Any, ...], batch: Any) -> list[float]:
    """All micro-batches of this rank's samples, then one step of every optimizer; losses, on the last stage. What your
    step does behind its backward is not run: clipping belongs before the optimizers, here."""
    losses = stage.run(step, parts, batch)
    stage.sum_ends()
    for part in parts:
        if isinstance(part, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
            part.step()
    stage.model.zero_grad()
    return losses'''
