"""Closed form and simulation tell one story: over random cases, and where they once did not."""

import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.arch import model_of
from shardwise.case import case_of
from shardwise.estimate.closed_form import estimate
from shardwise.schedules import schedules
from shardwise.simulate import simulate
from shardwise.simulate.agree import gap_of
from shardwise.software import stack_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.tasks.engine import run
from shardwise.tasks.longest import ROUNDS, Lengths, pipeline_ends
from shardwise.tasks.program import program_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from _agree_cases import cases
from _agree_simulation import simulation_gaps

CORE = stack_of("megatron-core")
CLUSTER = cluster_of("dgx-h100:64")
JOB = Job(seq=4096, global_batch=128)


@pytest.fixture(scope="module")
def gaps():
    """One of each fabric with each schedule."""
    return simulation_gaps(cases(66, seed=1))


def test_a_sample_of_random_cases_agrees(gaps) -> None:
    assert set(gaps.by_schedule) == set(schedules())
    assert gaps.p95 <= 0.03, gaps.worst
    assert gaps.largest <= 0.08, gaps.worst


def test_and_so_does_what_both_call_the_bubble(gaps) -> None:
    assert gaps.bubble_p95 <= 0.03


def test_deepseek_v3_runs_from_both_ends() -> None:
    """Its last stage has one layer and the extra prediction, the others four: a rank holds a stage and its mirror."""
    job = Job(seq=4096, global_batch=15360)
    policy = Policy(dp=128, pp=16, ep=64, zero=1, schedule="dualpipe", recompute="selective")
    found = simulate(case_of(model_of("deepseek-v3"), cluster_of("h800:2048"), job, stack_of("deepseek-hai")), policy)
    assert gap_of(found).share == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "overlapped", "zero_bubble_h1"])
@pytest.mark.parametrize("micro_batches", [2, 16])
def test_every_micro_batch_of_zero_2_reduces_on_all_stages(schedule: str, micro_batches: int) -> None:
    """Also while the pipeline fills and drains."""
    policy = Policy(dp=16, pp=4, zero=2, schedule=schedule, overlap_grad=False)
    found = simulate(
        case_of(model_of("llama-3-8b"), CLUSTER, replace(JOB, global_batch=16 * micro_batches), CORE), policy
    )
    assert found.costs.reduce_s.sum() * micro_batches > 0.1 * found.step_s
    assert gap_of(found).share == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("schedule", "vpp"), [("interleaved", 3), ("looped_bfs", 3), ("zb_v", 2), ("dualpipe_v", 2)])
def test_chunks_that_are_not_alike(schedule: str, vpp: int) -> None:
    """A hybrid's layers differ, and 52 of them do not make equal chunks."""
    policy = Policy(dp=8, pp=8, vpp=vpp, schedule=schedule)
    found = simulate(case_of(model_of("nemotron-h-8b"), CLUSTER, JOB, CORE), policy)
    assert gap_of(found).share == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(
    ("schedule", "vpp"), [("1f1b", 1), ("overlapped", 1), ("interleaved", 4), ("zero_bubble_h1", 1)]
)
def test_transfers_that_take_longer_than_compute(schedule: str, vpp: int) -> None:
    slow = CORE.changed(transfer_overhead_s=0.5)
    found = simulate(
        case_of(model_of("llama-3-8b"), CLUSTER, JOB, slow), Policy(dp=8, pp=8, vpp=vpp, schedule=schedule)
    )
    assert found.costs.transfer_s > (found.costs.forward + found.costs.input_gradient).max()
    assert gap_of(found).share == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize("name", sorted(schedules()))
def test_following_an_order_is_running_it(name: str) -> None:
    """Random seconds for every piece: the engine's end where every task is followed, nearly so where rounds repeat."""
    generator = np.random.default_rng(0)
    sizes = [(4, 1, 4), (4, 1, 12), (4, 2, 8), (4, 2, 32), (8, 1, 48), (3, 3, 9), (1, 1, 3)]
    tried = [size for size in sizes if not schedules()[name].legal(*size)]
    assert tried
    for pp, vpp, micro in tried:
        program = program_of(name, pp, vpp, micro)
        forward, back, weight = generator.uniform(0.8, 1.2, (3, program.stages, 1))
        stopped, under_way = 0.02, 0.05
        table = np.stack([forward, back + weight, back, weight])
        ends = pipeline_ends(name, pp, vpp, micro, Lengths(table, np.array([stopped]), np.array([under_way])))
        sends = np.zeros(len(program.rank), dtype=bool)
        sends[program.needs[program.crosses]] = True
        duration = table[program.kind, program.stage, 0] + stopped * sends
        waiting = np.repeat(np.arange(len(program.rank)), np.diff(program.tasks.need_start))
        delay = np.where(program.rank[program.need_source] != program.rank[waiting], under_way, 0.0)
        expected = run(program.tasks, duration, delay, np.zeros(len(duration))).end.max()
        exact = micro <= ROUNDS * pp
        assert ends.last.max() == pytest.approx(expected, rel=1e-12 if exact else 0.01), (pp, vpp, micro)
        busy = np.bincount(program.rank, weights=duration)
        assert ends.busy[:, 0] == pytest.approx(busy)


def test_policies_that_share_an_order_do_not_touch_each_other() -> None:
    case = case_of(model_of("llama-3-8b"), CLUSTER, JOB, CORE)
    rows = [Policy(dp=dp, tp=tp, pp=4, vpp=2, schedule=name, zero=zero, recompute=recompute)
            for dp, tp in ((16, 1), (8, 2)) for name in ("zb_v", "dualpipe_v") for zero in (0, 2)
            for recompute in ("none", "full")]  # fmt: skip
    together = estimate(case, Policies.of(rows)).times.step_s
    alone = [float(estimate(case, Policies.of([row])).times.step_s[0]) for row in rows]
    assert together.tolist() == pytest.approx(alone, rel=1e-12)
