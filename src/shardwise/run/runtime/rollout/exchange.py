"""What passes between trainer and engines each step, besides weights: orders to roll out, and answers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from shardwise.run.runtime.rollout.bridge import Bridge

ORDERS, ANSWERS = "orders", "answers"
SPENT = 2
"""numbers beside an engine's answers: its seconds, and the bytes that its ranks sent"""


class StepOrders:
    """From the trainer's first rank to all ranks that only roll out: answer the steps [first, end); none: the end."""

    def __init__(self, bridge: Bridge, rolling: Sequence[int]) -> None:
        self.bridge, self.rolling = bridge, rolling

    def give(self, steps: range) -> None:
        order = torch.tensor([steps.start, steps.stop])
        self.bridge.exchange(ORDERS, [(rank, order) for rank in self.rolling])

    def take(self) -> range:
        order = torch.zeros(2, dtype=torch.int64)
        self.bridge.exchange(ORDERS, [], [(0, order)])
        return range(*order.tolist())


def give_answers(bridge: Bridge, table: Tensor, seconds: float, sent: float) -> None:
    """To the trainer's first rank."""
    spent = torch.tensor([seconds, sent], dtype=torch.float64)
    bridge.exchange(ANSWERS, [(0, torch.cat([table.flatten(), spent]))])


def take_answers(bridge: Bridge, leaders: Sequence[int], rows: int, width: int) -> tuple[Tensor, float, float]:
    """The answers of all engines in their order, the longest time, and the bytes that engines sent among themselves."""
    tables = [torch.empty(rows * width + SPENT, dtype=torch.float64) for _ in leaders]
    bridge.exchange(ANSWERS, [], list(zip(leaders, tables, strict=True)))
    spent = torch.stack([table[-SPENT:] for table in tables])
    answers = torch.cat([table[:-SPENT].view(rows, width) for table in tables])
    return answers, float(spent[:, 0].max()), float(spent[:, 1].sum())
