"""The joint loop: as long as the simulation where nothing is shared, all bytes carried, no link beyond its capacity."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.fabric import tree_of
from shardwise.fabric.calls import calls_of
from shardwise.fabric.demand import Demand, Part, demand_of
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.shares import Row, SharedLinks
from shardwise.fabric.step import step_load
from shardwise.question.studies.fabric.series import series_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.step.simulate import simulate
from shardwise.step.simulate.joint import joint_step
from shardwise.step.simulate.step import composed
from shardwise.step.tasks.program import program_of
from shardwise.work.case import case_of, driven_network
from small_steps import costs

STACK = stack_of("megatron-core")
DENSE = ("llama-3-8b", "dgx-h100:64")
CASES = [
    (*DENSE, Policy(dp=64, zero=0)),
    (*DENSE, Policy(dp=64, zero=2)),
    (*DENSE, Policy(dp=64, zero=3)),
    (*DENSE, Policy(dp=64, zero=3, shard_group=8)),
    (*DENSE, Policy(tp=2, cp=4, dp=8, zero=1, recompute="full")),
    (*DENSE, Policy(tp=2, pp=4, dp=8)),
    (*DENSE, Policy(tp=2, pp=4, dp=8, overlap_grad=False, overlap_param=False, overlap_pp=False)),
    (*DENSE, Policy(tp=2, pp=4, vpp=2, dp=8, schedule="interleaved")),
    (*DENSE, Policy(tp=2, pp=4, dp=8, schedule="zero_bubble_h1")),
    (*DENSE, Policy(tp=2, pp=4, vpp=2, dp=8, schedule="zb_v")),
    (*DENSE, Policy(tp=2, pp=4, dp=8, schedule="dualpipe")),
    ("llama-3.2-1b", "dgx-h100:64", Policy(pp=4, dp=16)),
    ("mixtral-8x7b", "dgx-h100:64", Policy(tp=2, dp=32, ep=8)),
    ("deepseek-v3", "h800:256", Policy(pp=8, dp=32, ep=32, recompute="full")),
]


def studied(model, cluster, policy, batch=128):
    place = cluster_of(cluster) if isinstance(cluster, str) else cluster
    found = simulate(case_of(model_of(model), place, Job(seq=4096, global_batch=batch), STACK), policy)
    tree = tree_of(place)
    prices = Prices(tree, driven_network(place, STACK), seats_of(policy, tree))
    load = step_load(prices, calls_of(found.closed.work))
    return found, load, demand_of(load)


@pytest.mark.parametrize(("model", "cluster", "policy"), CASES, ids=lambda v: str(v)[:60])
def test_without_sharing_it_is_the_simulation(model, cluster, policy):
    found, load, demand = studied(model, cluster, policy)
    step = joint_step(found, demand, sharing=False)
    assert step.step_s == pytest.approx(found.step_s, rel=0.02)
    assert np.isfinite(step.start).all()
    assert (step.end >= step.start).all()
    shared = joint_step(found, demand)
    assert shared.step_s >= step.step_s * (1 - 1e-6)
    series = series_of(load, demand, shared, range(len(load.prices.fabric.links)), bins=4000)
    assert max(series.peaks.values()) <= 1.0 + 1e-9
    links = load.prices.fabric.links
    for tier, mean in series.means.items():
        sent = mean.sum() * series.bin_s * links.capacity[links.tier == tier].sum()
        assert sent == pytest.approx(load.total[links.tier == tier].sum(), rel=0.01)


def test_kinds_on_the_same_links_slow_each_other():
    """Experts and gradients meet on the cards; the more so the thinner the fabric above them."""
    cluster = cluster_of("dgx-h100:512")
    grown = []
    for over in (1.0, 8.0):
        thin = replace(cluster, levels=(*cluster.levels[:2], replace(cluster.levels[2], oversubscription=over)))
        found, _, demand = studied("qwen3-30b-a3b", thin, Policy(dp=512, ep=64), 1024)
        shared, alone = joint_step(found, demand), joint_step(found, demand, sharing=False)
        assert shared.lost_s["dp", "ep"] > 0
        assert shared.lost_s["ep", "dp"] > 0
        grown.append(shared.step_s - alone.step_s)
    assert 0 < grown[0] < 0.05 * shared.step_s


def by_hand(rows, parts, **given):
    """One rank, two micro-batches of forward and backward of a second each."""
    program = program_of("1f1b", 1, 1, 2)
    simulation = composed(Policy(dp=2), None, program, costs(program, **given))  # type: ignore[arg-type]
    return joint_step(simulation, Demand(SharedLinks(tuple(rows)), parts))


def row(lane):
    return Row("dp", lane, 0, np.ones(1), np.ones(1), 1.0)


@pytest.fixture
def one_layer(monkeypatch):
    monkeypatch.setattr("shardwise.step.simulate.joint_tasks._turns", lambda *_: 1)


@pytest.mark.usefixtures("one_layer")
class TestByHand:
    def test_a_reduction_hides_under_the_last_backward_and_idle_time(self):
        shape = np.full((1, 1), 1.5)
        step = by_hand([row("grad")], {("grad", 0, 0, "step"): (Part(0, 0.0, 1.5),)}, reduce_s=shape)
        # tasks: forward, backward (2 s), forward, backward; the reduction starts with the last, at 4 s
        assert step.pipeline_end_s == pytest.approx(6.0)
        assert step.reduced == ((pytest.approx(4.0), pytest.approx(5.5)),)
        assert step.step_s == pytest.approx(6.0)

    def test_what_cannot_hide_comes_after(self):
        shape = np.full((1, 1), 4.0)
        step = by_hand([row("grad")], {("grad", 0, 0, "step"): (Part(0, 1.0, 3.0),)}, reduce_s=shape, hidden_share=0.5)
        # half of it at half pace under 2 s of backward: one second done, then 3 s alone
        assert step.synced_s == pytest.approx(9.0)

    def test_a_gather_comes_first(self):
        shape = np.full((1, 1), 3.0)
        parts = {("param", 0, 0, "step"): (Part(0, 0.0, 3.0),)}
        step = by_hand([row("param")], parts, gather_s=shape, overlap_param=False)
        assert step.start[0] == pytest.approx(3.0)
        assert step.step_s == pytest.approx(9.0)
        hidden = by_hand([row("param")], parts, gather_s=shape, overlap_param=True)
        assert hidden.start[0] == pytest.approx(2.0)

    def test_two_lanes_on_one_link_take_turns(self):
        """A gather of the whole step and the reduction of its last second share the link."""
        parts = {("param", 0, 0, "step"): (Part(0, 0.0, 1.0),), ("grad", 0, 0, "step"): (Part(1, 0.0, 2.0),)}
        step = by_hand([row("param"), row("grad")], parts, gather_s=np.full((1, 1), 1.0),
                       reduce_s=np.full((1, 1), 2.0))  # fmt: skip
        assert not step.lost_s
        assert step.step_s == pytest.approx(6.0)
