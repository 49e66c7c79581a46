"""Memory over time: what each forward adds and each backward frees.

A forward allocates everything it saves when it starts; a whole backward frees it when it ends. Where the backward is
split, the input gradient leaves the products' inputs and output gradients, which the weight gradient frees. The head's
logits are there while the head runs: the loss turns them into their gradient at once. Where all forwards come first
they wait for it.
"""

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.step.simulate.costs import RankMemory
from shardwise.step.simulate.timeline import MEMORY, MemorySteps
from shardwise.step.tasks.engine import EngineRun
from shardwise.step.tasks.program import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Program

Step = tuple[Ints, Floats, int, Floats]
"""ranks, times, kind, bytes"""


def memory_steps(program: Program, run: EngineRun, held: RankMemory, ranks: Ints) -> MemorySteps:
    """`ranks`: the number each of the program's ranks has in the timeline."""
    steps = [*_static(held, ranks), *_activations(program, run, held, ranks)]
    if held.fragmentation:
        overhead = MEMORY.index("overhead")
        steps += [(r, t, overhead, b * held.fragmentation) for r, t, _, b in _activations(program, run, held, ranks)]
    return MemorySteps(
        rank=np.concatenate([step[0] for step in steps]),
        time_s=np.concatenate([step[1] for step in steps]),
        kind=np.concatenate([np.full(len(step[0]), step[2], dtype=np.int64) for step in steps]),
        bytes=np.concatenate([step[3] for step in steps]),
    )


def _static(held: RankMemory, ranks: Ints) -> list[Step]:
    zero = np.zeros(len(ranks))
    return [(ranks, zero, MEMORY.index(kind), size) for kind, size in held.static.items()]


def _activations(program: Program, run: EngineRun, held: RankMemory, ranks: Ints) -> list[Step]:
    kind, rank = program.kind, program.rank
    saved, deferred = held.saved[rank, program.chunk], held.deferred[rank, program.chunk]
    activations, logits = MEMORY.index("activations"), MEMORY.index("logits")
    forward, whole, back, weight = (kind == k for k in (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT))
    freed = np.select([whole, back, weight], [saved, saved - deferred, deferred], 0.0)
    named = ranks[rank]
    steps: list[Step] = [
        (named[forward], run.start[forward], activations, saved[forward]),
        (named[~forward], run.end[~forward], activations, -freed[~forward]),
    ]
    running = whole | back
    last = program.stage == program.stages - 1
    # (begins with, ends with, kind, bytes)
    spells = [(running, running, activations, held.once[rank])]
    head = last & (forward | running)
    spells.append((last & forward, last & running, logits, held.logits[rank]) if held.piles_up
                  else (head, head, logits, held.logits[rank]))  # fmt: skip
    for begins, ends, kind_, size in spells:
        if size[begins].any():
            steps.append((named[begins], run.start[begins], kind_, size[begins]))
            steps.append((named[ends], run.end[ends], kind_, -size[ends]))
    return steps
