"""Failures that others reported: the kind is named, and never a rank that the report does not blame."""

import pytest
from failure_corpus import corpus, named

from shardwise.measured.diagnose.failure_lines import failure_kinds

IN_VIEW = [failure for name in ("seen", "later", "visible") for failure in corpus(name)]


@pytest.mark.parametrize("failure", IN_VIEW, ids=lambda failure: failure.source)
def test_the_kind_of_a_public_failure_is_named(failure):
    kind, rank = named(failure)
    assert kind in (failure.kind, *failure.also)
    assert rank in (None, failure.rank)
    assert failure.rank is None or rank == failure.rank


def test_labels_are_kinds():
    assert {failure.kind for failure in (*IN_VIEW, *corpus("set_aside"))} <= set(failure_kinds())


def test_reports_set_aside_are_named_and_nobody_is_blamed_wrongly():
    """No rule was written with these in view: at least 85 % are named and at most 3 % blame a wrong rank."""
    failures = corpus("set_aside")
    answers = [(failure, *named(failure)) for failure in failures]
    right = sum(kind in (failure.kind, *failure.also) for failure, kind, _ in answers)
    blamed = sum(rank not in (None, failure.rank) for failure, _, rank in answers)
    assert len(failures) >= 100
    assert right >= 0.85 * len(failures)
    assert blamed <= 0.03 * len(failures)
