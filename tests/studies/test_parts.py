"""Steps by part of many policies at once: as in each one's own report, and all that a plan's page needs."""

import pytest

from shardwise.question.studies.build import report_of
from shardwise.question.studies.parts import parts_of
from shardwise.show.cli import main
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

POLICIES = [
    Policy(dp=8, tp=2),
    Policy(dp=16, zero=0, sync="local_sgd,every=8"),
    Policy(dp=4, tp=2, pp=2, recompute="full"),
    Policy(dp=16, zero=3),
]


def test_they_are_those_of_the_reports():
    given = (model_of("llama-3-8b"), cluster_of("dgx-h100:16"), Job(seq=8192, global_batch=64))
    stack = stack_of("megatron-core")
    for parts, policy in zip(parts_of(case_of(*given, stack), POLICIES), POLICIES, strict=True):
        report = report_of(case_of(*given, stack), policy)
        assert parts.policy == policy
        assert parts.step_s == report.step_s
        assert parts.time_s == pytest.approx(report.time_s, rel=1e-12)
        assert parts.shares == pytest.approx(report.shares, rel=1e-12)
        assert (parts.error_band, parts.error_basis) == (report.error_band, report.error_basis)


@pytest.mark.parametrize("more", [["--verbose"], ["--json"], ["--why", "--verbose"]])
def test_a_plan_needs_no_whole_report(more, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(
        "shardwise.question.studies.build.report_of", lambda *_args, **_more: pytest.fail("a whole report was made")
    )
    monkeypatch.setattr("shardwise.answers._planned.parts_of", lambda *given: asked.append(given) or parts_of(*given))
    assert main(["plan", "llama-3-8b", "--on", "8xh100", *more]) == 0
    assert len(asked) == 1
    assert "bottleneck" in capsys.readouterr().out
