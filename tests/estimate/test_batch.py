import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwise.step.estimate.batch import batch_of, data_parallel, divisors, splits

small = st.integers(1, 300)


@given(small, small, small, small)
def test_any_missing_part_is_recovered(seq, micro, accumulation, dp):
    whole = batch_of(seq=seq, micro_batch=micro, accumulation=accumulation, dp=dp)
    assert whole.global_batch == micro * accumulation * dp
    assert whole.tokens == whole.global_batch * seq
    parts = {"micro_batch": micro, "accumulation": accumulation, "dp": dp}
    for missing in parts:
        rest = {name: value for name, value in parts.items() if name != missing}
        assert batch_of(seq=seq, global_batch=whole.global_batch, **rest) == whole


@given(st.integers(1, 10**6), small, small)
def test_a_batch_that_does_not_divide_names_values_that_do(global_batch, micro, dp):
    assume(global_batch % (micro * dp))
    with pytest.raises(ValueError, match="do not divide") as refusal:
        batch_of(seq=8, global_batch=global_batch, micro_batch=micro, dp=dp)
    cure = str(refusal.value).split("; write ")[1].split(", or ")[0]
    for offered in cure.split(" or "):
        batch_of(seq=8, global_batch=int(offered.replace(",", "")), micro_batch=micro, dp=dp)


def test_the_cure_offers_other_micro_batches():
    with pytest.raises(ValueError, match=r"write 1,920 or 2,112, or micro 2 or 4$"):
        batch_of(seq=4096, global_batch=2048, micro_batch=3, dp=64)


def test_what_is_left_goes_into_accumulation():
    assert batch_of(seq=4096, global_batch=2048, dp=64).accumulation == 32
    assert batch_of(seq=4096, global_batch=2048, dp=64).micro_batch == 1
    assert batch_of(seq=4096).global_batch == 1


def test_all_parts_given_must_multiply():
    with pytest.raises(ValueError, match=r"= 16; write 16"):
        batch_of(seq=1, global_batch=15, micro_batch=2, accumulation=2, dp=4)


def test_data_parallel_is_what_the_model_leaves():
    assert data_parallel(2048, tp=8, pp=16) == 16
    with pytest.raises(ValueError, match="write 96 or 128"):
        data_parallel(100, tp=8, pp=4)


@pytest.mark.parametrize("bad", [0, -1, 10**13])
def test_out_of_range_is_refused(bad):
    with pytest.raises(ValueError, match="out of range"):
        batch_of(seq=4096, global_batch=bad)
    with pytest.raises(ValueError, match="out of range"):
        batch_of(seq=bad)


@given(st.integers(1, 5000))
def test_divisors_are_all_of_them(number):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_splits_are_legal_and_complete():
    assert splits(24, 2) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert splits(25, 2) == []
