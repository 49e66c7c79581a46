"""What runs say of a prediction: conditioning in closed form, wider far from what was measured, never by order."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.causes import CAUSES, causes_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.posterior import NEARBY, NOISE, Posterior, Prior, prior_of, reach
from shardwise.work.case import case_of

LEVEL, DP = CAUSES.index("level"), CAUSES.index("dp")


def prior(**variances):
    zero = np.zeros(len(CAUSES))
    levels = {name: zero.copy() for name in ("site", "job", "own")}
    for name, (cause, value) in variances.items():
        levels[name][cause] = value
    return Prior(**levels, mean=zero, degrees=1e9)


def run(**values):
    causes = np.zeros(len(CAUSES))
    causes[LEVEL] = 1.0
    for name, value in values.items():
        causes[CAUSES.index(name)] = value
    return causes


@pytest.mark.parametrize("number", [1, 2, 5])
def test_one_level_is_the_mean_of_the_runs_shrunk_as_bayes_says(number):
    """Of n runs of one layout with error e, whose sum has the variance n s + n NEARBY o + v: mean e n s over that."""
    site, own = 0.04, 0.01 - NOISE**2
    known = Posterior(
        prior(site=(LEVEL, site), own=(LEVEL, own)), np.array([run()] * number), np.full(number, 0.3), ["a"] * number
    )
    found = known.at(run()[None, :], "another")
    total = number * (site + NEARBY * own) + (1 - NEARBY) * own + NOISE**2
    assert found.mean[0] == pytest.approx(0.3 * number * site / total)
    again = known.at(run()[None, :], "a")
    assert again.mean[0] == pytest.approx(0.3 * number * (site + NEARBY * own) / total)


def test_layouts_nearby_share_more_of_a_run_than_far_ones():
    spread = prior(site=(LEVEL, 1e-4), own=(LEVEL, 0.01))
    known = Posterior(spread, np.array([run()]), np.array([0.2]), ["a"])
    steps = np.array([run(), run(gpus=1.0), run(gpus=4.0), run(dp=0.1)])
    same, near, far, part = known.at(steps, "a").mean
    assert 0.1 < near < same < 0.2
    assert far < part < near
    assert same == pytest.approx(0.2 * (1e-4 + NEARBY * 0.01) / (1e-4 + 0.01 + NOISE**2))


def test_a_change_between_two_layouts_is_surer_than_either_step():
    spread = prior(site=(LEVEL, 0.04), own=(LEVEL, 0.01))
    blind = Posterior(spread, np.empty((0, len(CAUSES))), np.empty(0), [])
    reach = float(blind.at(run()[None, :], "a").reach)
    same, far = blind.change(run(), np.array([run(), run(gpus=20.0)]), "a")
    # the site's factor cancels; of each run's own error a quarter is left, or all of it far away, and the noise
    scale = (spread.degrees - 2) / spread.degrees
    assert same == pytest.approx(reach * np.sqrt(2 * scale * (0.25 * 0.01 + NOISE**2)))
    assert far == pytest.approx(reach * np.sqrt(2 * scale * (0.01 + NOISE**2)))


def test_a_run_says_most_of_steps_alike_and_nothing_of_a_part_it_lacks():
    spread = prior(site=(DP, 1.0), own=(LEVEL, 1e-4))
    known = Posterior(spread, np.array([run(dp=0.5)]), np.array([0.2]), ["a"])
    near, far, other = (known.at(run(dp=share)[None, :], "a") for share in (0.5, 1.0, 0.0))
    assert near.mean[0] == pytest.approx(0.2, rel=0.01)
    assert far.mean[0] == pytest.approx(0.4, rel=0.01)
    assert other.mean[0] == pytest.approx(0.0, abs=1e-6)
    assert near.deviation[0] < far.deviation[0]


def test_runs_of_the_same_job_say_more_than_runs_of_another():
    spread = prior(site=(LEVEL, 0.01), job=(LEVEL, 0.03), own=(LEVEL, 0.001))
    known = Posterior(spread, np.array([run()]), np.array([0.4]), ["a"])
    same, other = known.at(run()[None, :], "a"), known.at(run()[None, :], "b")
    assert same.mean[0] > other.mean[0] > 0
    assert same.deviation[0] < other.deviation[0]


def test_what_was_learned_does_not_hang_on_the_order_and_narrows_the_band():
    draw = np.random.default_rng(0)
    causes, errors = np.abs(draw.normal(size=(6, len(CAUSES)))) * 0.2, draw.normal(size=6) * 0.1
    causes[:, LEVEL] = 1.0
    spread, order = prior_of(seen=False), np.array([3, 0, 5, 1, 4, 2])
    first = Posterior(spread, causes, errors, ["a"] * 6).at(causes, "a")
    again = Posterior(spread, causes[order], errors[order], ["a"] * 6).at(causes, "a")
    assert np.allclose(first.mean, again.mean)
    assert np.allclose(first.high, again.high)
    blind = Posterior(spread, causes[:0], errors[:0], []).at(causes, "a")
    assert blind.mean == pytest.approx(causes @ spread.mean)
    assert (first.high - first.low < blind.high - blind.low).all()


def test_runs_that_lie_farther_off_than_expected_leave_a_wider_band():
    spread, causes = prior_of(seen=False), np.array([run(compute=0.9)] * 2)
    near, far = (Posterior(spread, causes, np.array([e, e]), ["a"] * 2).at(causes, "a") for e in (0.05, 1.0))
    assert (far.deviation > 1.5 * near.deviation).all()


@pytest.mark.parametrize(("degrees", "table"), [(4, 1.5332), (5, 1.4759), (10, 1.3722), (100, 1.2901)])
def test_the_reach_is_that_of_students_table(degrees, table):
    assert reach(degrees) == pytest.approx(table, abs=1e-3)


def test_known_sites_err_less():
    assert (prior_of(seen=True).site <= prior_of(seen=False).site).all()
    assert (prior_of(seen=True).own <= prior_of(seen=False).own).all()


def test_shares_of_a_step_add_up_to_less_than_all_of_it_and_sizes_are_doublings():
    case = case_of(model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=8192, global_batch=64), stack_of("nemo"))
    one = estimate(case, Policies.of([Policy(dp=8, zero=3), Policy(dp=2, tp=4)]))
    found = causes_of(case, one.work, one.times, ("site",))
    assert found.shape == (2, len(CAUSES))
    shares = found[:, CAUSES.index("compute") : CAUSES.index("optimizer") + 1].sum(axis=1)
    assert ((shares > 0.9) & (shares <= 1.0 + 1e-9)).all()
    column = {name: found[:, place] for place, name in enumerate(CAUSES)}
    assert list(column["runs of others"]) == [1, 1]
    assert list(column["chip"]) == [0, 0]
    assert list(column["zero 3"]) == [1, 0]
    assert list(column["tp degree"]) == [0, 2]
    assert list(column["sequence"]) == [1, 1]
    assert list(column["micro-batches"]) == [0, 2]
    assert column["tp and cp"][0] == 0 < column["tp and cp"][1]
