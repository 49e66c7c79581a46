"""Failures, saves and restarts: published totals, and the closed form against runs drawn at random."""

import random

import pytest

from shardwise.spec.hardware import Electricity
from shardwise.step.operate.elastic import replica_share, shrunk_share
from shardwise.step.operate.failures import published, published_rates, rates_of
from shardwise.step.operate.goodput import PARTS, Restart, Saves, goodput_of
from shardwise.step.operate.intervals import best_s, daly_s, young_s
from shardwise.step.operate.sampled import Sampling, sample
from shardwise.step.operate.spares import pool

HOUR, DAY = 3600.0, 86_400.0


def _saves(stall: float, lands: float = 0.0) -> Saves:
    return Saves(kind="sync", stall_s=stall, lands_s=lands, bytes=0.0)


def _restart(down: float, recovery: float) -> Restart:
    return Restart(detect_s=down, schedule_s=0.0, start_s=recovery, load_s=0.0)


def _llama() -> float:
    return published_rates("llama-3").mean_between_s(16_384)


def test_llama_3_was_interrupted_419_times_in_54_days():
    rates = published_rates("llama-3")
    assert 54 * DAY / _llama() == pytest.approx(419)
    assert _llama() / HOUR == pytest.approx(3.09, abs=0.005)
    assert rates.per_thousand_node_days == pytest.approx(3.79, abs=0.005)
    assert 1 / (rates.by_component["network"] * HOUR) == pytest.approx(606_676, rel=1e-3)


@pytest.mark.parametrize(("name", "gpus", "hours"), [
    ("rsc-1", 16_384, 1.80), ("rsc-1", 131_072, 0.225), ("rsc-2", 16_384, 5.01), ("rsc-1", 1_024, 28.8),
])  # fmt: skip
def test_fleet_rates_give_the_papers_times_between_failures(name, gpus, hours):
    assert published_rates(name).mean_between_s(gpus) / HOUR == pytest.approx(hours, rel=0.005)


def test_a_small_job_of_that_fleet_failed_more_often_than_its_nodes_do():
    """7.9 h were measured at 1,024 GPUs where the rate of nodes says 28.8: small jobs die of other causes."""
    assert published_rates("rsc-1").mean_between_s(1_024) / HOUR > 3 * 7.9


@pytest.mark.parametrize(("stall", "young", "daly", "exact"), [
    (60.0, 1155.9, 1116.29, 1116.30), (10.0, 471.9, 465.27, 465.27),
])  # fmt: skip
def test_three_laws_of_the_interval(stall, young, daly, exact):
    between = 11_135.0
    assert young_s(stall, between) == pytest.approx(young, abs=0.06)
    assert daly_s(stall, between) == pytest.approx(daly, abs=0.02)
    assert best_s(stall, between) == pytest.approx(exact, abs=0.02)


def test_the_exact_interval_is_where_most_is_useful():
    saves, restart = _saves(30.0), _restart(600.0, 300.0)
    best = goodput_of(saves, restart, 5_000.0)
    for factor in (0.8, 0.95, 1.05, 1.25):
        assert goodput_of(saves, restart, 5_000.0, best.interval_s * factor).share < best.share


@pytest.mark.parametrize(("stall", "down", "recovery", "share"), [
    (10, 0, 600, 0.908), (20, 0, 300, 0.916), (60, 0, 600, 0.853), (10, 600, 300, 0.885), (10, 30, 300, 0.930),
])  # fmt: skip
def test_worked_examples_at_the_rate_of_llama_3(stall, down, recovery, share):
    assert goodput_of(_saves(stall), _restart(down, recovery), _llama()).share == pytest.approx(share, abs=6e-4)


def test_llama_3_could_reach_90_percent_only_with_short_saves():
    between = _llama()
    assert goodput_of(_saves(14.0), _restart(0, 600), between).share > 0.9
    assert goodput_of(_saves(16.0), _restart(0, 600), between).share < 0.9
    assert goodput_of(_saves(33.0), _restart(0, 300), between).share > 0.9
    assert goodput_of(_saves(36.0), _restart(0, 300), between).share < 0.9


