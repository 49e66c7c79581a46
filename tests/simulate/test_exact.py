"""What is known exactly about pipelines of equal pieces."""

import numpy as np
import pytest

from shardwise.plugins.schedules import schedules
from shardwise.spec.policy import Policy
from shardwise.step.simulate.live import memory_steps
from shardwise.step.simulate.noise import Straggler
from shardwise.step.simulate.pipeline import reductions, timed
from shardwise.step.simulate.spans import Rows, joined
from shardwise.step.simulate.step import composed
from shardwise.step.simulate.timeline import KINDS, MEMORY, MemorySteps, Timeline
from shardwise.step.tasks.engine import Tasks, run
from shardwise.step.tasks.program import program_of
from small_steps import costs, timeline_of, unit_run

SIZES = [(1, 1, 6), (2, 1, 4), (4, 1, 16), (8, 1, 32), (4, 2, 16), (4, 3, 12), (6, 2, 24), (8, 4, 32), (16, 2, 64)]
ONES = np.ones(16)


@pytest.mark.parametrize("name", sorted(schedules()))
def test_idle_time_is_the_schedules_law(name):
    tried = [size for size in SIZES if not schedules()[name].legal(*size)]
    assert tried
    for pp, vpp, m in tried:
        program, found = unit_run(name, pp, vpp, m)
        busy = 3.0 * vpp * m
        law = float(schedules()[name].idle(pp, vpp, m))
        assert (found.end.max() - busy) / (3.0 * vpp) == pytest.approx(law), (pp, vpp, m)
        share = law / (m + law)
        assert timeline_of(program, found).bubble_share() == pytest.approx(share)


