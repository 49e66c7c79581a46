"""Laws between answers (benchmarks/metamorphic.py): a sample in the ordinary suite, 2,000 cases in `make slow`."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from _metamorphic_cases import Drawn, drawn_case
from _metamorphic_laws import LAWS, Law, planned
from metamorphic import CASES, PLANS, check_case, command_of, measure, smallest
from shardwise.spec.rules import legal
from shardwise.spec.software.limits import runs

FEW, FEW_PLANS, SEED = 60, 2, "suite"


def told(violations, seed):
    return "\n".join(f"{each.shown}\n{command_of(each, seed)}" for each in violations[:5])


def test_no_law_is_broken():
    figures, violations = measure(FEW, FEW_PLANS, SEED, workers=1)
    assert not violations, told(violations, SEED)
    assert figures["cases"] == FEW + FEW_PLANS
    assert set(figures["laws"]) >= set(LAWS) - {"exported"}
    assert figures["checks"] > 50 * FEW


@pytest.mark.slow
def test_no_law_is_broken_in_many_cases():
    figures, violations = measure(CASES, PLANS, "slow", workers=2)
    assert not violations, told(violations, "slow")
    assert set(figures["laws"]) == {*LAWS, "planned"}


def test_cases_are_what_a_program_runs_and_the_same_again():
    for number in range(20):
        drawn, case = drawn_case(number, SEED), drawn_case(number, SEED).case
        assert legal(case.model, case.cluster, case.job, drawn.policies).all()
        assert runs(case.stack.abilities.limits, drawn.policies).all()
        np.testing.assert_array_equal(drawn.policies.tp, drawn_case(number, SEED).policies.tp)


def test_a_broken_law_is_found_and_made_small(monkeypatch):
    """Of a law that every second tensor-parallel rank breaks, one simple policy is left."""
    law = Law("no tp", "nothing is tensor-parallel", lambda drawn, _: np.where(drawn.policies.tp > 1, 1.0, -1.0))
    monkeypatch.setitem(LAWS, law.name, law)
    found = next(tally for number in range(50) if (tally := check_case(number, SEED, [law.name])).violations)
    worst = found.violations[0]
    assert command_of(worst, SEED).endswith(f"--case {worst.number} --row {worst.row}")
    drawn = drawn_case(worst.number, SEED)
    policies, by = smallest(law, drawn, worst.row)
    assert by == 1.0
    assert policies.tp[0] > 1
    assert policies.recompute[0] == 0
    again = Drawn(drawn.number, drawn.case, policies, drawn.factor)
    assert law.check(again, None)[0] > 0


def test_a_plan_states_what_it_overlaps_otherwise(capsys):
    """`--fix overlap_grad=off` is in the command that a plan ends with."""
    from shardwise.show.cli import main

    words = ["plan", "gpt2-xl", "--on", "8xh100", "--seq", "1024", "--global-batch", "16", "--fix", "overlap_grad=off"]
    assert main(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--no-overlap-grad" in text
    assert planned(0, SEED)[1] <= 0 or np.isnan(planned(0, SEED)[1])
