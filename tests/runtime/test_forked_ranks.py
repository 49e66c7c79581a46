"""Ranks forked from one process: their results, and what is told when one of them fails."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from shardwise.run.runtime.train.fork import forked  # noqa: E402


def test_results_come_by_rank() -> None:
    def work(rank: int) -> float:
        mine = torch.tensor(float(rank))
        dist.all_reduce(mine)
        return 10.0 * rank + float(mine)

    assert forked(3, work) == [3.0, 13.0, 23.0]


def test_ranks_that_wait_for_each_other_are_ended_with_the_line_they_are_in(monkeypatch) -> None:
    """One rank sends a message more than the other takes: each waits in another operation."""
    monkeypatch.setattr("shardwise.run.runtime.train.idle.IDLE_S", 3.0)

    def work(rank: int) -> None:
        for _ in range(2 - rank):
            dist.all_reduce(torch.zeros(1))

    with pytest.raises(RuntimeError, match=r"rank 0 in work \(test_forked_ranks\.py:\d+\)"):
        forked(2, work)


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
