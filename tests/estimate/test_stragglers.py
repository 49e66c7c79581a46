import numpy as np
import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, report_of, stack_of
from shardwise.step.estimate.stragglers import WHISKERS, waiting_share
from shardwise.step.simulate import simulate

SIGMA = 0.08 / WHISKERS
NODE = stack_of("megatron-core@2021")
CORE = stack_of("megatron-core")


def test_whiskers_of_a_normal_spread_are_five_and_a_half_deviations_apart():
    assert pytest.approx(5.396, abs=1e-3) == WHISKERS


@pytest.mark.parametrize("gpus", [16, 128, 1024, 16384])
def test_the_law_is_the_mean_of_the_slowest_of_many(gpus):
    drawn = np.random.default_rng(0).normal(size=(400, gpus)).max(axis=1).mean()
    of_eight = np.random.default_rng(1).normal(size=(200_000, 8)).max(axis=1).mean()
    assert float(waiting_share(gpus, NODE)) == pytest.approx(SIGMA * (drawn - of_eight), abs=0.05 * SIGMA)


def test_a_node_loses_nothing_more_and_the_loss_grows_ever_slower():
    assert np.all(waiting_share(np.array([1.0, 4.0, 8.0]), NODE) == 0.0)
    shares = waiting_share(np.array([16.0, 128.0, 1024.0, 8192.0]), NODE)
    assert np.all(np.diff(shares) > 0)
    assert np.all(np.diff(shares, 2) < 0)
    assert 0.02 < shares[2] < 0.04


def test_what_the_fitted_runs_lost_is_not_counted_again():
    assert float(waiting_share(CORE.network.fitted_gpus, CORE)) == 0.0
    beyond = float(waiting_share(4096, NODE)) - float(waiting_share(CORE.network.fitted_gpus, NODE))
    assert float(waiting_share(4096, CORE)) == pytest.approx(beyond)


def test_many_numbers_at_once_are_those_one_by_one():
    numbers = np.array([[64.0, 8.0], [1024.0, 64.0]])
    assert np.array_equal(
        waiting_share(numbers, NODE), [[float(waiting_share(n, NODE)) for n in row] for row in numbers]
    )


def test_a_larger_job_of_equal_work_for_each_gpu_waits_longer_in_closed_form_and_simulation():
    for gpus in (8, 2048):
        case = case_of(model_of("llama-3-8b"), cluster_of(f"dgx-h100:{gpus}"), Job(seq=8192, global_batch=gpus), CORE)
        policy = Policy(dp=gpus // 8, tp=2, pp=4, zero=1)
        report = report_of(case, policy)
        waited = report.time_s["other"] - CORE.host.step_overhead_s
        busy = report.step_s - report.time_s["other"]
        assert waited == pytest.approx(busy * float(waiting_share(gpus, CORE)), abs=1e-9 * busy)
        assert simulate(case, policy).costs.other_share == float(waiting_share(gpus, CORE))