def test_the_fleet_papers_claims():
    rate = published_rates("rsc-1")
    hourly = Saves(kind="sync", stall_s=0.0, lands_s=0.0, bytes=0.0)
    for gpus, share in ((4_096, 0.919), (2_048, 0.960)):
        found = goodput_of(hourly, _restart(0, 300), rate.mean_between_s(gpus), HOUR)
        assert found.share == pytest.approx(share, abs=0.012)
        assert found.share > 0.9


@pytest.mark.parametrize("lands", [0.0, 51.0])
@pytest.mark.parametrize(("between", "stall"), [(11_135.0, 10.0), (2_000.0, 30.0), (100_000.0, 1.0)])
def test_closed_form_and_drawn_runs_agree_within_a_hundredth(between, stall, lands):
    saves, restart = _saves(stall, lands), _restart(300.0, 240.0)
    found = goodput_of(saves, restart, between)
    drawn = sample(40 * DAY, found.interval_s, saves, restart, between, Sampling(runs=2_000, seed=3))
    assert drawn.seconds.mean() * found.share == pytest.approx(40 * DAY, rel=0.01)
    assert drawn.failures.mean() == pytest.approx(found.failures_per_s * drawn.seconds.mean(), rel=0.02)


def test_parts_add_up():
    found = goodput_of(_saves(10.0, 20.0), _restart(100.0, 200.0), 9_000.0, planned_per_s=1e-5)
    assert list(found.parts) == list(PARTS)
    assert sum(found.parts.values()) == pytest.approx(1.0)
    assert min(found.parts.values()) >= 0
    assert found.parts["work"] == pytest.approx(found.share)


def test_same_seed_same_runs_and_spares_that_run_out_cost_time():
    def drawn(spares: int | None, seed: int = 1) -> float:
        how = Sampling(runs=200, seed=seed, spares=spares, repair_s=3 * DAY)
        return float(sample(30 * DAY, 400.0, _saves(5.0), _restart(60, 60), 20_000.0, how).seconds.mean())

    assert drawn(4) == drawn(4)
    assert drawn(4) != drawn(4, seed=2)
    assert drawn(0) > drawn(4) > drawn(12) > drawn(60)
    assert drawn(60) == pytest.approx(drawn(None), rel=0.01)


def test_failures_in_clusters_spread_the_runs():
    def width(shape: float) -> float:
        low, _, high = sample(20 * DAY, 400.0, _saves(5.0), _restart(600, 600), 9_000.0,
                              Sampling(runs=800, seed=1, shape=shape)).spread()  # fmt: skip
        return high - low

    assert width(0.5) > 1.3 * width(1.0)


def test_a_predicted_step_spreads_the_runs_as_its_band_does():
    runs = sample(20 * DAY, 400.0, _saves(5.0), _restart(60, 60), 90_000.0, Sampling(runs=4000, seed=1))
    low, middle, high = runs.spread((-0.1, 0.8), seed=1)
    assert (low / middle, high / middle) == (pytest.approx(0.9, abs=0.02), pytest.approx(1.8, abs=0.08))
    assert runs.spread((-0.1, 0.8), seed=1) == runs.spread((-0.1, 0.8), seed=1)
    plain = runs.spread()
    assert plain[2] / plain[0] < 1.02


def test_a_pool_covers_the_nodes_in_repair():
    rate = 6.5e-3 / 24
    assert [pool(1_024 * rate * hours) for hours in (4, 72)] == [4, 31]
    assert pool(2_048 * rate * 72) == 55


def test_replicas_that_go_on_alone():
    rates = published_rates("llama-3")
    for replicas, hours, share in ((128, 2, 0.989), (128, 1 / 6, 0.993), (16, 2, 0.955), (16, 1 / 6, 0.990)):
        assert replica_share(rates, 16_384, replicas, hours * HOUR, 30.0, 20.0) == pytest.approx(share, abs=1.5e-3)


