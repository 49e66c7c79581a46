"""Tokens cut into windows that are dealt out in an order anyone can repeat."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shardwise.run.runtime.data.shuffled import ShuffleOrder
from shardwise.run.runtime.data.source import fingerprint_of, spread
from shardwise.run.runtime.data.texts import Tokens

HELD_OUT = 20
"""one window in so many is kept for evaluation"""


class Windows:
    """Sample i of an endless stream: a window of seq + 1 tokens. Every epoch visits each window once, newly shuffled.

    `tokens` may be memory-mapped: a sample reads its own part of it."""

    def __init__(
        self, tokens: Tokens, seq: int, seed: int, *, name: str, part: str = "all", field: str = "data"
    ) -> None:
        self.tokens, self.seq = tokens, seq
        found = (len(tokens) - 1) // seq
        if found < 1:
            raise ValueError(f"{field}: {name} has {len(tokens):,} tokens; seq {seq} needs at least {seq + 1}")
        kept = max(found // HELD_OUT, 1)
        if part != "all" and found <= kept:
            raise ValueError(
                f"eval-every: {name} has {found} window of {seq} tokens, none can be held out; write --eval-data FILE"
            )
        self.first = found - kept if part == "held out" else 0
        self.windows = {"all": found, "trained": found - kept, "held out": kept}[part]
        self.order = ShuffleOrder(self.windows, seed)

    def sample(self, index: int) -> NDArray[np.int64]:
        return self._window(self.order.row(index))

    def _window(self, number: int) -> NDArray[np.int64]:
        first = (self.first + number) * self.seq
        return np.asarray(self.tokens[first : first + self.seq + 1], dtype=np.int64)

    def batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        rows = torch.from_numpy(np.stack([self.sample(first + i) for i in range(count)], axis=1))
        return rows[:-1], rows[1:]

    def fingerprint(self) -> str:
        return fingerprint_of(self.windows, (self._window(i) for i in spread(self.windows)))
