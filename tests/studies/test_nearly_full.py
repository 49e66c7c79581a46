"""Policies that fit with little to spare say what became of runs that full."""

import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, report_of, stack_of
from shardwise.question.studies.nearly_full import FULL, nearly_full
from shardwise.show.cli._frame import main


@pytest.mark.parametrize(("share", "said"), [(FULL - 0.01, 0), (FULL + 0.01, 1), (1.0, 1), (1.01, 0)])
def test_only_what_fits_and_is_nearly_full(share: float, said: int) -> None:
    assert len(nearly_full(share * 80e9, 80e9)) == said


def test_a_report_says_so() -> None:
    case = case_of(
        model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=8192, global_batch=512), stack_of("megatron-core")
    )
    roomy, full = (report_of(case, Policy(dp=8, zero=zero)) for zero in (3, 2))
    assert full.fits
    assert full.peak_bytes > FULL * full.capacity_bytes > roomy.peak_bytes
    assert "num_alloc_retries" in full.assumptions[0]
    assert not any("num_alloc_retries" in line for line in roomy.assumptions)


def test_a_plan_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "llama-3-8b", "--on", "8xh100", "--seq", "8192", "--risk", "0.5", "--verbose"]
    assert main(asked) == 0
    assert "and others as full" in capsys.readouterr().out
    assert main([*asked, "--headroom", "0.8"]) == 0
    assert "and others as full" not in capsys.readouterr().out
