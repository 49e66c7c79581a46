"""Every schedule file keeps the contract."""

import numpy as np
import pytest

from shardwise.schedules import schedules
from shardwise.spec.policy import SCHEDULES


def test_every_schedule_is_named_in_policy() -> None:
    assert set(schedules()) == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_contract(name: str) -> None:
    schedule = schedules()[name]
    assert schedule.name == name
    assert schedule.summary
    vpp = 2 if schedule.needs_chunks else 1
    for pp in (1, 2, 4, 16):
        for micro_batches in (pp, 4 * pp, 64):
            stage = np.arange(pp)
            held = schedule.in_flight(stage, pp, vpp, micro_batches)
            assert (held > 0).all()
            assert (held <= micro_batches).all()
            assert (np.diff(held) <= 0).all(), "later stages never hold more"
            assert schedule.idle(pp, vpp, micro_batches) >= 0
    assert schedule.idle(1, vpp, 8) == 0
    scalars = [schedule.in_flight(s, 4, vpp, 16) for s in range(4)]
    assert np.array_equal(schedule.in_flight(np.arange(4), 4, vpp, 16), scalars)
