"""Workers that wait for nobody: the closed form of a step against the same in events, and against hand-made cases."""

import numpy as np
import pytest

from shardwise.plugins.sync import FlatNetwork, strategy
from shardwise.plugins.sync._arrivals import cycles_of
from shardwise.plugins.sync._asynchronous import compute_seconds, play, slowest_factor, slowest_ticks, step_seconds

D, N = 1_000_000, 16
NETWORK = FlatNetwork(latency_s=1e-5, bytes_per_s=1e9)
PERIODS = [(1,), (4, 1, 1, 1), (20, 1, 1, 1), (1, 2, 3)]


def equal(n: int):
    return cycles_of((1,), n, one_step=True)


def test_a_worker_s_own_messages_are_all_it_waits_for():
    """15 workers with 2 messages of 10 ms, and the server's own without: far below 15 x 2 x 10 ms more."""
    found = float(step_seconds(equal(N), 1.0, 0.01))
    assert found == pytest.approx(N / (1 / 1.0 + 15 / 1.02))
    assert found < 1.02


def test_a_full_server_sets_the_pace():
    """Beyond what one direction of its link takes, a step is as long as the messages of all the others."""
    found = float(step_seconds(equal(N), 1.0, 0.5))
    assert found == pytest.approx(15 * 0.5, rel=0.02)
    half, double = (float(step_seconds(equal(N), 1.0, message)) for message in (0.25, 1.0))
    assert (half, double) == pytest.approx((found / 2, found * 2), rel=0.05)


def test_slow_workers_do_less_and_hold_up_nobody():
    cycles = cycles_of((4, 1, 1, 1), N, one_step=True)
    assert float(compute_seconds(cycles, 1.0)) == pytest.approx(N / (12 + 4 / 4))
    assert slowest_ticks(cycles) == 4.0
    # FedBuff's workers are at full speed: their periods are local steps
    local = cycles_of((4, 1, 1, 1), N, one_step=False)
    assert float(compute_seconds(local, 1.0)) == pytest.approx(1.0)
    assert slowest_ticks(local) == 1.0


@pytest.mark.parametrize("one_step", [True, False], ids=["async_sgd", "fedbuff"])
@pytest.mark.parametrize("periods", PERIODS, ids=str)
@pytest.mark.parametrize("n", [16, 64])
def test_the_closed_form_is_what_happens(n, periods, one_step):
    """Worker by worker: within 1 % with an idle and a full server; where it is nearly full, what happens to arrive
    together queues, which takes up to 5 % longer and never less."""
    cycles = cycles_of(periods, n, one_step=one_step)
    unloaded = n / sum(each.steps / each.ticks for each in cycles)
    updates = sum(1 / each.ticks for each in cycles[1:])
    for load, most in ((0.01, 0.01), (0.3, 0.01), (0.9, 0.05), (1.5, 0.01), (3.0, 0.01)):
        message = load / updates
        closed = float(step_seconds(cycles, 1.0, message))
        run = play(cycles, 1.0, message, deliveries=400)
        assert closed >= unloaded * (1 - 1e-9)
        assert -0.01 <= run.step_s / closed - 1 <= most, (load, run.step_s, closed)
        assert run.server_busy <= 1.0 + 0.02


def test_jitter_costs_those_who_wait():
    """The mean of the slowest, against drawing it; who does not wait keeps the mean."""
    for n in (2, 16, 256):
        spread = np.sqrt(np.log1p(0.2**2))
        drawn = np.random.default_rng(0).lognormal(-(spread**2) / 2, spread, (20_000, n)).max(axis=1).mean()
        assert slowest_factor(n, 0.2) == pytest.approx(drawn, rel=0.005)
    assert play(equal(N), 1.0, 0.001, jitter=0.2, deliveries=500).step_s == pytest.approx(
        float(step_seconds(equal(N), 1.0, 0.001)), rel=0.01
    )
    assert slowest_factor(N, 0.0) == slowest_factor(1, 0.2) == 1.0


def test_costs_are_of_a_step_of_all_workers_not_of_a_tick():
    """A slow worker sends as much for a batch as a fast one, only later."""
    even, uneven = (strategy("async_sgd", periods=p).cost(D, NETWORK, N) for p in ((1,), (1, 4, 4, 4)))
    assert even.total_bytes == uneven.total_bytes * (15 * (12 / 4 + 4)) / (N * (12 / 4 + 3))
    assert even.seconds == pytest.approx(15 * even.message_s)
    assert even.message_s == pytest.approx(1e-5 + 4 * D / 1e9)
    assert strategy("psgd").cost(D, NETWORK, N).message_s == 0.0


def test_the_simulation_of_n_workers_counts_the_same():
    """Bytes and batches of the torch simulation on its clock, by those of the cost."""
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")
    from shardwise.plugins.sync import descend

    for periods in PERIODS:
        ticks, d, n = 120, 8, 12
        found = strategy("async_sgd", periods=periods)
        _, comm, state = descend(found, torch.zeros(n, d), lambda x, _: torch.ones_like(x), steps=ticks, lr=1.0, seed=0)
        batches = found.steps_in(ticks, n)
        assert sum(sum(event.sent) for event in comm.trace) == pytest.approx(
            found.cost(d, NETWORK, n).total_bytes * batches
        )
        # the server moved by 1 / n for every batch that arrived
        assert float(-state["server"][0, 0]) == pytest.approx(batches, rel=1e-5)
