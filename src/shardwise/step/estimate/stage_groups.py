"""Replicas of one pipeline stage may lie better than those of another: groups of 63 ranks begin anywhere in nodes of 8,
and where one GPU of a node is left to a group, all its traffic leaves by one network card."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.step.estimate.machine import Machine
from shardwise.work import Work
from shardwise.work.layout import Numbers
from shardwise.work.messages import bucket_bytes
from shardwise.work.parameter_messages import ParameterMessage
from shardwise.work.runs import Runs
from shardwise.work.stages import Grid, largest


@dataclass(frozen=True)
class StagePaces:
    """Seconds in which a stage's groups reduce, over those of the stage whose groups lie worst."""

    row: Ints
    """of the tables, by policy; 0 where all stages lie alike"""
    dense: Grid
    """rows x stages; the first row, and what is beyond a pipeline's last stage, is 1"""
    expert: Grid

    @property
    def differ(self) -> NDArray[np.bool_]:
        return self.row > 0

    def take(self, rows: Ints | slice) -> "StagePaces":
        return StagePaces(self.row[rows], self.dense, self.expert)

    def spread(self, runs: Runs) -> "StagePaces":
        """From one row per run of policies to one per policy."""
        return self if runs.of is None else self.take(runs.of)

    def of_stages(self, stages: int) -> tuple[Grid, Grid]:
        """Policies x so many stages: of dense parameters, of experts."""
        if not self.differ.any():
            alike = np.ones((len(self.row), 1))
            return alike, alike
        return self.dense[self.row, :stages], self.expert[self.row, :stages]

    def on(self, parameters: tuple[Grid, Grid], stages: Grid) -> tuple[Grid, Grid]:
        """As many parameters as the stage that lies worst would reduce in the time that these stages need."""
        rows = np.flatnonzero(self.differ)
        if not len(rows):
            return parameters
        found = parameters[0].copy(), parameters[1].copy()
        for held, table in zip(found, (self.dense, self.expert), strict=True):
            held[rows] *= _of_columns(table[self.row[rows]], stages[rows].astype(np.int64))
        return found


def all_alike(policies: int) -> StagePaces:
    return StagePaces(np.zeros(policies, dtype=np.int64), np.ones((1, 1)), np.ones((1, 1)))


def stage_paces(work: Work, machine: Machine) -> StagePaces:
    rows = np.flatnonzero(_lie_apart(work, machine))
    found = all_alike(len(work.layout.pp))
    if not len(rows):
        return found
    found.row[rows] = np.arange(1, len(rows) + 1)
    dense, expert = (_table(work, machine, rows, of) for of in ("dense", "expert"))
    return StagePaces(found.row, dense, expert)


def _lie_apart(work: Work, machine: Machine) -> NDArray[np.bool_]:
    """Where stages are blocks of neighbouring ranks that begin in the middle of a node."""
    policies, cluster = work.layout.policies, machine.network.cluster
    block = machine.strides["pp"]
    outermost = (policies.pp > 1) & (block == policies.tp * policies.cp * policies.dp)
    return np.asarray(outermost & (block % cluster.node_size != 0) & (cluster.node_size % block != 0))


def _table(work: Work, machine: Machine, rows: Ints, of: str) -> Grid:
    held = largest(work.parameters[of == "expert"])[0]
    found = np.ones((len(rows) + 1, int(work.layout.pp[rows].max())))
    for message in work.parameter_messages:
        reduces = message.axis == "dp" and message.packed == "in buckets" and not message.brings_parameters
        sent = np.flatnonzero(message.count[rows] > 0.0)
        if reduces and message.of == of and len(sent) and held.any():
            for places, paces in _paces(work, machine, rows[sent], message, held):
                found[1 + sent[places], : paces.shape[1]] *= paces
    return found


def _paces(
    work: Work, machine: Machine, rows: Ints, message: ParameterMessage, held: Numbers
) -> Iterator[tuple[Ints, Grid]]:
    """(which of the rows, their stages' paces), for those whose groups lie alike."""
    op = message.op
    columns = (message.ranks.astype(np.int64), machine.strides[message.group], machine.strides["pp"])
    keys = np.column_stack([*columns, work.layout.policies.pp])[rows]
    for key in np.unique(keys, axis=0):
        places = np.flatnonzero((keys == key).all(axis=1))
        mine, (ranks, apart, width, pp) = rows[places], (int(value) for value in key)
        if ranks * apart > width or width % (ranks * apart):
            continue
        sent = held[mine] * message.bytes
        bucket = bucket_bytes(machine.stack, op, sent, message.ranks[mine], work.matrices[mine])
        each = [machine.network.law(op, ranks, apart, within=(k * width, (k + 1) * width)).seconds(bucket)
                for k in range(pp)]  # fmt: skip
        worst = np.maximum(machine.network.seconds(op, bucket, ranks, apart), 1e-300)
        yield places, np.minimum(np.column_stack(each) / worst[:, None], 1.0)


def _of_columns(paces: Grid, stages: Ints) -> Grid:
    """A column that stands for others which hold the same has the pace of the slowest of them."""
    before = np.minimum(np.column_stack([stages[:, 0], stages[:, :-1] + 1]), stages)
    behind = np.maximum(np.column_stack([stages[:, 1:] - 1, stages[:, -1]]), stages)
    found, every = np.empty(stages.shape), np.arange(paces.shape[1])
    for column, (low, high) in enumerate(zip(before.T[:, :, None], behind.T[:, :, None], strict=True)):
        found[:, column] = np.where((low <= every) & (every <= high), paces, 0.0).max(axis=1)
    return found
