"""Replicas of one pipeline stage may lie better than those of another: groups of 63 ranks begin anywhere in nodes of 8,
and where one GPU of a node is left to a group, all its traffic leaves by one network card."""

import numpy as np
from numpy.typing import NDArray

from shardwise.estimate.layers import Machine
from shardwise.work import Work
from shardwise.work.layout import Numbers
from shardwise.work.messages import bucket_bytes
from shardwise.work.parameter_messages import ParameterMessage
from shardwise.work.stages import Grid, largest


def reduced_parameters(work: Work, machine: Machine) -> tuple[Grid, Grid]:
    """Dense and expert parameters of the stages, as many as the stage whose groups lie worst would reduce in the time
    that theirs need."""
    dense, expert = work.parameters
    apart = _lie_apart(work, machine)
    if not apart.any():
        return dense, expert
    found = {"dense": dense, "expert": expert}
    for message in work.parameter_messages:
        reduces = message.axis == "dp" and message.packed == "in buckets" and message.op != "all_gather"
        rows = np.flatnonzero(apart & (message.count > 0.0))
        if reduces and len(rows) and found[message.of].any():
            held = largest(found[message.of])[0]
            found[message.of] = found[message.of] * _paces(work, machine, rows, message, held)
    return found["dense"], found["expert"]


def _lie_apart(work: Work, machine: Machine) -> NDArray[np.bool_]:
    """Where stages are blocks of neighbouring ranks that begin in the middle of a node."""
    policies, cluster = work.layout.policies, machine.network.cluster
    block = machine.strides["pp"]
    outermost = (policies.pp > 1) & (block == policies.tp * policies.cp * policies.dp)
    return np.asarray(outermost & (block % cluster.node_size != 0) & (cluster.node_size % block != 0))


def _paces(work: Work, machine: Machine, rows: NDArray[np.int64], message: ParameterMessage, held: Numbers) -> Grid:
    """Seconds of a stage's groups over those of the stage whose groups lie worst."""
    stages, op = work.stages.index.astype(np.int64), message.op
    found = np.ones(stages.shape)
    columns = (message.ranks.astype(np.int64), machine.strides[message.group], machine.strides["pp"])
    keys = np.column_stack([*columns, work.layout.policies.pp])[rows]
    for key in np.unique(keys, axis=0):
        mine = rows[(keys == key).all(axis=1)]
        ranks, apart, width, pp = (int(value) for value in key)
        if ranks * apart > width or width % (ranks * apart):
            continue
        sent = held[mine] * message.element_bytes
        bucket = bucket_bytes(machine.stack, op, sent, message.ranks[mine], work.tensors[mine])
        each = [machine.network.law(op, ranks, apart, within=(k * width, (k + 1) * width)).seconds(bucket)
                for k in range(pp)]  # fmt: skip
        worst = np.maximum(machine.network.seconds(op, bucket, ranks, apart), 1e-300)
        found[mine] = _of_columns(np.column_stack(each) / worst[:, None], stages[mine])
    return np.minimum(found, 1.0)


def _of_columns(pace: Grid, stages: NDArray[np.int64]) -> Grid:
    """A column that stands for others which hold the same has the pace of the slowest of them."""
    before = np.column_stack([stages[:, 0], stages[:, :-1] + 1])
    behind = np.column_stack([stages[:, 1:] - 1, stages[:, -1]])
    found = np.empty(stages.shape)
    for row, (lows, highs, own) in enumerate(zip(before, behind, stages, strict=True)):
        for column, (low, high, stage) in enumerate(zip(lows, highs, own, strict=True)):
            found[row, column] = pace[row, min(low, stage) : max(high, stage) + 1].max()
    return found
