"""The textbook pipeline in whole time steps, in which a GPU may do one forward and one backward in the same step."""

import numpy as np
from numpy.typing import NDArray


def active_shares(stages: int, micro_batches: int) -> NDArray[np.float64]:
    """Share of the GPUs at work in each time step.

    Micro-batch j reaches stage i in step i + j. Its backward leaves the last stage in the step its forward arrives
    there, and goes up one stage a step.
    """
    stage, batch = np.meshgrid(np.arange(stages), np.arange(micro_batches), indexing="ij")
    forward = stage + batch
    backward = 2 * (stages - 1) - stage + batch
    active = np.zeros((stages, 2 * (stages - 1) + micro_batches), dtype=bool)
    for step in (forward, backward):
        active[stage, step] = True
    return np.asarray(active.mean(axis=0))
