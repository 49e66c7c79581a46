"""A sample of benchmarks/agree.py: the tiers count the same bytes, and closed form and flow level say the same."""

from itertools import islice

import numpy as np
import pytest

from _agree_cases import KINDS, cases, small_spaces
from _agree_gaps import first_choice, gaps_of
from shardwise.plugins.pipeline import schedule_names
from shardwise.spec.policy import Policies
from shardwise.spec.rules import legal

pytestmark = pytest.mark.xdist_group("agree")  # they share what a fixture of theirs computes

COUNT = 36
"""the first of the benchmark's own"""
SPACES = 5


@pytest.fixture(scope="module")
def samples():
    return list(cases(COUNT))


def test_cases_are_legal_and_cover_fabrics_and_schedules(samples):
    assert {sample.kind for sample in samples} == set(KINDS)
    assert len({sample.policy.schedule for sample in cases(len(KINDS) * len(schedule_names()))}) == len(
        schedule_names()
    )
    for sample in samples:
        assert legal(sample.model, sample.cluster, sample.job, Policies.of([sample.policy])).all()
    again = list(cases(COUNT))
    assert again == samples


@pytest.fixture(scope="module")
def gaps(samples):
    return [gaps_of(sample, flows=True) for sample in samples]


def test_bytes_of_every_axis_level_and_lane_are_the_same(samples, gaps):
    for sample, found in zip(samples, gaps, strict=True):
        assert found.bytes_gap <= 1e-6, (found.where, sample)


def test_links_and_closed_form_price_alike(gaps):
    """Each kind of traffic alone on the links, against the simulation with the closed form's prices."""
    apart = np.abs([found.prices_gap for found in gaps])
    # but for two of 36, on Ethernet of 1 Gb/s, whose rings and exchanges share its one link otherwise
    assert np.quantile(apart, 0.94) <= 0.1
    assert np.median(apart) <= 0.002


def test_a_step_on_the_links_is_as_long_as_in_closed_form(gaps):
    """All kinds of traffic together on the links."""
    apart = np.abs([found.flow_gap for found in gaps])
    assert np.quantile(apart, 0.95) <= 0.1
    assert np.median(apart) <= 0.002


def test_links_and_closed_form_put_the_same_policy_first():
    found = [first_choice(space) for space in small_spaces(SPACES, most=6)]
    assert np.mean([choice.same for choice in found]) >= 0.95
    assert all(choice.lost < 0.05 and choice.told for choice in found)


def test_small_spaces_have_something_to_choose_from():
    for space in small_spaces(6, seed=1):
        assert len(space.policies) >= 4
        assert 8 <= space.cluster.gpus <= 36
        assert legal(space.model, space.cluster, space.job, space.policies).all()


def test_a_reduction_may_end_as_its_ranks_next_task_begins():
    """The joint loop once stopped what had just ended: case 154 met both at the same moment."""
    sample = next(islice(cases(155), 154, None))
    assert gaps_of(sample, flows=True).flow_gap == pytest.approx(0.0, abs=0.1)


def test_the_training_program_records_the_listed_messages():
    pytest.importorskip("torch")
    from _agree_recorded import recorded_gap, recorded_samples

    for sample in recorded_samples(3, seed=2):
        gap, where = recorded_gap(sample)
        assert gap <= 1e-6, where


@pytest.mark.parametrize("number", [132, 144])
def test_cards_that_are_always_busy_set_the_pace(number):
    """132: gradients, layers and experts share one thin port; 144: every second boundary of a pipeline is slow."""
    sample = next(islice(cases(number + 1), number, None))
    assert gaps_of(sample, flows=True).flow_gap == pytest.approx(0.0, abs=0.1)
