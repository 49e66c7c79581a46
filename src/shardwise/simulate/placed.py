"""Which layers each piece of the model holds, and the work of each rank as rows for the closed form's functions."""

from dataclasses import dataclass, replace

import numpy as np

from shardwise.simulate.engine import Floats, Ints
from shardwise.simulate.program import Program
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import Stack
from shardwise.work import Work, work_of
from shardwise.work.parameters import stage_parameters
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
    """`rank_layers`: consecutive layers of each rank; its chunks share them evenly, the middle ones what is left."""
    ends = np.cumsum(rank_layers)
    pattern = np.array(model.pattern, dtype=np.int64)
    kinds = np.zeros((program.stages, len(model.kinds)))
    twice = program.stages < program.held.size
    for rank, held in enumerate(program.held):
        # where the model is there twice a rank's first chunk is its own part and the second its mirror's
        mine = held[:1] if twice else held
        low = int(ends[rank] - rank_layers[rank])
        cuts = low + _even_cuts(int(rank_layers[rank]), len(mine))
        for chunk, stage in enumerate(mine):
            kinds[stage] = np.bincount(pattern[cuts[chunk] : cuts[chunk + 1]], minlength=len(model.kinds))
    first, last = np.zeros(program.stages), np.zeros(program.stages)
    first[0], last[-1] = 1.0, 1.0
    return Pieces(kinds=kinds, first=first, last=last)


def _even_cuts(layers: int, parts: int) -> Ints:
    base, extra = divmod(layers, parts)
    index = np.arange(parts + 1)
    return np.asarray(base * index + np.clip(index - (parts - extra) // 2, 0, extra))


def rank_work(model: Model, job: Job, policy: Policy, stack: Stack, program: Program, pieces: Pieces) -> Work:
    """The work of one policy with one row per rank, so that the closed form's own functions price each rank."""
    rows = Policies.of([policy] * program.pp)
    work = work_of(model, job, rows, stack, every_stage=False)
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
