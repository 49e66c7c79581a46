"""Which operators are messages between ranks, and what each of them carries."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch.distributed as dist
from torch import Tensor

from shardwise.run.runtime.private import process_group
from shardwise.run.trace.dtypes import dtype_name
from shardwise.run.trace.events import CollectiveCall, ProcessGroup
from shardwise.run.trace.operators import size_of

NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"})
SILENT = frozenset({"wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_", "mesh_get_process_group"})
"""carry nothing"""


@dataclass(frozen=True)
class MessageKind:
    op: str
    counted: str
    """which buffer's bytes count: an argument's name, or 'result'"""


KINDS = {
    "allreduce_": MessageKind("all_reduce", "tensors"),
    "allreduce_coalesced_": MessageKind("all_reduce", "tensors"),
    "all_reduce": MessageKind("all_reduce", "input"),
    "all_reduce_": MessageKind("all_reduce", "input"),
    "all_reduce_coalesced": MessageKind("all_reduce", "inputs"),
    "all_reduce_coalesced_": MessageKind("all_reduce", "inputs"),
    "_allgather_base_": MessageKind("all_gather", "output_tensor"),
    "allgather_": MessageKind("all_gather", "output_tensors"),
    "allgather_coalesced_": MessageKind("all_gather", "output_lists"),
    "allgather_into_tensor_coalesced_": MessageKind("all_gather", "outputs"),
    "all_gather_into_tensor": MessageKind("all_gather", "result"),
    "all_gather_into_tensor_out": MessageKind("all_gather", "result"),
    "all_gather_into_tensor_coalesced": MessageKind("all_gather", "result"),
    "_reduce_scatter_base_": MessageKind("reduce_scatter", "input_tensor"),
    "reduce_scatter_": MessageKind("reduce_scatter", "input_tensors"),
    "reduce_scatter_tensor_coalesced_": MessageKind("reduce_scatter", "inputs"),
    "reduce_scatter_tensor": MessageKind("reduce_scatter", "input"),
    "reduce_scatter_tensor_out": MessageKind("reduce_scatter", "input"),
    "reduce_scatter_tensor_coalesced": MessageKind("reduce_scatter", "inputs"),
    "alltoall_base_": MessageKind("all_to_all", "input"),
    "alltoall_": MessageKind("all_to_all", "input_tensors"),
    "all_to_all_single": MessageKind("all_to_all", "input"),
    "shard_dim_alltoall": MessageKind("all_to_all", "input"),
    "broadcast_": MessageKind("broadcast", "tensors"),
    "broadcast": MessageKind("broadcast", "input"),
    "reduce_": MessageKind("reduce", "tensors"),
    "gather_": MessageKind("gather", "input_tensors"),
    "scatter_": MessageKind("scatter", "output_tensors"),
    "send": MessageKind("send", "tensors"),
    "recv_": MessageKind("receive", "tensors"),
    "isend": MessageKind("send", "tensor"),
    "irecv": MessageKind("receive", "tensor"),
}
GROUP_NAMES = ("process_group", "group_name")
PEERS = ("dst", "src")


def is_message(func: Any) -> bool:
    return func.namespace in NAMESPACES and func._opname not in SILENT


def message_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> CollectiveCall:
    name = func._opname
    if name not in KINDS:
        raise ValueError(f"the step calls {func.namespace}::{name}, a message that `trace` does not know")
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    kind = KINDS[name]
    buffers = tensors_in(out if kind.counted == "result" else given[kind.counted])
    group = process_group(next(given[place] for place in GROUP_NAMES if place in given))
    peer = next((given[place] for place in PEERS if place in given), -1) if kind.op in ("send", "receive") else -1
    return CollectiveCall(
        op=kind.op, bytes=sum(map(size_of, buffers)), dtype=dtype_name(buffers[0].dtype), group=group_of(group),
        # functional collectives are waited for where their result is used
        waited=func.namespace == "c10d" and not _asynchronous(func, given),
        peer=dist.get_global_rank(group, peer) if peer >= 0 else -1,
    )  # fmt: skip


def written_by(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Buffers among its arguments that the message changes."""
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    into = [name for name in given if name.startswith("output") or (name == "tensors" and func._opname != "send")]
    return [tensor for name in into for tensor in tensors_in(given[name])]


def _asynchronous(func: Any, given: dict[str, Any]) -> bool:
    """Transfers always are; the argument has two spellings."""
    for argument in func._schema.arguments:
        if argument.name in ("async_op", "asyncOp"):
            return bool(given.get(argument.name, argument.default_value))
    return True


def group_of(group: dist.ProcessGroup) -> ProcessGroup:
    ranks = dist.get_process_group_ranks(group)
    steps = {after - before for before, after in pairwise(ranks)}
    stride = round((ranks[-1] - ranks[0]) / (len(ranks) - 1)) if len(ranks) > 1 else 1
    return ProcessGroup(_name(group), len(ranks), max(stride, 1), len(steps) <= 1)


def _name(group: dist.ProcessGroup) -> str:
    text = group.group_desc
    if text.startswith("mesh_"):
        return text.removeprefix("mesh_")
    return "world" if text in ("default_pg", "undefined") and group is dist.group.WORLD else text


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []
