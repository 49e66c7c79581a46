"""A step of very many micro-batches: some are run, the rest is in proportion."""

import pytest

from shardwise.question.studies.fabric.build import fabric_report
from shardwise.question.studies.fabric.whatif import rows_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of


def studied():
    job, policy = Job(seq=4096, global_batch=16 * 64), Policy(tp=2, pp=2, dp=16)
    return fabric_report(
        case_of(model_of("llama-3.2-1b"), cluster_of("dgx-h100:64"), job, stack_of("megatron-core")), policy
    )


def test_the_extended_step_is_the_whole_one(monkeypatch):
    whole = studied()
    assert not whole.loop.note
    monkeypatch.setattr("shardwise.question.studies.fabric.loop.MOST_TASKS", 100)
    some = studied()
    assert len(some.loop.simulation.program.rank) <= 100 < len(whole.loop.simulation.program.rank)
    assert some.report.step_s == pytest.approx(whole.report.step_s, rel=0.01)
    assert any("24 of 64 micro-batches" in line for line in some.report.assumptions)
    assert some.report.links[0].share == pytest.approx(whole.report.links[0].share, rel=0.01)
    rows = {row.name: row for row in rows_of(some)}
    assert rows["as planned"].step_s == pytest.approx(some.report.step_s)
    assert rows["slow link"].growth > 0
