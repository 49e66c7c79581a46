"""Every schedule file is executed: the same losses and gradients as without a pipeline."""

import pytest

pytestmark = pytest.mark.xdist_group("schedules")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch")
from test_equal_to_one_process import STEPS, hold_together  # noqa: E402
from training import LLAMA, task_of, together  # noqa: E402

from shardwise.plugins.schedules import schedules  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

RUNS = [name for name in schedules() if name != "none"]


def policy_of(name: str) -> Policy:
    return Policy(pp=2, vpp=1 if schedules()[name].chunks == "one" else 2, schedule=name, zero=0)


@pytest.fixture(scope="module")
def trained():
    return dict(zip(RUNS, together([task_of(LLAMA, policy_of(name)) for name in RUNS], STEPS), strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_schedule(name: str, trained) -> None:
    hold_together("llama", trained[name], STEPS)