def test_fewer_nodes_cost_only_while_nodes_are_away():
    assert shrunk_share(0.0, 0.5) == 1.0
    assert 0.5 < shrunk_share(1.0, 0.5) < 1.0
    assert shrunk_share(50.0, 0.5) == pytest.approx(0.5)


def test_a_count_of_ones_own_and_a_time_between_failures():
    assert rates_of("419/16384x54d", 8).per_gpu == pytest.approx(published_rates("llama-3").per_gpu)
    assert rates_of("3.1 h", 1_000).mean_between_s(1_000) == pytest.approx(3.1 * HOUR)
    assert rates_of("off", 8).mean_between_s(8) == float("inf")
    assert [rates.name for rates in published()] == ["rsc-2", "llama-3", "rsc-1", "opt-175b"]


@pytest.mark.parametrize("text", ["often", "0/8x1d", "5/0x1d", "5/8x", "0 s", "nan/8x1d", "1e12/8x1d"])
def test_rates_that_cannot_be_read_are_named(text):
    with pytest.raises(ValueError, match="failures: "):
        rates_of(text, 8)


def test_a_run_that_cannot_save_is_refused():
    with pytest.raises(ValueError, match="leaves no time to recover"):
        goodput_of(_saves(10.0), _restart(60, 600), 50.0)


def test_opt_175b_restarted_far_more_often_than_later_clusters_would():
    """33 days of work at 147 TFLOP/s on 1,024 GPUs took 56; its rate is four times that of Llama 3."""
    assert pytest.approx(33.06, abs=0.01) == 4.30e23 / (147e12 * 1024) / DAY
    rates = published_rates("opt-175b")
    assert 56 * DAY / rates.mean_between_s(992) == pytest.approx(105)
    assert 56 * DAY / published_rates("llama-3").mean_between_s(992) < 30
    assert rates.per_thousand_node_days / published_rates("llama-3").per_thousand_node_days == pytest.approx(
        4.0, abs=0.1
    )


def test_megascale_restarts_and_useful_share():
    """Over 100 restarts in weeks on over 10,000 GPUs, noticed within 10 minutes, caught up within 15: over 90 %."""
    between = published_rates("llama-3").mean_between_s(12_288)
    assert 28 * DAY / between > 100
    at_the_limits = goodput_of(_saves(1.0), _restart(600, 900), between).share
    within_them = goodput_of(_saves(1.0), _restart(400, 600), between).share
    assert 0.88 < at_the_limits < 0.9 < within_them


def test_energy_of_the_source_documents():
    """50,000 GPUs of 350 W for 60 days: 17.5 MW over 1,440 h."""
    joules = 50_000 * 350 * 60 * DAY
    assert joules / 3.6e9 == pytest.approx(25_200)
    assert Electricity(usd_per_kwh=0.10, pue=1.0, host_share=1.0).usd(joules) == pytest.approx(2.52e6)


@pytest.mark.parametrize(("between", "replaced", "step"), [(3.0, 0.6, 0.25), (15.0, 2.0, 0.5), (1.0, 1.5, 0.2)])
def test_replicas_that_leave_and_join_step_by_step(between, replaced, step):
    """Replayed: a kill hits one of four at random, a step has those who lived through all of it."""
    draw, now, made, steps = random.Random(3), 0.0, 0, 0
    back, due = [0.0] * 4, draw.expovariate(1 / between)
    while steps < 40_000:
        whole = [back[replica] <= now for replica in range(4)]
        now += step
        while due <= now:
            replica = draw.randrange(4)
            whole[replica], back[replica] = False, due + replaced
            due += draw.expovariate(1 / between)
        if any(whole):
            steps, made = steps + 1, made + sum(whole)
    expected = replica_share(rates_of(f"{between} s", 4), 4, 4, replaced, 0.0, step, others_lose=0.0)
    assert made * step / 4 / now == pytest.approx(expected, rel=0.01)
