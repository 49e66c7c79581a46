"""An endless order over rows that anyone can repeat: every epoch visits each once, newly shuffled by seed and epoch."""

import numpy as np
from numpy.typing import NDArray


class ShuffleOrder:
    def __init__(self, rows: int, seed: int) -> None:
        self.rows, self.seed = rows, seed
        self._epoch = -1
        self._order: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def row(self, index: int) -> int:
        epoch, place = divmod(index, self.rows)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.rows)
        return int(self._order[place])
