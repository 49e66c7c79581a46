"""Trials: legal, none twice, informative; a measurement moves the policies that share its causes."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.cost.calibrate.profile import LearnedRun
from shardwise.measured.learn import measured_run
from shardwise.plan import scan
from shardwise.plan.trials import TrialBelief, belief_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.learned import posterior_of
from shardwise.work.case import case_of

SURPLUS = np.array([-0.3, 0.0, 0.3]), np.array([0.0, 0.5, 1.0])
POLICIES = [Policy(dp=8), Policy(dp=4, tp=2), Policy(dp=2, tp=4), Policy(dp=4, pp=2), Policy(dp=2, tp=2, pp=2)]
TP_SHARE = (0.0, 0.2, 0.4, 0.0, 0.2)


def run(index, predicted):
    policy, share = POLICIES[index], TP_SHARE[index]
    causes = {"level": 1.0, "compute": 1.0 - share, "tp and cp": share,
              "tp degree": float(np.log2(policy.tp)), "pp degree": float(np.log2(policy.pp))}  # fmt: skip
    return LearnedRun(source=f"trial {index}", job="a on b", stack="s", measured_s=predicted, predicted_s=predicted,
                      causes=causes)  # fmt: skip


def belief(predicted=(1.0, 1.1, 1.2, 1.3, 1.4), peaks=(50, 40, 30, 45, 35), room=100, before=()):
    runs = [run(index, step) for index, step in enumerate(predicted)]
    return TrialBelief(POLICIES, runs, np.array(peaks) * 1e9, room * 1e9, SURPLUS, before)


def test_trials_are_legal_and_none_is_run_twice():
    case = case_of(model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=4096, global_batch=64), stack_of("shardwise"))
    ranked = scan(case, top=12, losers=False)
    runs = [measured_run(case, c.policy, f"trial {i}", c.step_s, None) for i, c in enumerate(ranked.best)]
    assert [each.predicted_s for each in runs] == pytest.approx([c.step_s for c in ranked.best])
    found = belief_of(case, [c.policy for c in ranked.best], runs, np.array([c.peak_bytes for c in ranked.best]))
    seen = []
    rng = np.random.default_rng(0)
    while (chosen := found.next(least=0.0)) is not None and len(seen) < 12:
        index, worth = chosen
        assert worth >= 0
        assert verdict_of(case.model, case.cluster, case.job, found.policies[index]).legal
        seen.append(index)
        step = runs[index].predicted_s * np.exp(rng.normal(0, 0.2))
        found.tried(index, None if rng.random() < 0.3 else float(step))
    assert len(set(seen)) == len(seen) > 3


def test_trials_count_as_runs_that_learn_was_given():
    """`plan --measure` and `learn` are one: the same runs leave the same expectation."""
    found = belief()
    found.tried(1, 1.5)
    found.tried(3, 1.2)
    known = posterior_of([replace(run(1, 1.1), measured_s=1.5), replace(run(3, 1.3), measured_s=1.2)])
    rows = posterior_of([run(index, 1.0) for index in range(5)]).causes
    assert found.expected().mean - np.log((1.0, 1.1, 1.2, 1.3, 1.4)) == pytest.approx(known.at(rows, "a on b").mean)
    earlier = belief(before=(replace(run(1, 1.1), measured_s=1.5),))
    earlier.tried(3, 1.2)
    assert earlier.expected().mean == pytest.approx(found.expected().mean)
    assert earlier.expected().deviation == pytest.approx(found.expected().deviation)


def test_before_any_trial_the_order_is_the_plans():
    found = belief()
    assert np.exp(found.expected().mean) == pytest.approx((1.0, 1.1, 1.2, 1.3, 1.4))
    assert found.next()[0] == 0


def test_a_slow_trial_slows_its_like_most():
    found = belief()
    before = np.exp(found.expected().mean)
    found.tried(1, 1.1 * 1.3)
    after = np.exp(found.expected().mean) / before
    assert after[4] > after[3] > 1.0, "tp 2 with tp 2, and all a little"
    assert after[1] > after[2]


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
    found = belief(predicted=(1.0, 19.0, 19.0, 19.0, 19.0))
    found.tried(0, 1.0)
    assert found.next() is None
    assert found.best == 0


def test_the_band_is_widened_by_what_lies_outside():
    near, far = belief(), belief()
    near.tried(0, 1.0)
    far.tried(0, 1.0 * np.exp(1.5))
    assert far.wider > 5
    assert far.expected().deviation[4] > 2 * near.expected().deviation[4]
