"""Closed form and simulation tell one story: over random cases, and where they once did not."""

import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.plugins.schedules import schedules
from shardwise.spec.arch import model_from_shape, model_of
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from, cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import simulate
from shardwise.step.simulate.agree import gap_of
from shardwise.step.tasks import longest
from shardwise.step.tasks.engine import run
from shardwise.step.tasks.longest import ROUNDS, Ends, Lengths, Pipelines, pipeline_ends
from shardwise.step.tasks.program import program_of
from shardwise.work.case import case_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from _agree_cases import cases
from _agree_simulation import simulation_gaps

pytestmark = pytest.mark.xdist_group("simulation")  # they share what a fixture of theirs computes

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
    found = simulate(
        case_of(model_of("deepseek-v3"), cluster_of("h800:2048"), job, stack_of("megatron-core@hai-llm")), policy
    )
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


@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("gpipe", 1), ("overlapped", 1), ("dualpipe_v", 2)])
def test_the_stage_whose_replicas_lie_worst_is_passed_once(schedule: str, vpp: int) -> None:
    """Nine stages of 16 GPUs on two racks of 72: the fifth is in both, and every micro-batch of ZeRO-2 reduces."""
    case = case_of(model_of("llama-3-8b"), cluster_from("gb200", 144, 72), replace(JOB, global_batch=144), CORE)
    policy = Policy(dp=8, tp=2, pp=9, vpp=vpp, zero=2, schedule=schedule)
    found = simulate(case, policy)
    per_rank = found.costs.reduce_s.sum(axis=1)
    assert per_rank.argmax() == 4
    assert per_rank[4] > 3 * per_rank[5]
    assert gap_of(found).share == pytest.approx(0.0, abs=0.01)
    few = float(estimate(case, Policies.of([policy])).times.step_s[0])
    assert few == pytest.approx(float(found.closed.times.step_s[0]), rel=0.02)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("schedule", "vpp"), [("interleaved", 2), ("looped_bfs", 2), ("dualpipe_v", 2), ("dualpipe", 1)]
)
def test_the_ends_of_the_model_have_more_to_reduce_than_other_chunks(schedule: str, vpp: int, tied: bool) -> None:
    """Where each micro-batch reduces. A rank that holds both ends has a tied table once."""
    model = model_from_shape("wide", 8, 2048, 16, 16, 8192, False, 256_000, tied=tied)
    policy = Policy(dp=16, pp=4, vpp=vpp, zero=2, schedule=schedule, overlap_grad=False)
    found = simulate(case_of(model, CLUSTER, replace(JOB, global_batch=256), CORE), policy)
    assert found.costs.reduce_s.max() > 3 * found.costs.reduce_s.min()
    assert gap_of(found).share == pytest.approx(0.0, abs=0.03)


def test_a_chunk_that_all_micro_batches_have_passed_reduces_under_the_others() -> None:
    """Its gradients are ready the sooner the more micro-batches follow, also beyond those that are followed."""
    policy = Policy(dp=32, pp=2, vpp=3, zero=0, schedule="looped_bfs")
    slow = Cluster(name="slow", gpu=CLUSTER.gpu, gpus=64, levels=(CLUSTER.levels[0], Level(
        name="leaf", kind="network", degree=8, bandwidth=1e9, latency_s=3e-6)))  # fmt: skip
    found = simulate(case_of(model_of("llama-3-8b"), slow, replace(JOB, global_batch=32 * 24), CORE), policy)
    assert found.program.micro_batches > ROUNDS * policy.pp
    assert found.costs.reduce_s.sum(axis=1).max() > 0.1 * found.step_s
    assert gap_of(found).share == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("layers", [16, 15])
def test_slow_messages_of_all_forwards_and_then_of_all_backwards(layers: int, overlap: bool) -> None:
    """The first stage sends one output more, the last one gradient more: each half waits for another of them."""
    model = model_from_shape("small", layers, 1024, 16, 16, 4096, False, 32_000, tied=False)
    slow = CORE.changed(transfer_overhead_s=0.5)
    policy = Policy(dp=32, pp=2, vpp=4 if layers == 16 else 3, schedule="looped_bfs", overlap_pp=overlap)
    found = simulate(case_of(model, CLUSTER, replace(JOB, global_batch=32 * 32), slow), policy)
    assert gap_of(found).share == pytest.approx(0.0, abs=0.03)


