"""A schedule's order as tasks: who computes what, and which piece on another rank each one waits for."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.plugins.schedules import held_pieces, schedules
from shardwise.step.tasks.engine import Tasks

CODES = {"F": 0, "B": 1, "I": 2, "W": 3}
FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(4)
MOST_TASKS = 1_000_000
"""beyond this a step takes seconds to lay out, and nobody can look at it"""


@dataclass(frozen=True)
class Program:
    """One row per task of one pipeline; lanes are the ranks."""

    schedule: str
    pp: int
    stages: int
    """pieces the model is cut into"""
    held: Ints
    """ranks x chunks: which piece that is"""
    micro_batches: int
    tasks: Tasks
    rank: Ints
    kind: Ints
    micro_batch: Ints
    chunk: Ints
    stage: Ints
    needs: Ints
    """the task on another piece whose result this one uses, or -1"""
    crosses: NDArray[np.bool_]
    """that task is on another rank, so its result has to be sent"""
    done: Ints
    """the task at whose end this one's result is there: itself, or the one it runs together with"""
    need_source: Ints
    """per need of `tasks`: the task whose result is waited for"""

    @cached_property
    def waiting(self) -> Ints:
        """Per need of `tasks`: who waits."""
        return np.repeat(np.arange(len(self.rank)), np.diff(self.tasks.need_start))

    @cached_property
    def apart(self) -> NDArray[np.bool_]:
        """Per need of `tasks`: the result comes from another rank."""
        return np.asarray(self.rank[self.need_source] != self.rank[self.waiting])

    @cached_property
    def finishes_gradient(self) -> NDArray[np.bool_]:
        """Tasks after which a micro-batch's weight gradients of a chunk are there."""
        return np.asarray((self.kind != FORWARD) & (self.kind != INPUT_GRADIENT))

    @cached_property
    def first_forwards(self) -> Ints:
        """ranks x chunks"""
        return self._edges(np.flatnonzero(self.kind == FORWARD)[::-1])

    @cached_property
    def last_gradients(self) -> Ints:
        """ranks x chunks: the last tasks that finish gradients"""
        return self._edges(np.flatnonzero(self.finishes_gradient))

    def _edges(self, tasks: Ints) -> Ints:
        """ranks x chunks: the last in the list of each chunk's."""
        found = np.empty(self.held.shape, dtype=np.int64)
        found[self.rank[tasks], self.chunk[tasks]] = tasks
        return found


def program_of(name: str, pp: int, vpp: int, micro_batches: int, passes: int = 1) -> Program:
    """`passes`: how often all that is done, one after the other."""
    return _program(name, pp, vpp, micro_batches, passes)


@lru_cache(maxsize=64)
def _program(name: str, pp: int, vpp: int, micro_batches: int, passes: int) -> Program:
    schedule = schedules()[name]
    reason = schedule.legal(pp, vpp, micro_batches)
    if reason:
        raise ValueError(reason)
    tasks = 2 * pp * vpp * micro_batches * passes
    if tasks > MOST_TASKS:
        raise ValueError(
            f"global-batch: {micro_batches * passes:,} micro-batches on {pp} x {vpp} pieces are {tasks:,} tasks; write "
            f"a larger --micro or a smaller --global-batch for at most {MOST_TASKS:,}"
        )
    orders = schedule.order(pp, vpp, micro_batches)
    if passes > 1:
        later = [number * micro_batches for number in range(passes)]
        orders = [[a._replace(micro_batch=a.micro_batch + past) for past in later for a in order] for order in orders]
        micro_batches *= passes
    held = held_pieces(name, pp, vpp)
    lengths = [len(order) for order in orders]
    actions = [action for order in orders for action in order]
    kind, batch, chunk, joined = (
        np.array(column, dtype=np.int64)
        for column in (
            [CODES[action.kind] for action in actions],
            [action.micro_batch for action in actions],
            [action.chunk for action in actions],
            [action.joined for action in actions],
        )
    )
    rank = np.repeat(np.arange(pp), lengths)
    stage = held[rank, chunk]
    needs = _needs(kind, stage, batch, micro_batches, int(held.max()) + 1)
    index = np.arange(len(kind))
    done = index + joined
    # of two tasks that run together, the first starts no sooner than the second could
    waiting = np.concatenate([index[needs >= 0], index[joined > 0]])
    source = np.concatenate([needs[needs >= 0], needs[index[joined > 0] + 1]])
    waiting, source = waiting[source >= 0], source[source >= 0]
    by_task = np.argsort(waiting, kind="stable")
    waiting, source = waiting[by_task], source[by_task]
    starts = np.concatenate([[0], np.cumsum(np.bincount(waiting, minlength=len(kind)))])
    return Program(
        schedule=name, pp=pp, stages=int(held.max()) + 1, held=held, micro_batches=micro_batches,
        tasks=Tasks(np.cumsum([0, *lengths]), starts, done[source]), rank=rank, kind=kind, micro_batch=batch,
        chunk=chunk, stage=stage, needs=needs, crosses=(needs >= 0) & (rank[needs] != rank), done=done,
        need_source=source,
    )  # fmt: skip


def _needs(kind: Ints, stage: Ints, batch: Ints, micro_batches: int, stages: int) -> Ints:
    """A forward uses the one before it, a backward (its input gradient) the one behind it. What a rank needs of itself
    its order already puts first."""
    key = stage * micro_batches + batch
    index = np.arange(len(kind))
    ahead, back = kind == FORWARD, (kind == BACKWARD) | (kind == INPUT_GRADIENT)
    forwards, backwards = (np.full(stages * micro_batches, -1, dtype=np.int64) for _ in range(2))
    forwards[key[ahead]], backwards[key[back]] = index[ahead], index[back]
    needs = np.full(len(kind), -1, dtype=np.int64)
    fed = ahead & (stage > 0)
    needs[fed] = forwards[key[fed] - micro_batches]
    fed = back & (stage < stages - 1)
    needs[fed] = backwards[key[fed] + micro_batches]
    return needs
