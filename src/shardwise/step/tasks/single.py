"""One pipeline by itself, timed task by task: for a few policies quicker than laying out levels (`longest`)."""

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.step.tasks.engine import run
from shardwise.step.tasks.program import Program


def timed_alone(program: Program, kinds: Floats, piece: Ints, stopped: float, under_way: float) -> tuple[Floats, ...]:
    """What `longest.Ends` tells, of one policy. `kinds`: seconds, kinds of task x pieces that are not alike; `piece`:
    of each piece of the model, which of those."""
    tasks, rank = program.tasks, program.rank
    sends = np.zeros(len(rank))
    sends[program.needs[program.crosses]] = stopped
    took = kinds[program.kind, piece[program.stage]] + sends
    found = run(tasks, took, np.where(program.apart, under_way, 0.0), np.zeros(len(rank)))
    first, behind = tasks.lane_start[:-1], tasks.lane_start[1:]
    last = found.end[behind - 1]
    begin, finish = program.first_forwards, program.last_gradients
    passed = np.concatenate([[0.0], np.cumsum(took)])
    return (
        found.start[first],
        last,
        passed[behind] - passed[first],
        found.start[begin],
        last[:, None] - found.start[finish],
        passed[behind][:, None] - passed[finish],
    )