def _ends_of(name: str, pp: int, vpp: int, micro: list[int], lengths: Lengths) -> Ends:
    return pipeline_ends([Pipelines(name, pp, vpp, np.array(micro), lengths)])[0]


def test_no_rank_is_done_before_it_has_done_its_work() -> None:
    """With few micro-batches it waits for messages, in time that more of them would fill."""
    lengths = Lengths(np.full((4, 6, 1), 0.04), np.arange(6), np.array([0.04]), np.array([0.24]))
    ends = _ends_of("looped_bfs", 2, 3, [32], lengths)
    assert (ends.last >= ends.first + ends.busy - 1e-12).all()


def test_a_heavy_first_stage_that_runs_far_ahead() -> None:
    """Stages that take in all micro-batches before their first backward wait as if the pipeline ended with them."""
    model = model_from_shape("small", 42, 1024, 16, 16, 4096, False, 128_256, tied=True)
    case = case_of(model, cluster_of("dgx-h100:128"), Job(seq=1024, global_batch=16), stack_of("nanotron"))
    found = simulate(case, Policy(tp=8, pp=16, schedule="overlapped"))
    assert found.costs.forward[0] > found.costs.forward[1:].max()
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
        each = np.arange(program.stages)
        ends = _ends_of(name, pp, vpp, [micro], Lengths(table, each, np.array([stopped]), np.array([under_way])))
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


@pytest.mark.parametrize("name", ["interleaved", "looped_bfs", "interleaved_zero_bubble"])
def test_pipelines_of_all_lengths_at_once(name: str) -> None:
    """What repeats its rounds beside what does not."""
    micro, generator = [8, 4, 40, 12, 80, 4], np.random.default_rng(2)
    table, stopped, under_way = generator.uniform(0.8, 1.2, (4, 8, 6)), np.linspace(0.01, 0.02, 6), np.full(6, 0.05)
    together = _ends_of(name, 4, 2, micro, Lengths(table, np.arange(8), stopped, under_way))
    for column in range(len(micro)):
        one = Lengths(table[..., [column]], np.arange(8), stopped[[column]], under_way[[column]])
        alone = _ends_of(name, 4, 2, [micro[column]], one)
        for field in ("first", "last", "busy", "begin", "ready", "still_busy"):
            found = getattr(together, field)[..., [column]]
            np.testing.assert_allclose(found, getattr(alone, field), rtol=1e-12, atol=1e-12)


def test_schedules_side_by_side_do_not_touch_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules, stages and micro-batches of all kinds in one go, or in as many as there are blocks of policies."""
    generator, asked = np.random.default_rng(3), []
    for name in sorted(schedules()):
        for pp, vpp, micro in ((4, 1, 4), (4, 2, 24), (2, 2, 8), (8, 1, 16)):
            if not schedules()[name].legal(pp, vpp, micro):
                pieces = program_of(name, pp, vpp, micro).stages
                # two pieces of each kind: the table has them once
                table = generator.uniform(0.8, 1.2, (4, -(-pieces // 2), 3))
                lengths = Lengths(table, np.arange(pieces) // 2, *generator.uniform(0.01, 0.1, (2, 3)))
                asked.append(Pipelines(name, pp, vpp, np.full(3, micro), lengths))
    together = pipeline_ends(asked)
    monkeypatch.setattr(longest, "TOGETHER", 1)
    for found in (pipeline_ends(asked), [pipeline_ends([each])[0] for each in asked]):
        for one, all_ in zip(found, together, strict=True):
            for field in ("first", "last", "busy", "begin", "ready", "still_busy"):
                np.testing.assert_allclose(getattr(one, field), getattr(all_, field), rtol=1e-12, atol=1e-12)


def test_policies_that_share_an_order_do_not_touch_each_other() -> None:
    case = case_of(model_of("llama-3-8b"), CLUSTER, JOB, CORE)
    rows = [Policy(dp=dp, tp=tp, pp=4, vpp=2, schedule=name, zero=zero, recompute=recompute)
            for dp, tp in ((16, 1), (8, 2)) for name in ("zb_v", "dualpipe_v") for zero in (0, 2)
            for recompute in ("none", "full")]  # fmt: skip
    together = estimate(case, Policies.of(rows)).times.step_s
    alone = [float(estimate(case, Policies.of([row])).times.step_s[0]) for row in rows]
    assert together.tolist() == pytest.approx(alone, rel=1e-12)
