"""Differences between two policies, and verdicts."""

import pytest

from shardwise.question.studies.build import report_of
from shardwise.question.studies.why import because, waterfall, why_not, why_slower
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

GIVEN = (model_of("llama-3-8b"), cluster_of("dgx-h100:16"), Job(seq=8192, global_batch=64))


def report(**fields):
    return report_of(case_of(*GIVEN, stack_of("megatron-core")), Policy(**fields))


def test_the_parts_add_up_to_the_difference():
    fast, slow = report(dp=8, tp=2), report(dp=4, tp=4, recompute="full")
    found = waterfall(fast, slow)
    assert sum(item.seconds for item in found) == pytest.approx(slow.step_s - fast.step_s)
    assert [item.seconds for item in found] == sorted((item.seconds for item in found), reverse=True)
    assert found[0].part == "recompute"
    assert "recompute +" in because(found, fast.step_s)
    assert why_slower(fast, fast) == "as fast"
    assert why_slower(fast, slow).startswith(f"step {slow.step_s / fast.step_s - 1:+.1%}: ")


def test_verdicts():
    fast, slow = report(dp=8, tp=2), report(dp=4, tp=4, recompute="full")
    room = max(fast.peak_bytes, slow.peak_bytes)
    assert why_not(fast, slow, room).verdict == "slower"
    assert why_not(slow, fast, room).verdict == "faster"
    assert why_not(fast, fast, room).verdict == why_not(None, fast, room).verdict == "it wins"
    over = why_not(fast, slow, slow.peak_bytes - 3 * 2**30)
    assert over.verdict == "out of memory"
    assert over.why == f"out of memory by 3.0 GiB on stage {slow.fullest_stage}: {slow.largest_kind}"
    assert over.over_bytes == pytest.approx(3 * 2**30)
