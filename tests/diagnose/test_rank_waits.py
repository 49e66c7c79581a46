"""Several ranks: the link that is slow, ranks that share nothing, and groups that see only a part of the job."""

import pytest

from shardwise.measured.diagnose.device_trace import RankTrace, SpanName
from shardwise.measured.diagnose.rank_waits import waits_of
from shardwise.programs.importers.device_events import SpanCollector

CALLS = 6


def rank_of(number: int, groups: list[tuple[int, ...]], transfer: dict[tuple[int, ...], float], clock: float = 0.0
            ) -> RankTrace:  # fmt: skip
    """One all-reduce in each of its groups in turn, every 100 ms, all arriving at once."""
    spans, at = SpanCollector(), clock
    for call in range(CALLS):
        for group in groups:
            if number in group:
                name = SpanName(kind="comm", name="nccl", op="all_reduce", group_size=len(group), ranks=group)
                spans.told[len(spans.start)] = call, 1000.0
                spans.add(at, at + transfer.get(group, 0.010), spans.index_of(name))
            at += 0.1
    return spans.trace(f"rank{number}", rank=number, world=8, device="")


PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_pair_that_takes_longer_than_its_peers():
    traces = [rank_of(number, PAIRS, {(4, 5): 0.025}, clock=number * 3.0) for number in range(8)]
    found = waits_of(traces)
    (slow,) = found.slow_groups
    assert (slow.ranks, slow.op) == ((4, 5), "all_reduce")
    assert slow.times == pytest.approx(2.5)
    assert found.culprit is None


def test_pairs_that_are_alike_have_no_slow_one():
    assert waits_of([rank_of(number, PAIRS, {}) for number in range(8)]).slow_groups == ()


def test_two_groups_are_too_few_to_call_one_slow():
    traces = [rank_of(number, PAIRS[:2], {(0, 1): 0.05}) for number in range(4)]
    assert waits_of(traces).slow_groups == ()


def test_ranks_without_a_common_collective():
    found = waits_of([rank_of(0, PAIRS, {}), rank_of(2, PAIRS, {})])
    assert (found.shared, found.culprit) == (0, None)


def test_calls_without_numbers_are_matched_in_order():
    def unnumbered(late: float) -> RankTrace:
        spans = SpanCollector()
        name = SpanName(kind="comm", name="gloo:all_reduce", op="all_reduce")
        for call in range(CALLS):
            spans.add(call + late, call + 0.5, spans.index_of(name))
        return spans.trace("rank", rank=None, world=None, device="")

    found = waits_of([unnumbered(0.0), unnumbered(0.3), unnumbered(0.0)])
    assert found.culprit == 1
    assert found.caused_s[1] == pytest.approx(0.3 * CALLS)