@pytest.mark.parametrize(("stages", "m"), [(2, 4), (4, 4), (8, 32), (16, 64)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_n_minus_1_over_m(name, stages, m):
    program, found = unit_run(name, stages, 1, m)
    timeline = timeline_of(program, found)
    assert timeline.bubble_share() == pytest.approx((stages - 1) / (m + stages - 1))
    idle = timeline.pipeline_s() - timeline.busy_s()
    assert idle / timeline.busy_s() == pytest.approx((stages - 1) / m)


@pytest.mark.parametrize("chunks", [2, 3, 4, 8])
def test_interleaving_divides_the_bubble(chunks):
    plain, cut = unit_run("1f1b", 4, 1, 16)[1], unit_run("interleaved", 4, chunks, 16)[1]
    idle = plain.end.max() - 3 * 16
    assert cut.end.max() - 3 * 16 * chunks == pytest.approx(idle)  # in units that are 1/chunks as long


def test_zero_bubble_reaches_its_published_bubble():
    # arXiv:2401.10241: (p-1)(F + B - W) for ZB-H1, here with F = B = W = 1; 1F1B has (p-1)(F + B + W)
    for pp in (2, 4, 8, 16):
        _, found = unit_run("zero_bubble_h1", pp, 1, 4 * pp)
        assert found.end.max() - 3 * 4 * pp == pytest.approx((pp - 1) * (1 + 1 - 1))
    program, found = unit_run("zb_v", 4, 2, 16)
    for rank in range(4):  # no rank ever waits between its first and its last piece
        mine = program.rank == rank
        assert found.end[mine].max() - found.start[mine].min() == pytest.approx(3 * 2 * 16)


def test_four_gpus_four_micro_batches():
    """A forward and a backward in the same time step: two lanes a GPU, the last stage does both at once."""
    stages, m = 4, 4
    lanes = [m] * (2 * stages)
    needs, delay = [], []
    for stage in range(stages):
        needs += [[(stage - 1) * m + j] if stage else [] for j in range(m)]
        delay += [0.0] * (m if stage else 0)
    for stage in range(stages):
        last = stage == stages - 1
        needs += [[(stages - 1) * m + j if last else (stages + stage + 1) * m + j] for j in range(m)]
        delay += [-1.0 if last else 0.0] * m
    found = run(Tasks.of(lanes, needs), np.ones(2 * stages * m), np.array(delay), np.zeros(2 * stages * m))
    active = np.zeros((stages, 10))
    for task, (start, end) in enumerate(zip(found.start, found.end, strict=True)):
        active[task // m % stages, round(start) : round(end)] = 1
    assert (100 * active.mean(axis=0)).tolist() == [25, 50, 75, 100, 75, 75, 100, 75, 50, 25]


def test_active_shares_of_unit_steps():
    program, found = unit_run("gpipe", 3, 1, 2)
    shares = timeline_of(program, found).active(12)
    # forwards in steps 0-3, then two backwards of two steps each go up the stages
    expected = np.array([1, 2, 2, 1, 1, 1, 2, 2, 2, 2, 1, 1]) / 3
    assert shares == pytest.approx(expected)


def simulated(program, cost, dp=1, stragglers=()):
    policy = Policy(dp=dp, pp=program.pp)
    return composed(policy, None, program, cost, stragglers)


def test_a_slow_stage_by_hand():
    program = program_of("1f1b", 2, 1, 4)
    healthy = simulated(program, costs(program), dp=8)
    assert healthy.step_s == 5 * 3
    # stage 1 takes 2 + 4: the first forward of stage 0, four of these, the last backward of stage 0
    slow = simulated(program, costs(program), dp=8, stragglers=[Straggler(stage=1, factor=2.0)])
    assert slow.step_s == 1 + 4 * 6 + 2
    assert [pipe.replicas for pipe in slow.pipelines] == [7, 1]


def test_a_slow_link_by_hand():
    program = program_of("1f1b", 2, 1, 1)
    cost = costs(program, transfer_s=0.5, stopped_share=0.2)
    assert simulated(program, cost).step_s == pytest.approx(6 + 2 * 0.5)
    assert simulated(program, cost, stragglers=[Straggler(stage=0, factor=3.0, link=True)]).step_s == pytest.approx(9)


def test_uneven_stages_by_hand():
    program = program_of("gpipe", 3, 1, 5)
    cost = costs(program, forward=np.array([1.0, 3.0, 2.0]), back=np.array([1.0, 3.0, 2.0]), weight=0.0)
    assert simulated(program, cost).step_s == (1 + 5 * 3 + 2) * 2


def test_a_reduction_hides_under_the_last_backward_as_far_as_it_may():
    program = program_of("1f1b", 1, 1, 3)
    for seconds, share, slowdown in [(1.0, 0.8, 0.1), (5.0, 0.8, 0.1), (5.0, 1.0, 0.0), (0.5, 0.0, 0.0)]:
        cost = costs(program, reduce_s=np.array([[seconds]]), hidden_share=share, slowdown=slowdown)
        hidden = share * min(seconds, 2.0)
        assert simulated(program, cost).step_s == pytest.approx(9 + seconds - hidden + slowdown * hidden)
    apart = costs(program, reduce_s=np.array([[5.0]]), overlap_grad=False)
    assert simulated(program, apart).step_s == 9 + 5


def test_a_rank_that_is_idle_reduces_for_free():
    program = program_of("1f1b", 2, 1, 2)
    cost = costs(program, reduce_s=np.array([[0.0], [2.0]]), hidden_share=0.5)
    tasks = timed(program, cost, ONES, ONES)
    found = tasks.run(program)
    _, end = reductions(program, cost, tasks, found)
    assert end[1, 0] == found.end[program.rank == 1].max() + 1.0  # one of two seconds hid
    assert simulated(program, cost).step_s == found.end.max()


def test_a_gather_delays_the_first_forward_only_where_nothing_else_does():
    program = program_of("1f1b", 2, 1, 2)
    base = simulated(program, costs(program)).step_s
    late = simulated(program, costs(program, gather_s=np.array([[0.0], [1.0]]), overlap_param=False))
    early = simulated(program, costs(program, gather_s=np.array([[1.0], [0.0]]), overlap_param=False))
    assert late.step_s == base
    assert early.step_s == base + 1


def test_replicas_that_are_equal_cost_nothing_and_any_of_them_may_be_slow():
    program = program_of("1f1b", 4, 1, 8)
    one, many = simulated(program, costs(program), dp=1), simulated(program, costs(program), dp=4096)
    assert one.step_s == many.step_s
    assert len(many.pipelines) == 1
    slow = [Straggler(stage=1, factor=1.5), Straggler(stage=2, factor=1.5)]
    there = simulated(program, costs(program), dp=8, stragglers=slow)
    back = simulated(program, costs(program), dp=8, stragglers=slow[::-1])
    assert there.step_s == back.step_s


def held_most(name, pp, vpp, m, **given):
    program, found = unit_run(name, pp, vpp, m)
    held = costs(program, **given).held
    return Timeline(
        spans=timeline_of(program, found).spans, memory=memory_steps(program, found, held, np.arange(pp)),
        stage=np.arange(pp), gpus=np.ones(pp, dtype=np.int64), step_s=1.0,
    ).peaks()  # fmt: skip


@pytest.mark.parametrize("name", sorted(schedules()))
def test_memory_in_flight_is_the_schedules_law(name):
    split = schedules()[name].splits_backward
    for pp, vpp, m in [size for size in SIZES if not schedules()[name].legal(*size)]:
        found = np.array([peak.bytes for peak in held_most(name, pp, vpp, m)]) / vpp
        law = np.asarray(schedules()[name].in_flight(np.arange(pp), pp, vpp, m), dtype=float)
        if split:  # what the input gradient alone needed is gone before the weight gradient runs
            assert (found <= law + 1e-9).all()
            assert (found >= law * 32 / 34 - 1e-9).all()
        else:
            assert found == pytest.approx(law)


def test_memory_is_empty_again_and_a_peak_is_explained():
    program, found = unit_run("zero_bubble_h1", 4, 1, 8)
    steps = memory_steps(program, found, costs(program).held, np.arange(4))
    for rank in range(4):
        assert steps.bytes[steps.rank == rank].sum() == pytest.approx(0.0)
    for peak in held_most("1f1b", 4, 1, 8):
        assert sum(peak.kinds.values()) == pytest.approx(peak.bytes)
        assert set(peak.kinds) == set(MEMORY)


def test_a_measured_timeline_needs_no_pipeline():
    one = np.array([0])
    rows = Rows("compute", np.array([KINDS.index("forward")]), one, one, one, np.array([1.0]), np.array([3.0]),
                np.zeros(1), np.array([-1]))  # fmt: skip
    memory = MemorySteps(rank=one, time_s=np.array([0.5]), kind=one, bytes=np.array([7.0]))
    timeline = Timeline(joined([rows]), memory, stage=one, gpus=np.array([1]), step_s=4.0)
    assert timeline.busy_share().tolist() == [0.5]
    assert timeline.peaks()[0].bytes == 7.0
