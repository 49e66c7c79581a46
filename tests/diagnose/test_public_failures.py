"""Failures that others reported: the kind is named, and never a rank that the report does not blame."""

import pytest
from failure_corpus import corpus, named

from shardwise.measured.diagnose.failure_lines import failure_kinds


@pytest.mark.parametrize("failure", [*corpus("seen"), *corpus("later")], ids=lambda failure: failure.source)
def test_the_kind_of_a_public_failure_is_named(failure):
    kind, rank = named(failure)
    assert kind in (failure.kind, *failure.also)
    assert rank in (None, failure.rank)
    assert failure.rank is None or rank == failure.rank


def test_labels_are_kinds():
    assert {failure.kind for name in ("seen", "later") for failure in corpus(name)} <= set(failure_kinds())
