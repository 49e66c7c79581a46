"""Trials: legal, none twice, informative; what is measured moves what shares its causes."""

import numpy as np
import pytest

from shardwise.plan import scan
from shardwise.plan.trials import NOISE, TrialBelief, TrialSpread, belief_of, spread_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

SPREAD = TrialSpread(own=0.05, by_field={"tp": 0.1, "pp": 0.05}, shared=0.1)
SURPLUS = np.array([-0.3, 0.0, 0.3]), np.array([0.0, 0.5, 1.0])
POLICIES = [Policy(dp=8), Policy(dp=4, tp=2), Policy(dp=2, tp=4), Policy(dp=4, pp=2), Policy(dp=2, tp=2, pp=2)]


def belief(predicted=(1.0, 1.1, 1.2, 1.3, 1.4), peaks=(50, 40, 30, 45, 35), room=100):
    return TrialBelief(POLICIES, np.array(predicted), np.array(peaks) * 1e9, room * 1e9, SPREAD, SURPLUS)


def test_trials_are_legal_and_none_is_run_twice():
    case = case_of(model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=4096, global_batch=64), stack_of("shardwise"))
    ranked = scan(case, top=12, losers=False)
    found = belief_of(case, [c.policy for c in ranked.best], np.array([c.step_s for c in ranked.best]),
                      np.array([c.peak_bytes for c in ranked.best]))  # fmt: skip
    seen = []
    rng = np.random.default_rng(0)
    while (chosen := found.next(least=0.0)) is not None and len(seen) < 12:
        index, worth = chosen
        assert worth >= 0
        assert verdict_of(case.model, case.cluster, case.job, found.policies[index]).legal
        seen.append(index)
        found.tried(index, None if rng.random() < 0.3 else float(found.predicted_s[index] * np.exp(rng.normal(0, 0.2))))
    assert len(set(seen)) == len(seen) > 3


def test_what_is_expected_is_the_conditional_of_the_joint_normal():
    found = belief()
    found.tried(1, 1.5)
    found.tried(3, 1.2)
    covariance = np.array([
        [0.1**2 + 0.1**2 * (a.tp == b.tp) + 0.05**2 * (a.pp == b.pp) + 0.05**2 * (a is b) for b in POLICIES]
        for a in POLICIES
    ])  # fmt: skip
    known, rng = [1, 3], np.random.default_rng(1)
    draws = rng.multivariate_normal(np.log(found.predicted_s), covariance, 400_000)
    noisy = draws[:, known] + rng.normal(0, NOISE, (len(draws), 2))
    # regression of the others on what is measured, from the draws alone
    slope, *_ = np.linalg.lstsq(noisy - noisy.mean(axis=0), draws - draws.mean(axis=0), rcond=None)
    expected = draws.mean(axis=0) + (np.log([1.5, 1.2]) - noisy.mean(axis=0)) @ slope
    assert found.expected()[0] == pytest.approx(expected, abs=0.01)


def test_a_slow_trial_slows_what_shares_its_tensor_parallelism():
    found = belief()
    before = np.exp(found.expected()[0])
    found.tried(1, 1.1 * 1.3)
    after = np.exp(found.expected()[0]) / before
    assert after[4] > after[2] > 1.0, "tp 2 with tp 2, and all a little"
    told = {each.what: each.factor for each in found.learned()}
    assert told["tp 2"] > 1.05
    assert "tp 4" not in told


def test_what_fails_for_memory_speaks_against_the_larger():
    found = belief(peaks=(99, 98, 60, 97, 96))
    chances = found.fits()
    found.tried(1, None)
    assert (found.fits()[[0, 3, 4]] < chances[[0, 3, 4]]).all()
    assert found.fits()[2] > 0.7
    assert found.next()[0] == 2
    assert found.ranked()[-1] == 1


def test_what_never_began_says_nothing_of_memory():
    found = belief(peaks=(99, 98, 60, 97, 96))
    before = found.fits()
    found.tried(1, None, began=False)
    assert (found.fits() == before).all()
    chosen = found.next()
    assert chosen is not None
    assert chosen[0] != 1
    assert found.ranked()[-1] == 1


def test_nothing_is_tried_that_cannot_matter():
    found = belief(predicted=(1.0, 9.0, 9.0, 9.0, 9.0))
    found.tried(0, 1.0)
    assert found.next() is None
    assert found.best == 0


def test_the_band_is_widened_by_what_lies_outside():
    found = belief()
    narrow = found.expected()[1][4]
    found.tried(0, 1.0 * np.exp(1.5))
    assert found.wider > 5
    assert found.expected()[1][4] > narrow


def test_an_unknown_program_has_a_wider_spread():
    model, job = model_of("llama-3-8b"), Job(seq=4096, global_batch=64)
    known, foreign = (
        spread_of(case_of(model, cluster_of(on), job, stack_of("megatron-core"))) for on in ("8xh100", "8xmi300x")
    )
    assert foreign.own > known.own
    assert foreign.shared > known.shared
