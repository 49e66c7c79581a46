"""Ranks on GPUs, calls of a step, loads of links over time, what-ifs and the requirement sheet."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.calls import calls_of
from shardwise.fabric.demand import demand_of
from shardwise.fabric.duration import duration_of
from shardwise.fabric.orders import orders_of
from shardwise.fabric.place import DEALS, seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.requirement import GROWTHS, requirement_of
from shardwise.fabric.series import spread
from shardwise.fabric.step import step_load
from shardwise.fabric.whatif import collectives_s, variants_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of, driven_network

STACK = stack_of("megatron-core")
EXPERTS = "qwen3-30b-a3b"
DENSE = ("llama-3-8b", "dgx-h100:64", Policy(tp=4, pp=2, dp=8))
CASES = [
    DENSE,
    ("llama-3-8b", "dgx-h100:64", Policy(dp=64, zero=3)),
    ("llama-3-8b", "dgx-h100:64", Policy(dp=64, zero=3, shard_group=8)),
    ("llama-3-8b", "dgx-h100:512", Policy(tp=8, pp=4, dp=16, vpp=2, schedule="interleaved")),
    ("llama-3-8b", "dgx-h100:64", Policy(tp=2, cp=4, dp=8, zero=0)),
    ("mixtral-8x7b", "dgx-h100:64", Policy(tp=2, dp=32, ep=8)),
    ("mixtral-8x7b", "gb200-nvl72:144", Policy(dp=144, ep=8, micro_batch=1)),
]


def step_of(model, cluster, policy, wiring=None, **seats):
    place = cluster_of(cluster) if isinstance(cluster, str) else cluster
    job = Job(seq=4096, global_batch=576 if "nvl72" in place.name else 512)
    work = estimate(case_of(model_of(model), place, job, STACK), Policies.of([policy]), every_stage=True).work
    tree = tree_of(place, wiring)
    prices = Prices(tree, driven_network(place, STACK), seats_of(policy, tree, **seats))
    return step_load(prices, calls_of(work)), work


class TestSeats:
    @pytest.mark.parametrize("deal", DEALS)
    def test_every_rank_has_a_gpu_of_its_own(self, deal):
        tree = tree_of(cluster_of("dgx-h100:1024"))
        seats = seats_of(Policy(tp=4, cp=2, dp=16, pp=8), tree, deal=deal, seed=3)
        assert sorted(seats.gpu.tolist()) == list(range(1024))

    @pytest.mark.parametrize("order", [("tp", "cp", "dp", "pp"), ("tp", "pp", "dp", "cp"), ("tp", "dp", "pp", "cp")])
    def test_groups_cover_all_ranks_once(self, order):
        policy = Policy(tp=2, cp=2, dp=8, pp=2, ep=4)
        seats = seats_of(policy, tree_of(cluster_of("dgx-h100:64")), order=order)
        for name, size in (("tp", 2), ("cp", 2), ("dp", 8), ("pp", 2), ("dp_cp", 16), ("ep", 4), ("edp", 8)):
            groups = seats.groups(name)
            assert groups.shape == (64 // size, size)
            assert sorted(groups.ravel().tolist()) == list(range(64))
            # ranks of one group differ in nothing but that axis: of pp, all stages; of the others, one
            assert all(len(set(seats.stage[row].tolist())) == (2 if name == "pp" else 1) for row in groups)

    def test_strides_of_the_usual_order(self):
        seats = seats_of(Policy(tp=4, cp=2, dp=8), tree_of(cluster_of("dgx-h100:64")))
        assert seats.groups("tp")[0].tolist() == [0, 1, 2, 3]
        assert seats.groups("dp_cp")[0].tolist() == list(range(0, 64, 4))

    def test_deals_do_what_they_say(self):
        tree = tree_of(cluster_of("dgx-h100:1024"))
        dealt = {deal: seats_of(Policy(dp=1024), tree, deal=deal).gpu for deal in DEALS}
        assert (np.diff(tree.unit[dealt["alternating"][::8]]) != 0).all()
        assert (np.diff(tree.node[dealt["scattered"]]) != 0).all()
        rails = tree.rail[dealt["shifted"][::8]]
        assert (np.diff(rails) % 8 == 1).all()
        np.testing.assert_array_equal(dealt["packed"], np.arange(1024))

    @pytest.mark.parametrize("bad", [{"deal": "pcked"}, {"ring": "rnk"}, {"order": ("dp", "tp", "cp", "pp")}])
    def test_mistakes_are_named(self, bad):
        with pytest.raises(ValueError, match=r"did you mean|write tp first"):
            seats_of(Policy(dp=8), tree_of(cluster_of("8xh100")), **bad)

    def test_too_few_gpus(self):
        with pytest.raises(ValueError, match="fabric has 8"):
            seats_of(Policy(dp=16), tree_of(cluster_of("8xh100")))


@pytest.mark.parametrize(("model", "cluster", "policy"), CASES, ids=lambda v: str(v)[:40])
class TestStep:
    def test_the_graph_and_the_closed_form_agree(self, model, cluster, policy):
        load, _ = step_of(model, cluster, policy)
        closed = load.closed_form_s()
        for axis, seconds in load.communication_s().items():
            assert seconds == pytest.approx(closed[axis], rel=0.06)

    def test_bytes_on_links_matrix_and_stages_are_the_same(self, model, cluster, policy):
        load, _ = step_of(model, cluster, policy)
        fabric = load.prices.fabric
        links = fabric.links
        matrix = load.matrix(fabric.node)
        sent = sum(table.sum() for table in matrix.values())
        out = [slice(fabric.offsets[g], fabric.offsets[g + 1]) for g in (0, 2)]
        assert sum(load.total[s].sum() for s in out) == pytest.approx(sent)
        rows = demand_of(load).shared.rows
        assert {row.stage for row in rows} == set(range(policy.pp))
        assert all((row.wire <= 1.0 + 1e-9).all() for row in rows)
        assert all((row.rate <= links.capacity * (1 + 1e-9)).all() for row in rows)
        for axis, crossed in load.crossings.items():
            assert crossed["all"] == pytest.approx(matrix[axis].sum())
            assert crossed["between nodes"] == pytest.approx(matrix[axis].sum() - np.trace(matrix[axis]), abs=1.0)

    def test_requirement_is_in_order(self, model, cluster, policy):
        load, _ = step_of(model, cluster, policy)
        need = requirement_of(load, 10.0)
        for tier in need.tiers:
            factors = list(tier.oversubscription.values())
            assert factors == sorted(factors)
            assert len(factors) == len(GROWTHS)
            assert factors[0] >= 1.0
            assert tier.needed_bytes_per_s <= tier.link_bytes_per_s
        assert need.benchmark
        assert need.watch
        assert need.loss_rate_timeout < need.loss_rate_nak <= 1.0
        for test in need.benchmark:
            rates = [e.bus_bytes_per_s for e in test.expected]
            assert rates == sorted(rates)


class TestOrders:
    def test_the_best_comes_first_and_scattering_is_worst(self):
        cluster = cluster_of("dgx-h100:512")
        policy = Policy(tp=8, pp=4, dp=16)
        work = step_of("llama-3-8b", cluster, policy)[1]
        orders = orders_of(policy, tree_of(cluster), driven_network(cluster, STACK), calls_of(work))
        assert orders[0].deal == "packed"
        assert orders[-1].deal == "scattered"
        assert [o.rank for o in orders[1:]] == sorted(o.rank for o in orders[1:])
        assert orders[-1].seconds > 3 * orders[0].seconds
        assert {o.axes for o in orders if o.deal == "packed"} == {("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp")}

    def test_a_thin_spine_tells_good_deals_from_bad(self):
        cluster = cluster_of("dgx-h100:512")
        thin = replace(cluster, levels=(*cluster.levels[:2], replace(cluster.levels[2], oversubscription=8.0)))
        policy = Policy(tp=8, dp=64)
        work = step_of("llama-3-8b", cluster, policy)[1]
        orders = orders_of(policy, tree_of(thin), driven_network(thin, STACK), calls_of(work))
        seconds = {(o.deal, o.ring): o.load.communication_s()["dp"] for o in orders}
        assert seconds["alternating", "rank"] > 3 * seconds["packed", "rank"]
        assert seconds["alternating", "sorted"] == pytest.approx(seconds["packed", "rank"])


def priced_variants(load):
    """name -> axis -> seconds before overlap; of hashes the mean over seeds"""
    found = {}
    for variant in variants_of(load):
        each = [collectives_s(variant, load_of()) for load_of in variant.loads]
        found[variant.name] = {axis: float(np.mean([one[axis] for one in each])) for axis in each[0]}
    return found


class TestWhatIf:
    @pytest.fixture(autouse=True)
    def few_seeds(self, monkeypatch):
        monkeypatch.setattr("shardwise.fabric.whatif.SEEDS", 3)

    def test_each_correction_only_adds(self):
        load, _ = step_of(EXPERTS, "dgx-h100:512", Policy(dp=512, ep=64), Wiring(cross_rail="spine"))
        found = priced_variants(load)
        plain = found["as planned"]
        total = {name: sum(each.values()) for name, each in found.items()}
        assert all(seconds >= total["as planned"] * (1 - 1e-9) for seconds in total.values())
        assert 3.5 < found["slow link"]["ep"] / plain["ep"] <= 4.0
        assert plain["ep"] <= found["incast"]["ep"] < 1.5 * plain["ep"]
        assert found["incast"]["dp"] == plain["dp"]
        assert total["over 8:1"] > total["over 4:1"] > total["over 2:1"] >= total["as planned"]

    def test_two_jobs_meet_where_a_level_is_thin(self):
        """On a fabric of full bisection they do not; where it is not, each gets half of what they share."""
        policy, times = Policy(tp=8, dp=64), {}
        cluster = cluster_of("dgx-h100:512")
        for over in (1.0, 16.0):
            thin = replace(cluster, levels=(*cluster.levels[:2], replace(cluster.levels[2], oversubscription=over)))
            found = priced_variants(step_of("llama-3-8b", thin, policy, deal="alternating")[0])
            times[over] = found["two jobs"]["dp"] / found["every other node"]["dp"]
        assert times[1.0] == pytest.approx(1.0)
        assert times[16.0] == pytest.approx(2.0, rel=0.1)

    def test_more_connections_collide_less(self):
        load, _ = step_of("llama-3-8b", "dgx-h100:512", Policy(tp=8, pp=8, dp=8), order=("tp", "cp", "pp", "dp"),
                          deal="alternating")  # fmt: skip
        found = {name: sum(each.values()) for name, each in priced_variants(load).items()}
        assert found["ecmp x1"] > found["ecmp x4"] >= found["ecmp x16"] * 0.999 >= found["as planned"] * 0.999

    def test_what_ifs_of_one_node(self):
        load, _ = step_of("llama-3-8b", "8xh100", Policy(dp=8))
        totals = {sum(each.values()) for each in priced_variants(load).values()}
        assert len({round(t, 12) for t in totals}) == 1


def test_tolerance_agrees_with_pricing_the_thinner_fabric():
    load, work = step_of(EXPERTS, "dgx-h100:512", Policy(dp=512, ep=64))
    step_s = 3.0
    need = requirement_of(load, step_s)
    spine = next(t for t in need.tiers if t.tier == "leaf-spine")
    cluster = cluster_of("dgx-h100:512")
    thin = replace(
        cluster, levels=(*cluster.levels[:2], replace(cluster.levels[2], oversubscription=spine.oversubscription["5%"]))
    )
    tree = tree_of(thin)
    again = step_load(Prices(tree, load.prices.network, seats_of(Policy(dp=512, ep=64), tree)), calls_of(work))
    grown = sum(again.communication_s().values()) - sum(load.communication_s().values())
    assert grown == pytest.approx(0.05 * step_s, rel=0.02)


def test_jitter_is_waited_for_in_collectives_inside_nodes_too():
    """As many tensor-parallel collectives as there are layers and micro-batches, beside a few gradients' between nodes:
    the budget of a delay is shared by all of them."""
    load, work = step_of("llama-3-8b", "dgx-h100:64", Policy(tp=8, dp=8))
    budget = requirement_of(load, 3.0).jitter_budget_s
    waited = sum(c.count * (np.log(c.ranks) + 0.5772) for c in calls_of(work))
    assert sum(c.count for c in calls_of(work) if c.axis == "tp") > 100
    assert budget["1%"] == pytest.approx(0.03 / waited)
    alone = requirement_of(step_of("llama-3-8b", "8xh100", Policy(tp=8))[0], 3.0)
    assert alone.jitter_budget_s["1%"] < 1.0, "one node has no network, but ranks that wait for one another"


def test_a_full_expert_rank_is_waited_for():
    policy, cluster = Policy(dp=64, ep=64), cluster_of("dgx-h100:64")
    times = []
    for imbalance in (1.0, 2.0):
        stack = STACK.changed(expert_imbalance=imbalance)
        job = Job(seq=4096, global_batch=512)
        work = estimate(case_of(model_of(EXPERTS), cluster, job, stack), Policies.of([policy]), every_stage=True).work
        tree = tree_of(cluster)
        load = step_load(Prices(tree, driven_network(cluster, stack), seats_of(policy, tree)), calls_of(work))
        times.append(load.communication_s())
    assert 1.7 < times[1]["ep"] / times[0]["ep"] <= 2.0
    assert times[1]["dp"] == times[0]["dp"]


def test_rail_only_moves_experts_over_nvlink():
    policy = Policy(dp=512, ep=64)
    wirings = (Wiring(cross_rail="spine"), Wiring(rails="only"))
    usual, only = (step_of(EXPERTS, "dgx-h100:512", policy, wiring)[0] for wiring in wirings)
    inside = [load.total[load.prices.fabric.links.tier == 0].sum() for load in (usual, only)]
    above = [load.bytes["ep"][load.prices.fabric.links.tier == 2].sum() for load in (usual, only)]
    assert inside[1] > inside[0]
    assert above[0] > 0 == above[1]


class TestSpread:
    def test_amounts_are_kept_and_lie_where_they_should(self):
        edges = np.linspace(0.0, 10.0, 11)
        found = spread(np.array([0.5, 4.0]), np.array([2.5, 4.5]), np.array([8.0, 3.0]), edges)
        np.testing.assert_allclose(found, [2, 4, 2, 0, 3, 0, 0, 0, 0, 0], atol=1e-12)

    def test_nothing(self):
        assert spread(np.zeros(1), np.zeros(1), np.ones(1), np.linspace(0, 1, 3)).tolist() == [0.0, 0.0]


class TestCalls:
    def calls(self, model, policy, cluster="dgx-h100:64"):
        job = Job(seq=4096, global_batch=512)
        found = estimate(
            case_of(model_of(model), cluster_of(cluster), job, STACK), Policies.of([policy]), every_stage=True
        )
        return calls_of(found.work), found.work

    def test_stages_send_what_they_hold(self):
        """Only the ends of a tied model share a table, and a stage's gradients are as many as its parameters."""
        calls, work = self.calls("llama-3.2-1b", Policy(tp=2, pp=4, dp=8))
        assert {call.stage for call in calls if call.group == "ends"} == {0, 3}
        sent = [sum(c.bytes * c.count for c in calls if c.stage == s and c.op == "reduce_scatter" and c.axis == "dp")
                for s in range(4)]  # fmt: skip
        held = work.parameters[0][0] * work.job.precision.grad_comm_bytes
        np.testing.assert_allclose(sent, held, rtol=1e-6)
        assert sent[0] > 1.5 * sent[1]

    @pytest.mark.parametrize(("model", "policy", "axes"), [
        ("llama-3-8b", {"tp": 2, "cp": 4, "dp": 8}, {"tp", "cp"}),
        ("mixtral-8x7b", {"tp": 2, "dp": 32, "ep": 8}, {"tp", "ep"}),
    ])  # fmt: skip
    def test_full_recompute_repeats_every_kind(self, model, policy, axes):
        plain, _ = self.calls(model, Policy(**policy))
        full, _ = self.calls(model, Policy(**policy, recompute="full"))
        again = [call for call in full if call.phase == "recompute"]
        assert {call.axis for call in again} == axes
        assert not [call for call in plain if call.phase == "recompute"]
        for axis in axes - {"tp"}:  # embedding and head are not repeated
            ahead = sum(c.bytes * c.count for c in full if c.axis == axis and c.phase == "forward")
            assert sum(c.bytes * c.count for c in again if c.axis == axis) == pytest.approx(ahead)

    def test_both_directions_of_a_pipeline_cross_every_cut_once(self):
        for policy in (Policy(tp=2, pp=4, dp=8), Policy(tp=2, pp=4, dp=8, schedule="dualpipe")):
            calls, work = self.calls("llama-3-8b", policy)
            sends = [call for call in calls if call.op == "send"]
            assert {(c.stage, c.target) for c in sends} == {
                (a, b) for a in range(4) for b in (a - 1, a + 1) if 0 <= b < 4
            }
            assert sum(c.count for c in sends) == 2 * 3 * work.layout.micro_batches[0]


