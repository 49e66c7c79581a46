"""Nearest policies that fit: they are legal, they fit, and a smaller change that would do is not passed over."""

import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, report_of, stack_of
from shardwise.plan.that_fit import policies_that_fit
from shardwise.spec.policy import Policies
from shardwise.spec.rules import verdict_of

CASE = case_of(
    model_of("llama-3-70b"), cluster_of("dgx-h100:64"), Job(seq=8192, global_batch=512), stack_of("megatron-core")
)
FULL = Policy(dp=8, tp=8, sp=True, micro_batch=4)


def test_they_are_legal_fit_and_come_with_their_step():
    assert not report_of(CASE, FULL).fits
    found = policies_that_fit(CASE, FULL)
    assert 1 <= len(found) <= 4
    assert [each.step_s for each in found] == sorted(each.step_s for each in found)
    for each in found:
        assert verdict_of(CASE.model, CASE.cluster, CASE.job, each.policy).legal
        report = report_of(CASE, each.policy)
        assert report.fits
        assert report.step_s == pytest.approx(each.step_s)
        differ = {n for n in Policies.__dataclass_fields__ if getattr(each.policy, n) != getattr(FULL, n)}
        # overlaps follow what the program runs
        assert differ - {"dp", "sp", "recompute_layers", "recompute_modules", "overlap_pp"} == set(each.changed)


def test_one_change_that_is_cheap_is_enough():
    roomy = Policy(dp=4, tp=8, pp=2, sp=True, micro_batch=2)
    found = policies_that_fit(CASE, roomy) if not report_of(CASE, roomy).fits else []
    assert all(len(each.changed) == 1 for each in found if each.step_s <= 1.1 * report_of(CASE, roomy).step_s)


def test_none_where_the_model_is_too_large():
    small = case_of(
        model_of("llama-3.1-405b"), cluster_of("8xh100"), Job(seq=8192, global_batch=512), stack_of("megatron-core")
    )
    assert policies_that_fit(small, Policy(dp=8)) == []
