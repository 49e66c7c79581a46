"""Padding, packing, dynamic context parallelism and waiting, against a count by hand with prices that are plain."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.lengths import DataLengths, lengths_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.lengths import lengths_report
from shardwise.step.estimate.lengths.prices import MicroBatchPrices, TokenPrices
from shardwise.step.estimate.lengths.waits import dealt_evenly, dealt_out
from shardwise.step.estimate.lengths.ways import GroupPrices, group_sizes, packed, padded, spread
from shardwise.work.case import Case, case_of

SEQ = 64
ENDS = np.array([0.0, 10_000.0])
BY_TOKEN = TokenPrices(ENDS, np.array([1.0, 1.0]))
"""a second for each token"""
lengths_drawn = st.lists(st.integers(1, SEQ), min_size=1, max_size=30)


def by_length(sequences: int) -> MicroBatchPrices:
    return MicroBatchPrices(ENDS, sequences * ENDS)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_padded_steps(seed: int, ranks: int, micro: int, several: int, lockstep: bool) -> None:
    drawn = np.random.default_rng(seed).integers(1, SEQ, (3, ranks, micro, several))
    steps, busy = [], []
    for step in drawn.tolist():
        tokens = [[several * max(sequences) for sequences in rank] for rank in step]
        busy.append(sum(map(sum, tokens)) / ranks)
        if lockstep:
            steps.append(sum(max(rank[i] for rank in tokens) for i in range(micro)))
        else:
            steps.append(max(map(sum, tokens)))
    found = padded(by_length(several), drawn, lockstep)
    assert found.slowest == pytest.approx(sum(steps) / 3)
    assert found.waiting == pytest.approx(sum(steps) / sum(busy) - 1)


@given(lengths_drawn, st.integers(1, 4), st.integers(1, 2))
def test_packed_steps(lengths: list[int], ranks: int, several: int) -> None:
    """All of every buffer is computed, so that only their number counts: the ranks with one more are waited for."""
    order = np.random.default_rng(0)
    found = packed(BY_TOKEN, [np.array(lengths)], Policy(dp=ranks, micro_batch=several), SEQ, False, order)
    buffers = round(found.buffers)
    assert buffers == found.buffers
    assert -(-sum(lengths) // SEQ) <= buffers <= len(lengths)
    assert found.filled == pytest.approx(sum(lengths) / (buffers * SEQ))
    assert found.dealt.mean == pytest.approx(buffers * SEQ / ranks)
    assert found.dealt.slowest == pytest.approx(-(-buffers // ranks) * SEQ)


def fewest_ranks(length: int, sizes: tuple[int, ...], room: int) -> int:
    return next(size for size in sizes if length <= size * room)


@given(lengths_drawn, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 6]))
def test_sequences_are_shared_by_the_fewest_ranks_with_room(lengths: list[int], dp: int, cp: int) -> None:
    sizes, room, ranks = group_sizes(Policy(cp=cp)), -(-SEQ // cp), dp * cp
    groups = [GroupPrices(size, room * size, BY_TOKEN if size == 1 else by_length_shared(size)) for size in sizes]
    for lockstep in (False, True):
        found = spread(groups, [np.array(lengths)], ranks, lockstep)
        wanted = [fewest_ranks(length, sizes, room) for length in lengths]
        assert found.shares == {size: wanted.count(size) / len(lengths) for size in sizes}
        assert found.dealt.mean == pytest.approx(sum(lengths) / ranks)
        longest = max(length / size for length, size in zip(lengths, wanted, strict=True))
        assert max(longest, found.dealt.mean) <= found.dealt.slowest * (1 + 1e-9)
        assert found.dealt.slowest <= found.dealt.mean + room + 1e-9 or lockstep


def by_length_shared(size: int) -> MicroBatchPrices:
    return MicroBatchPrices(ENDS, ENDS / size)


pieces_drawn = st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 9)), min_size=1, max_size=5)


@given(pieces_drawn)
@settings(max_examples=60, deadline=None)
def test_dealing_out_takes_less_than_twice_the_best(pieces: list[tuple[int, int]]) -> None:
    """Every order of the pieces, each to the aligned group that is ready first, on four ranks."""

    def ready(order: tuple[tuple[int, int], ...]) -> float:
        loads = [0.0] * 4
        for size, seconds in order:
            first = min(range(0, 4, size), key=lambda at: max(loads[at : at + size]))
            start = max(loads[first : first + size])
            loads[first : first + size] = [start + seconds] * size
        return max(loads)

    best = min(map(ready, permutations(pieces)))
    found = dealt_evenly([(size, float(seconds)) for size, seconds in pieces], 4, lockstep=False)
    assert best - 1e-9 <= found.slowest < 2 * best
    assert dealt_evenly([(s, float(t)) for s, t in pieces], 4, lockstep=True).slowest >= found.slowest - 1e-9


def test_waves_are_as_long_as_their_longest() -> None:
    """Four ranks: a pair and two single ones, then two single ones and nobody else."""
    pieces = [(1, 3.0), (2, 5.0), (1, 2.0), (1, 4.0), (1, 1.0)]
    assert dealt_evenly(pieces, 4, lockstep=True).slowest == 5.0 + 2.0
    assert dealt_out(np.array([[1.0, 4.0], [3.0, 1.0]]), lockstep=True).slowest == 3.0 + 4.0
    assert dealt_out(np.array([[1.0, 4.0], [3.0, 1.0]]), lockstep=False).slowest == 5.0


@pytest.mark.parametrize(("cp", "sizes"), [(1, (1,)), (2, (1, 2)), (8, (1, 2, 4, 8)), (6, (1, 2, 6)), (3, (1, 3))])
def test_groups_divide_each_other(cp: int, sizes: tuple[int, ...]) -> None:
    assert group_sizes(Policy(cp=cp)) == sizes


def long_case(batch: int = 32, seq: int = 65536) -> Case:
    job = Job(seq=seq, global_batch=batch)
    return case_of(model_of("llama-3-8b"), cluster_of("4x8xh100"), job, stack_of("megatron-core"))


def test_short_sequences_need_no_ring() -> None:
    """Of data that is mostly short, dynamic context parallelism saves what the ring costs; of long data nothing."""
    policy = Policy(dp=4, cp=8, zero=1)
    short = lengths_report(long_case(256), policy, lengths_of("uniform,low=2000,high=8000"))
    assert short.dynamic_shares == {1: 1.0, 2: 0.0, 4: 0.0, 8: 0.0}
    assert short.dynamic_saves > 0.02
    long_ = lengths_report(long_case(), policy, DataLengths(name="long", counted=(65536,)))
    assert long_.dynamic_shares == {1: 0.0, 2: 0.0, 4: 0.0, 8: 1.0}
    assert long_.dynamic_step_s == pytest.approx(long_.packed_step_s, rel=1e-9)
    assert long_.dynamic_step_s == pytest.approx(long_.longest_step_s, rel=1e-9)


def test_facts_of_a_file_are_counted() -> None:
    counted = (10, 20, 30, 5000, 70000)
    found = lengths_report(long_case(), Policy(dp=4, cp=8, zero=1), DataLengths(name="file", counted=counted))
    kept = [min(n, 65536) for n in counted]
    assert found.mean_tokens == sum(kept) / 5
    assert (found.median_tokens, found.longest_tokens, found.cut) == (30, 65536, 0.2)
    assert found.attended_tokens == pytest.approx(sum(n * n for n in kept) / sum(kept))


@pytest.mark.parametrize("text", ["lognormal,mean=600,sigma=1.5", "uniform,low=100,high=2000"])
def test_share_that_is_cut(text: str) -> None:
    lengths = lengths_of(text)
    drawn = lengths.drawn(400_000, 10**8, np.random.default_rng(3))
    for seq in (50, 500, 1500, 3000):
        assert lengths.longer_than(seq) == pytest.approx(float((drawn > seq).mean()), abs=0.003)
