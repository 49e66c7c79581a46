"""Ranks forked from one process: their results, and what is told when one of them fails."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from shardwise.runtime.train.fork import forked  # noqa: E402


def test_results_come_by_rank() -> None:
    def work(rank: int) -> float:
        mine = torch.tensor(float(rank))
        dist.all_reduce(mine)
        return 10.0 * rank + float(mine)

    assert forked(3, work) == [3.0, 13.0, 23.0]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_ends_those_that_wait_for_it(failing: int) -> None:
    """gloo alone would let them wait for half an hour; the failure's own words are told, not theirs."""

    def work(rank: int) -> None:
        if rank == failing:
            raise ValueError("out of luck")
        dist.barrier()
        dist.barrier()

    with pytest.raises(RuntimeError, match=f"rank {failing} failed(.|\n)*out of luck"):
        forked(2, work)
