"""Sequences of different lengths: padding, packing, and who waits for whom."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.lengths import DataLengths, lengths_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.lengths import lengths_report
from shardwise.step.estimate.lengths.ways import buffers_of
from shardwise.work.case import Case, case_of

SEQ = 4096


def case(batch: int = 64, seq: int = SEQ) -> Case:
    job = Job(seq=seq, global_batch=batch)
    return case_of(model_of("llama-3-8b"), cluster_of("8xh100"), job, stack_of("megatron-core"))


def alike(*lengths: int) -> DataLengths:
    return DataLengths(name="some", counted=lengths)


@pytest.mark.parametrize("policy", [Policy(dp=8, zero=3, micro_batch=2), Policy(dp=2, tp=4, sp=True),
                                    Policy(dp=2, pp=4, recompute="full")])  # fmt: skip
def test_sequences_of_one_length_take_the_step_of_the_job(policy: Policy) -> None:
    found = lengths_report(case(), policy, alike(SEQ))
    step = float(estimate(case(), Policies.of([policy])).times.step_s[0])
    assert found.padding == 0.0
    assert found.padded_waiting == pytest.approx(0.0, abs=1e-12)
    assert found.padded_step_s == pytest.approx(step, rel=1e-9)
    assert found.packed_step_s == pytest.approx(step, rel=1e-9)
    assert (found.filled, found.sequences_per_buffer) == (1.0, 1.0)


def test_padding_is_up_to_the_longest_of_a_micro_batch() -> None:
    """Of two sequences of 100 or 300 tokens three in four pairs have a long one: 250 on average, 200 of data."""
    found = lengths_report(case(), Policy(dp=8, zero=3, micro_batch=2), alike(100, 300))
    assert found.padding == pytest.approx(0.2, abs=0.01)
    assert lengths_report(case(), Policy(dp=8, zero=3), alike(100, 300)).padding == 0.0


def test_all_wait_for_the_rank_with_the_longest() -> None:
    """One sequence for each of 8 ranks: all but one step in 256 has a long one."""
    short, long_, mixed = (
        lengths_report(case(8), Policy(dp=8, zero=3), lengths) for lengths in (alike(512), alike(SEQ), alike(512, SEQ))
    )
    assert mixed.padded_step_s == pytest.approx(long_.padded_step_s, rel=0.02)
    mean = (short.padded_step_s + long_.padded_step_s) / 2
    assert 1.0 + mixed.padded_waiting == pytest.approx(long_.padded_step_s / mean, rel=0.08)


def test_more_micro_batches_even_it_out_unless_ranks_meet_in_each() -> None:
    few, many = (lengths_report(case(batch), Policy(dp=8, zero=1), alike(512, SEQ)) for batch in (8, 512))
    assert many.padded_waiting < few.padded_waiting / 3
    few, many = (lengths_report(case(batch), Policy(dp=8, zero=3), alike(512, SEQ)) for batch in (8, 512))
    assert many.padded_waiting == pytest.approx(few.padded_waiting, rel=0.15)


def test_packing_saves_padding_and_the_squares_of_attention() -> None:
    policy = Policy(dp=8, zero=3, micro_batch=8, recompute="full")
    lengths = lengths_of("lognormal,mean=500,sigma=1")
    found = lengths_report(case(512), policy, lengths)
    assert found.filled > 0.99
    assert found.packing_saves > found.padding
    assert found.packed_waiting < found.padded_waiting


def test_attention_of_packed_sequences_follows_their_squares() -> None:
    """At 64k tokens attention takes most of the step; in sequences of a sixteenth it takes a sixteenth."""
    policy, long_ = Policy(dp=8, zero=3, recompute="full"), 65536
    whole = lengths_report(case(8, long_), policy, alike(long_))
    parts = lengths_report(case(128, long_), policy, alike(long_ // 16))
    plain = float(estimate(case(8, 4096), Policies.of([policy])).times.step_s[0]) * 16
    assert parts.packed_step_s < 0.6 * whole.packed_step_s
    assert parts.packed_step_s == pytest.approx(plain, rel=0.15)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200))
def test_buffers_are_never_too_full(lengths: list[int]) -> None:
    tokens = np.array(lengths)
    buffer, number = buffers_of(tokens, 100)
    filled = np.bincount(buffer, weights=tokens, minlength=number)
    assert filled.max() <= 100
    assert filled.min() > 0
    assert number <= 11 / 9 * max(np.ceil(tokens.sum() / 100), (tokens > 50).sum()) + 4


def test_a_file_of_lengths(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("12\n7, 900\n")
    assert lengths_of(str(path)) == DataLengths(name="lengths.txt", counted=(12, 7, 900))


def test_a_lognormal_has_the_stated_mean() -> None:
    drawn = lengths_of("lognormal,mean=600,sigma=0.5").drawn(100_000, 10**8, np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lognormal", "lognormal has no mean"),
        ("lognormal,mean=many,sigma=1", "mean='many' is not a number"),
        ("lognormal,mean=nan,sigma=1", "out of range"),
        ("uniform,low=9,high=3", "low=9, high=3 is out of range"),
        ("uniform,low=1,high=9,mid=3", "cannot read 'mid=3'"),
        ("no-such-file", "there is no file"),
    ],
)
def test_says_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        lengths_of(text)


@pytest.mark.parametrize(("content", "told"), [(b"", "is empty"), (b"12 x", "something else"), (b"5 0", "0 in 'l.txt'"),
                                               (b"\xff", "something else")])  # fmt: skip
def test_files_that_hold_no_lengths(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "l.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=told):
        lengths_of(str(path))
