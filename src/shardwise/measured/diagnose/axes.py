"""Which axis of parallelism a collective belongs to: by the name of its group, by who is in it, or by what it does."""

import re

from shardwise.measured.diagnose.device_trace import SpanName
from shardwise.spec.policy import GRID, Policy

LANE_CAUSES = {
    "tp": "tp_comm", "cp": "cp_comm", "ep": "ep_comm", "pp": "bubble", "fsdp": "fsdp_comm", "grad": "grad_comm",
    "param": "param_comm",
}  # fmt: skip
_WORDS = (
    ("ep", r"expert|\bep\b|mesh_ep|_ep_|moe"),
    ("tp", r"tensor|\btp\b|mesh_tp|model_parallel_group"),
    ("cp", r"context|\bcp\b|mesh_cp|sequence_parallel"),
    ("pp", r"pipeline|\bpp\b|mesh_pp|embedding"),
    ("dp", r"data|\bdp\b|dp_|fsdp|replicate|shard|world|default_pg"),
)


def cause_of(span: SpanName, policy: Policy | None) -> str:
    """Of CAUSES; 'comm' where nothing tells."""
    if span.axis:
        return LANE_CAUSES.get(span.axis, "comm")
    axis = _named(span) or _placed(span, policy) or _by_kind(span, policy)
    if axis == "dp":
        return _data_parallel(span.op, policy)
    return LANE_CAUSES.get(axis, "comm")


def _named(span: SpanName) -> str:
    """By what the program called the group: 'TENSOR_MODEL_PARALLEL_GROUP', 'mesh_dp_shard'; names that say nothing of
    the axis, as the group of all ranks, are left to what follows."""
    text = span.description.lower()
    if not text or text in ("undefined", "default_pg"):
        return ""
    return next((axis for axis, form in _WORDS if re.search(form, text)), "")


def _placed(span: SpanName, policy: Policy | None) -> str:
    """By the number of ranks in it and the distance between them."""
    if policy is None or span.group_size < 2:
        return ""
    apart = span.ranks[1] - span.ranks[0] if len(span.ranks) > 1 else None
    groups = groups_of(policy)
    fitting = [axis for axis, size, stride in groups if size == span.group_size and apart in (None, stride)]
    if span.op == "all_to_all" and "ep" in fitting:
        return "ep"
    if span.op == "send" and "pp" in fitting:
        return "pp"
    named = dict.fromkeys(axis for axis in fitting if axis != "ep" or span.op == "all_to_all")
    return next(iter(named)) if len(named) == 1 else ""


def groups_of(policy: Policy) -> list[tuple[str, int, int]]:
    """(axis, ranks in a group, distance between neighbours) of all groups of more than one rank."""
    found, stride = [], 1
    strides: dict[str, int] = {}
    for axis in policy.order.split("-"):
        strides[axis] = stride
        found.append((axis, getattr(policy, axis), stride))
        stride *= getattr(policy, axis)
    both = min(strides["cp"], strides["dp"])
    found.append(("dp", policy.dp * policy.cp, both))
    if policy.shard_group:
        found += [("dp", policy.shard_group, both), ("dp", policy.dp * policy.cp // policy.shard_group,
                                                     both * policy.shard_group)]  # fmt: skip
    if policy.ep > 1:
        inner = policy.tp if policy.etp in (0, 1) and policy.ep <= policy.dp * policy.cp else 1
        found += [("ep", policy.ep, inner), ("ep", policy.ep, 1)]
    return [(axis, size, step) for axis, size, step in found if size > 1]


def place_of(rank: int, policy: Policy) -> str:
    """Where a rank stands on the axes that are split: 'tp 1, dp 3'; empty where one is, as its number says it."""
    words = []
    for axis in policy.order.split("-"):
        size = getattr(policy, axis)
        if size > 1:
            words.append(f"{axis} {rank % size}")
        rank //= size
    return ", ".join(words) if len(words) > 1 else ""


def _by_kind(span: SpanName, policy: Policy | None) -> str:
    """By what it does, where only one axis does such a thing."""
    if policy is None:
        return {"all_to_all": "ep", "send": "pp"}.get(span.op, "")
    split = [axis for axis in GRID if getattr(policy, axis) > 1]
    if span.op == "all_to_all":
        return "ep" if policy.ep > 1 else "cp" if policy.cp > 1 else ""
    if span.op == "send":
        return "pp" if policy.pp > 1 else "cp" if policy.cp > 1 else ""
    others = [axis for axis in split if axis != "pp"]
    return others[0] if len(others) == 1 else ""


def _data_parallel(op: str, policy: Policy | None) -> str:
    if policy is not None and policy.zero == 3 and op in ("all_gather", "reduce_scatter"):
        return "fsdp_comm"
    return "param_comm" if op in ("all_gather", "broadcast") else "grad_comm"
