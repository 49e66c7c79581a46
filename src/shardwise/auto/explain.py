"""A plan as ordinary torch code that runs without shardwise: a file with `parallelize(model, mesh)`.

Where every cut is one that torch's own styles say, it is `parallelize_module`; otherwise the few functions that the cut
needs are written into the file as they are here.
"""

import inspect
from collections.abc import Iterator

from shardwise.auto import cutting, fitted, lanes, products, split
from shardwise.auto.plan import AutoPlan, CutKind, ProductCut, Size

HEAD = '''"""Splits a model: {what}. Written by shardwise, runs without it.

    torchrun --nproc-per-node {ranks} train.py

    mesh = init_device_mesh(device, ({dp}, {tp}), mesh_dim_names=("dp", "tp"))
    model = parallelize(build_model(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)  # shards and whole weights lie side by side

Every rank of `tp` gets the same samples, every rank of `dp` its own; gradients are means over `dp`. Clip gradients by
the norm over all ranks: torch's function sees the shares of one.
"""
'''


def explained(plan: AutoPlan) -> str:
    """The file's text."""
    degrees = plan.degrees
    if degrees.pp > 1 or degrees.cp > 1:
        raise ValueError(
            f"explain: {degrees.text} changes the step, not the model alone, so no code beside it can say it; "
            "add --fix pp=1 --fix cp=1"
        )
    simple = all(_simple(cut) for kind in plan.kinds for cut in kind.cuts)
    head = HEAD.format(what=degrees.text, ranks=degrees.ranks, dp=degrees.dp, tp=degrees.tp)
    parts = [head, *(_by_styles(plan) if simple else _by_hand(plan))]
    return "\n".join(parts).rstrip() + "\n"


def _simple(cut: ProductCut) -> bool:
    """Each rank has neighbouring outputs, and nothing else is shared or fitted."""
    even = all(_neighbours(own) for column in cut.columns for own in column.indices)
    return bool(cut.row) and even and not cut.inner and not cut.fitted and not cut.stacks


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
    degrees = plan.degrees
    for kind in plan.kinds if degrees.dp > 1 or degrees.recompute else ():
        yield f"    for name in {_names(kind)}:"
        yield "        block = model.get_submodule(name)"
        if degrees.recompute:
            yield "        forward = partial(checkpoint, block.forward, use_reentrant=False)"
            yield "        block.forward = forward"
        if degrees.dp > 1:
            yield '        fully_shard(block, mesh=mesh["dp"])'
    if degrees.dp > 1:
        yield '    fully_shard(model, mesh=mesh["dp"])'
    yield "    return model"


def _by_hand(plan: AutoPlan) -> Iterator[str]:
    yield _IMPORTS
    for part in (lanes, products, fitted, cutting):
        yield _body(inspect.getsource(part))
    yield "\n".join(inspect.getsource(each) for each in (split._share_table, split._share_head))
    yield "\n\ndef parallelize(model: nn.Module, mesh: DeviceMesh) -> nn.Module:"
    yield '    lane, held = RankLane(mesh["tp"].get_group()), set()'
    for kind in plan.kinds:
        for cut in kind.cuts:
            yield f"    for name in {_names(kind)}:"
            yield f"        apply_cut(model.get_submodule(name), {_cut_text(cut)}, lane, held)"
    for words, function in ((plan.vocabulary.tables, "_share_table"), (plan.vocabulary.heads, "_share_head")):
        for name in words:
            yield f'    {function}(model.get_submodule("{name}"), lane, held)'
    yield from _shards(plan)


_IMPORTS = """import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

ProductCut = Size = SimpleNamespace  # what is cut, as plain data
"""


def _body(source: str) -> str:
    """Without its own imports and its first words."""
    lines = source.splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith(("import ", "from ")))
    return "\n".join(lines[last + 1 :])


def _cut_text(cut: ProductCut) -> str:
    columns = ", ".join(f"ProductCut(module={c.module!r}, indices={_indices(c.indices)})" for c in cut.columns)
    stacks = ", ".join(
        f"ProductCut(parameter={s.parameter!r}, axis={s.axis}, indices={_indices(s.indices)})" for s in cut.stacks
    )
    sizes = ", ".join(f"ProductCut(module={s.module!r}, name={s.name!r}, value={s.value})" for s in cut.sizes)
    return (f"ProductCut(around={cut.around!r}, columns=[{columns}], row={cut.row!r}, stacks=[{stacks}], "
            f"inner={list(cut.inner)!r}, "
            f"sizes=[{sizes}], fitted={cut.fitted})")  # fmt: skip


def _indices(each: tuple[tuple[int, ...], ...]) -> str:
    """Runs of neighbours as ranges."""
    return "[" + ", ".join("[" + ", ".join(f"*range({a}, {b})" for a, b in _runs(own)) + "]" for own in each) + "]"


def _runs(indices: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    start = before = indices[0]
    for index in indices[1:]:
        if index != before + 1:
            yield start, before + 1
            start = index
        before = index
    yield start, before + 1
