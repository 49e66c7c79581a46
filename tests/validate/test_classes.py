"""No class of measured runs is predicted worse than its stored figure, and pairs of runs differ in one thing."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from truth import truth

pytestmark = pytest.mark.xdist_group("accuracy")  # they share what a fixture of theirs computes

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmarks():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module


@pytest.fixture(scope="module")
def runs(benchmarks):
    rows = benchmarks("_class_rows")
    for name in rows.BESIDE:
        truth(name)
    return rows.every_run()


def test_no_class_is_worse_than_stored(benchmarks, runs):
    classes = benchmarks("classes")
    found = classes.by_class(runs)
    assert set(found) == set(classes.stored())
    assert classes.worse(found) == [], "mend it, or store it with a reason: python benchmarks/classes.py --renew REASON"


def test_a_class_that_got_worse_by_more_than_a_point_is_named(benchmarks, runs):
    classes, rows = benchmarks("classes"), benchmarks("_class_rows")
    slower = [replace(run, error=run.error + 0.3) if rows.has_experts(run) and run.error > 0 else run for run in runs]
    worse = classes.worse(classes.by_class(slower))
    assert any(line.startswith("experts: mape ") for line in worse)
    assert not any(line.startswith("dense") for line in worse)


def test_a_source_is_predicted_by_constants_that_had_not_seen_it(benchmarks, runs):
    """Either by those fitted without it, or by those of the stack that its own is like."""
    rows = benchmarks("_class_rows")
    for run in runs:
        fitted = rows.fitted_as(run.case.stack.name)
        if fitted is not None and fitted.fitted_to(run.source):
            seen = rows.measured_case(run.case.measured).stack
            assert any(run.case.stack.setting(name) != seen.setting(name) for name in fitted.fitted), run.source


@pytest.mark.parametrize(("kind", "column"), [("tp", "tp"), ("micro-batch", "micro_batch"), ("fp8", "dtype")])
def test_pairs_are_of_one_source_and_longer_steps_are_above_one(benchmarks, runs, kind, column):
    pairs = list(benchmarks("layout_changes").pairs_of(runs, kind))
    assert pairs
    one = pairs[0]
    before, after = one.first, one.second
    assert before != after
    assert one.measured > 0 < one.predicted
    steps = [run for run in runs if run.source == one.source and run.case.measured.word(column)]
    assert {run.source for run in steps} == {one.source}