class TestSolvedOnce:
    """Equal questions are asked of the solver once, however many stages and placements ask them."""

    POLICY = Policy(tp=8, pp=8, dp=2)

    def counted(self, monkeypatch) -> list[int]:
        calls: list[int] = []

        def counting(flows, capacity):
            calls.append(len(flows))
            return duration_of(flows, capacity)

        monkeypatch.setattr("shardwise.fabric.price.duration_of", counting)
        return calls

    def test_sends_between_stages_are_solved_for_a_direction(self, monkeypatch):
        solved = self.counted(monkeypatch)
        load, _ = step_of("llama-3-8b", "dgx-h100:128", self.POLICY)
        sends = {(p.call.stage, p.call.target) for p in load.priced if p.call.target >= 0}
        assert len(sends) == 14
        others = {p.algorithm + p.call.op + p.call.group + p.call.part for p in load.priced if p.call.target < 0}
        assert len(solved) <= 2 + len(others)

    def test_placements_share_what_they_have_in_common(self, monkeypatch):
        load, work = step_of("llama-3-8b", "dgx-h100:128", self.POLICY)
        alone = self.counted(monkeypatch)
        step_load(Prices(load.prices.fabric, load.prices.network, load.prices.seats, paces=load.prices.paces),
                  calls_of(work))  # fmt: skip
        assert alone == []


def test_buffers_hold_what_all_senders_but_one_send_in_a_round_trip():
    """One sender's rate leaves the switch while the others' bytes wait: 400 Gbps NICs, 10 us."""
    load, _ = step_of(EXPERTS, "dgx-h100:64", Policy(dp=64, ep=32))
    buffers = {each.op: each for each in requirement_of(load, 10.0).buffers}
    exchange = buffers["all_to_all"]
    assert exchange.senders > 2
    assert exchange.bytes == pytest.approx((exchange.senders - 1) * 50e9 * 10e-6)
    ring = buffers["reduce_scatter"]
    assert ring.senders == 1
    assert ring.bytes == pytest.approx(50e9 * 10e-6)
