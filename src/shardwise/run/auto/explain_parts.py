"""What a plan's code needs beside torch, written out: functions as they are here, and the plan as plain data."""

import inspect
from collections.abc import Iterator
from types import ModuleType

from shardwise.run.auto import (
    blocks,
    context,
    cutting,
    draws,
    effects,
    expert_homes,
    fitted,
    halves,
    joined,
    lanes,
    means,
    meshes,
    offload,
    products,
    sequence,
    spanning,
    split,
    stage,
    tokens,
    trial,
    watch,
)
from shardwise.run.auto.plan import AutoPlan, End, ExpertHome, Handed, ProductCut
from shardwise.run.runtime import private

IMPORTS = """import copy
import inspect
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

AutoPlan = ExpertHome = Handed = NormCut = ProductCut = Size = SimpleNamespace  # what is cut, as plain data
"""
END = '''

class End(SimpleNamespace):
    """A parameter outside the blocks, and which pipeline stages need it."""

'''


def functions_of(plan: AutoPlan) -> Iterator[str]:
    degrees = plan.degrees
    yield IMPORTS
    if plan.whole:
        yield _sources(split.average_gradients)
    if degrees.pp > 1 or degrees.cp > 1:
        yield _sources(private.swapped)
    if degrees.pp > 1 or degrees.replicas > 1:
        yield f"COPIES, SHARDS = {meshes.COPIES!r}, {meshes.SHARDS!r}"
        yield _sources(meshes.batch_mesh)
    if plan.token_means and degrees.dp > 1:
        yield _sources(means.token_mean, means.averages, means.counted_tokens)
    if degrees.offload != "none":
        yield _body(offload)
    if max(degrees.tp, degrees.cp, degrees.ep) > 1:
        yield _body(lanes)
    if max(degrees.tp, degrees.ep) > 1:
        yield from (_body(part) for part in (products, fitted))
        yield _sources(spanning.normed, spanning.span_ranks)
        yield _body(cutting)
        yield _sources(split.share_table, split.share_head)
    if degrees.sp or degrees.cp > 1:
        yield _body(tokens)
    if degrees.sp:
        yield _body(sequence)
    if degrees.ep > 1:
        yield _body(expert_homes)
    if degrees.cp > 1:
        yield "Attention = Callable[..., Tensor]\n"
        yield _sources(watch.attention_made)
        yield _sources(*(() if degrees.tp > 1 else (cutting.join_entering,)), trial.first_of, joined.join_tokens)
        yield _body(context).partition("\ndef cannot_share_tokens")[0]
    if degrees.pp > 1:
        yield _sources(blocks._Stopped, blocks.until_backward, effects.gradients_kept, watch.samples_of, watch.part_of)
        yield END + inspect.getsource(End.needed)
        yield _body(draws).partition("\n@contextmanager\ndef draws_begin")[0]
        yield _body(halves)
        yield _body(stage).partition("\ndef orders_of")[0]


def _sources(*objects: object) -> str:
    return "\n" + "\n\n".join(inspect.getsource(each) for each in objects)  # type: ignore[arg-type]


def _body(part: ModuleType) -> str:
    """A module without its own imports and its first words."""
    lines = inspect.getsource(part).splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith(("import ", "from ")))
    return "\n".join(lines[last + 1 :])


def plan_text(plan: AutoPlan) -> str:
    """The blocks and what is around them; for stages also what each does, in order."""
    degrees = plan.degrees
    kinds = ", ".join(
        f"AutoPlan(blocks={list(k.blocks)!r}, returns={k.returns}, joins={k.joins!r})" for k in plan.kinds
    )
    lines = [
        "", "PLAN = AutoPlan(",
        f"    degrees=AutoPlan(dp={degrees.dp}, tp={degrees.tp}, pp={degrees.pp}, "
        f"micro_batches={degrees.micro_batches}),",
        f"    order={list(plan.order)!r},", f"    kinds=[{kinds}],", f"    tokens={plan.tokens},",
    ]  # fmt: skip
    if degrees.pp > 1:
        lines += [f"    stages={[list(each) for each in plan.stages]!r},"]
        lines += [f"    held={[list(each) for each in plan.held]!r},", "    ends=["]
        lines += [f"        End(parameter={e.parameter!r}, first={e.first}, last={e.last})," for e in plan.ends]
        crossing = ", ".join(f"[{', '.join(map(_handed, plan.crossing(s)))}]" for s in range(len(plan.stages) + 1))
        lines += ["    ],", f"    samples={plan.samples}, handed=[{', '.join(map(_handed, plan.handed))}],"]
        lines += [f"    crossing=[{crossing}].__getitem__,  # what each stage takes"]
    lines += [")"]
    if degrees.pp > 1:
        words = [f"{name}.weight" for name in (*plan.vocabulary.tables, *plan.vocabulary.heads)]
        words += [f"{name}.bias" for name in plan.vocabulary.heads]
        lines += [f"WORDS = {words!r}  # shared out by rows", "ORDERS = ["]
        lines += [f"    {order!r}," for order in stage.orders_of(plan)]
        lines += ["]  # of every rank: forward, backward or its halves (I, W), micro-batch, chunk"]
    return "\n".join(lines)


def _handed(each: Handed) -> str:
    return f"Handed(place={each.place}, leaf={each.leaf}, shape={each.shape}, grows={each.grows})"


def cut_text(cut: ProductCut) -> str:
    columns = ", ".join(
        f"ProductCut(module={c.module!r}, indices={_indices(c.indices)}, inside={c.inside})" for c in cut.columns
    )
    stacks = ", ".join(
        f"ProductCut(parameter={s.parameter!r}, axis={s.axis}, indices={_indices(s.indices)})" for s in cut.stacks
    )
    sizes = ", ".join(f"ProductCut(module={s.module!r}, name={s.name!r}, value={s.value})" for s in cut.sizes)
    norms = ", ".join(
        f"NormCut(module={n.module!r}, indices={_indices(n.indices)}, width={n.width}, epsilon={n.epsilon!r}, "
        f"centred={n.centred}, from_one={n.from_one}, gate={n.gate!r})" for n in cut.norms
    )  # fmt: skip
    return (f"ProductCut(around={cut.around!r}, columns=[{columns}], row={cut.row!r}, stacks=[{stacks}], "
            f"inner={list(cut.inner)!r}, divided={list(cut.divided)!r}, sizes=[{sizes}], norms=[{norms}], "
            f"sums={list(cut.sums)!r}, fitted={cut.fitted}, flat={cut.flat})")  # fmt: skip


def home_text(home: ExpertHome) -> str:
    sizes = ", ".join(f"ExpertHome(module={s.module!r}, name={s.name!r}, value={s.value})" for s in home.sizes)
    return (f"ExpertHome(module={home.module!r}, parameters={list(home.parameters)!r}, count={home.count}, "
            f"chosen={home.chosen}, sizes=[{sizes}])")  # fmt: skip


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
