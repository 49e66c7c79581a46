"""Which layers each piece of the model holds, and the work of each rank as rows for the closed form's functions."""

from dataclasses import dataclass, replace

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.step.tasks.program import Program
from shardwise.work import Work, work_of
from shardwise.work.case import Training
from shardwise.work.parameters import stage_parameters
from shardwise.work.pieces import piece_kinds
from shardwise.work.stages import Stages


@dataclass(frozen=True)
class Pieces:
    """Layers by kind of each piece (model stage), and where the ends are."""

    kinds: Floats
    """pieces x kinds"""
    first: Floats
    last: Floats

    @property
    def counts(self) -> Floats:
        """pieces x (kinds, embedding, head): how often each unit of the closed form occurs"""
        return np.column_stack([self.kinds, self.first, self.last])

    @property
    def layers(self) -> Floats:
        return np.asarray(self.kinds.sum(axis=1))


def pieces_of(model: Model, program: Program, rank_layers: Ints) -> Pieces:
    """`rank_layers`: consecutive layers of each rank."""
    kinds = piece_kinds(model, program.held, rank_layers)
    first, last = np.zeros(program.stages), np.zeros(program.stages)
    first[0], last[-1] = 1.0, 1.0
    return Pieces(kinds=kinds, first=first, last=last)


def rank_work(training: Training, policy: Policy, program: Program, pieces: Pieces) -> Work:
    """The work of one policy with one row per rank, so that the closed form's own functions price each rank."""
    rows = Policies.of([policy]).take(np.zeros(program.pp, dtype=np.int64))
    work = work_of(training, rows, every_stage=False)
    kinds = pieces.kinds[program.held].sum(axis=1)
    first, last = (np.minimum(end[program.held].sum(axis=1), 1.0)[:, None] for end in (pieces.first, pieces.last))
    stages = Stages(
        index=np.arange(program.pp, dtype=np.float64)[:, None],
        kinds=tuple(kinds[:, k : k + 1] for k in range(kinds.shape[1])),
        layers=kinds.sum(axis=1)[:, None],
        first=first,
        last=last,
    )
    return replace(work, stages=stages, parameters=stage_parameters(work.counts, work.layout, stages))
