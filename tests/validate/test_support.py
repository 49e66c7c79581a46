"""Numbers fitted or set on measured rows are held by them: few for each group of runs, none that serves one model."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shardwise.spec.software import stack_of
from truth import truth

ROOT = Path(__file__).resolve().parents[2]
FEWEST_ROWS, FEWEST_MODELS, GROUPS_PER_NUMBER = 4, 2, 2
TABLES = ("steps.csv", "steps_small.csv", "h200_steps.csv")


@pytest.fixture(scope="module")
def support() -> Iterator[ModuleType]:
    for name in TABLES:
        truth(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        load: Callable[[str], ModuleType] = importlib.import_module
        yield load("_accuracy_support")


def test_rows_hold_every_number_that_was_fitted_or_set_on_them(support: ModuleType) -> None:
    loose, many = [], []
    for stack, found in support.all_support():
        loose += [one for one in found if one.rows < FEWEST_ROWS or one.models < FEWEST_MODELS]
        if len(found) * GROUPS_PER_NUMBER > support.groups_of(stack):
            many.append((stack.name, len(found), support.groups_of(stack)))
    assert not loose
    assert not many


def test_a_number_that_serves_no_row_is_seen(support: ModuleType) -> None:
    """No run of this stack waits for its host in an expert layer."""
    stack = stack_of("megatron-core@serial").changed(ops_per_end=7.0)
    assert support._supported(stack, "ops_per_end").rows == 0
    assert support._supported(stack, "kernel_efficiency").rows >= FEWEST_ROWS
