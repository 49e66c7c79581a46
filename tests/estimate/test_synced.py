"""A strategy of data parallelism in an estimate: its own trace priced, its memory, its legality, its extra steps."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.plugins.sync import strategies
from shardwise.plugins.sync._asynchronous import play
from shardwise.plugins.sync._named import strategy_named, texts_of
from shardwise.question.studies.build import report_of
from shardwise.question.studies.sync import EQUAL_SPEED, FAST_LINKS, GATHERED, NO_ROOM, NO_SHORTER
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, optimizer_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.stragglers import waiting_share
from shardwise.step.estimate.synced import allowed_with, choice_of, choices_of, refusal
from shardwise.step.estimate.synced.price import sent_bytes
from shardwise.step.estimate.synced.traffic import layout_of_model, traffic_of
from shardwise.units import gib, time_text
from shardwise.work.case import case_of, driven_network

MODEL, CLUSTER, STACK = model_of("llama-3-8b"), cluster_of("dgx-h100:64"), stack_of("megatron-core")
JOB = Job(seq=8192, global_batch=512)
PLAIN = Policy(tp=4, dp=16, zero=0)


def one(policy: Policy, sync: str):
    given = Policies.of([policy])
    return estimate(case_of(MODEL, CLUSTER, JOB, STACK), given, every_stage=True, sync=choice_of(sync))


@pytest.mark.parametrize("text", ["dsgd", "mem_sgd", "double_squeeze,compressor=sign", "local_sgd,every=4", "krum"])
def test_seconds_are_those_of_the_strategy_s_own_cost(text):
    """The same trace, priced by the same network at the worker's stride; what hides is taken out again."""
    found = one(PLAIN, text)
    held = int(found.work.parameters[0][0].max())
    exposed, hidden = (float(x[0]) for x in (found.times.parts["sync_comm"], found.times.hidden["sync"]))
    messages = exposed + (1.0 - STACK.overlap.overlap_slowdown) * hidden

    class Placed:
        """Every tp-th rank is a worker."""

        def seconds(self, op, bytes_, size, stride=1, *, algorithm=None):  # noqa: ARG002
            return driven_network(CLUSTER, STACK).seconds(op, bytes_, size, PLAIN.tp * np.asarray(stride))

    cost = strategy_named(text).cost(held, Placed(), PLAIN.dp)
    assert messages == pytest.approx(cost.seconds, rel=1e-3)
    assert float(sent_bytes(choice_of(text), found.work)[0]) == pytest.approx(cost.sent_bytes, rel=1e-3)
    assert float(found.memory.kinds["sync"].max()) == pytest.approx(cost.state_bytes, rel=1e-3)


def test_without_a_strategy_nothing_is_added():
    found = one(PLAIN, "")
    assert not [part for part in found.times.parts if part.startswith("sync")]
    assert "sync" not in found.memory.kinds
    assert choice_of("psgd") is None


def test_rare_averaging_is_spread_over_its_steps():
    often, rarely = (float(one(PLAIN, f"local_sgd,every={n}").times.parts["sync_comm"][0]) for n in (4, 16))
    assert often == pytest.approx(4 * rarely)


def test_with_a_shard_group_a_worker_is_the_group():
    found = report_of(case_of(MODEL, CLUSTER, JOB, STACK), Policy(dp=64, zero=1, shard_group=8, sync="diloco,every=64"))
    whole = report_of(case_of(MODEL, CLUSTER, JOB, STACK), Policy(dp=64, zero=0, sync="diloco,every=64"))
    assert found.sync is not None
    assert whole.sync is not None
    assert (found.sync.workers, whole.sync.workers) == (8, 64)
    assert found.sync.state_bytes == pytest.approx(whole.sync.state_bytes / 8)


def test_gathered_top_k_loses_once_n_times_its_share_passes_one():
    """16 workers x 4 % of 8 bytes are below the dense gradient's; 64 are not, and the page says so."""
    for dp, loses in ((8, False), (64, True)):
        policy = Policy(dp=dp, tp=64 // dp, zero=0, sync="mem_sgd,compressor=top_k,compressor.ratio=0.05")
        found = report_of(case_of(MODEL, CLUSTER, JOB, STACK), policy).sync
        assert (found.sent_bytes > found.dense_sent_bytes) is loses
        assert any(loss.kind == GATHERED for loss in found.loses) is loses


def test_fast_links_make_compression_lose_and_slow_ones_do_not():
    def of(on: str):
        policy = Policy(dp=16, zero=0, sync="double_squeeze,compressor=sign")
        return report_of(case_of(model_of("gpt2"), cluster_of(on), Job(seq=1024, global_batch=64), STACK), policy).sync

    fast, slow = of("dgx-h100:16"), of("16x1xv100")
    assert fast.compress_s > 0
    assert slow.dense_step_s > fast.dense_step_s
    assert fast.loses[0].kind in (FAST_LINKS, NO_SHORTER)


@pytest.mark.parametrize("name", sorted(strategies()))
def test_every_strategy_can_be_priced(name):
    """A new file is priced without being told of."""
    choice = choice_of(name) or choice_of("psgd,via=tree")
    policy = Policy(tp=4, dp=16, zero=0)
    found = estimate(case_of(MODEL, CLUSTER, JOB, STACK), Policies.of([policy]), sync=choice)
    assert np.isfinite(found.times.step_s).all()
    assert traffic_of(choice.strategy, 16, MODEL, 4).sent > 0


REFUSED = [
    (Policy(dp=64, zero=1, sync="dsgd"), "adamw", "--shard-group"),
    (Policy(dp=64, zero=3, shard_group=8, sync="power_sgd"), "adamw", "factors whole matrices"),
    (Policy(tp=64, dp=1, zero=0, sync="dsgd"), "adamw", "nobody to talk to"),
    (Policy(dp=64, zero=0, sync="one_bit_adam"), "adamw", "--optimizer sgd"),
    (Policy(dp=32, cp=2, zero=1, shard_group=1, sync="dsgd"), "adamw", "whole sequences"),
    (Policy(dp=64, zero=0, sync="krum,byzantine=40"), "adamw", "needs 83 or more"),
]


@pytest.mark.parametrize(("policy", "optimizer", "why"), REFUSED)
def test_illegal_combinations_get_the_reason(policy, optimizer, why):
    job = replace(JOB, optimizer=optimizer_of(optimizer))
    choice = choice_of(policy.sync)
    assert why in refusal(choice, MODEL, job, policy)
    assert not allowed_with(choice, MODEL, job, Policies.of([policy])).any()


def test_experts_on_several_replicas_need_equal_ones():
    model, policy = model_of("mixtral-8x7b"), Policy(dp=64, ep=8, zero=0)
    assert "sends tokens of one replica" in refusal(choice_of("dsgd"), model, JOB, policy)
    assert refusal(choice_of("mem_sgd"), model, JOB, policy) == ""


def test_no_strategy_looks_free():
    """Every choice of `any` says how many more steps it takes and where that is from."""
    for optimizer, most in (("adamw", 20), ("sgd-m", 20)):
        found = [choice for choice in choices_of("any", optimizer) if choice is not None]
        assert len(found) >= most
        for choice in found:
            assert choice.extra.share is not None
            assert choice.extra.share >= 0.0
            assert "measured on" in choice.extra.source
    assert choice_of("mem_sgd", "sgd-m").extra.source.endswith("sgd-m")
    assert choice_of("dsgd", "sgd-m").extra.source.endswith("adamw")
    assert choice_of("slowmo,every=17").extra.source.startswith("with slowmo,every=16, not these settings")


@pytest.mark.parametrize(
    ("text", "below", "above"),
    [("local_sgd,every=8", "local_sgd,every=4", "local_sgd,every=16"),
     ("local_sgd,every=32", "local_sgd,every=16", "local_sgd,every=64"),
     ("power_sgd,rank=2", "power_sgd", "power_sgd,rank=4"),
     ("diloco,every=32", "diloco,every=16", "diloco,every=64"),
     ("local_sgd,every=8,via=tree", "local_sgd,every=4", "local_sgd,every=16")],
)  # fmt: skip
def test_between_measured_settings_on_a_line_over_the_logarithm(text, below, above):
    found, low, high = (choice_of(each).extra for each in (text, below, above))
    assert found.share == pytest.approx((low.share + high.share) / 2)
    assert min(low.share, high.share) < found.share < max(low.share, high.share)
    assert f"between {below} " in found.how
    assert low.how == high.how == ""


def test_beyond_what_was_measured_is_said():
    """Drift grows with the steps between averagings, so beyond the longest its figure is the least."""
    for text, at, at_least in (("local_sgd,every=500", "local_sgd,every=64", True),
                               ("local_sgd,every=2", "local_sgd,every=4", False),
                               ("power_sgd,rank=8", "power_sgd,rank=4", False)):  # fmt: skip
        found = choice_of(text).extra
        assert (found.share, found.at_least) == (choice_of(at).extra.share, at_least)
        assert "is outside the measured range" in found.how
        assert at in found.how


SERVED = replace(JOB, optimizer=optimizer_of("sgd"))


def served(text: str, model=MODEL, policy=PLAIN, stack=STACK, on=CLUSTER):
    return report_of(case_of(model, on, SERVED, stack), replace(policy, sync=text))


@pytest.mark.parametrize("text", ["async_sgd", "async_sgd,periods=4,1,1,1", "fedbuff,periods=1,2"])
@pytest.mark.parametrize("on", ["dgx-h100:64", "64x1xv100"])
def test_asynchronous_workers_overlap_with_the_server(text, on):
    """The step of the estimate is what workers and a server, one by one, come to: not compute and then the server."""
    cluster, model = cluster_of(on), model_of("gpt2")
    found = report_of(case_of(model, cluster, SERVED, STACK), Policy(dp=64, zero=0, sync=text))
    parts, cycles = found.time_s, choice_of(text).strategy.cycles(64)
    compute = sum(parts.values()) - parts["sync_comm"] - parts["sync_uneven"] - parts["other"]
    message = choice_of(text).strategy.cost(layout_of_model(model), driven_network(cluster, STACK), 64).message_s
    run = play(cycles, compute, message)
    assert found.step_s - parts["other"] == pytest.approx(run.step_s, rel=0.02)
    assert found.step_s < compute + found.sync.messages_s + parts["sync_uneven"] + parts["other"]
    assert sum(parts.values()) == pytest.approx(found.step_s)


def test_state_that_does_not_fit_is_told_apart_from_a_model_that_does_not():
    """Three more fp32 rows of 8 billion numbers over tp 2 on an H100: 45 GiB; over tp 1 not even the model fits."""
    small, large = Policy(tp=2, dp=32, zero=0, recompute="full"), Policy(dp=64, zero=0)
    for policy, also in ((small, "would fit"), (large, "does not fit either")):
        found = report_of(case_of(MODEL, CLUSTER, JOB, STACK), replace(policy, sync="ef21_sgdm"))
        assert not found.fits
        assert found.sync.loses[0].kind == NO_ROOM
        assert f"its {gib(found.sync.state_bytes)} GiB of state do not fit" in found.sync.loses[0].why
        assert also in found.sync.loses[0].why
        assert report_of(case_of(MODEL, CLUSTER, JOB, STACK), policy).fits is (also == "would fit")


def test_not_waiting_pays_where_workers_are_uneven():
    even, uneven = served("async_sgd").sync, served("async_sgd,periods=4,1,1,1").sync
    assert (even.slowest_worker, uneven.slowest_worker) == (1.0, 4.0)
    assert [loss.kind for loss in even.loses] == [EQUAL_SPEED]
    assert uneven.loses == ()
    assert uneven.dense_step_s > 3 * even.dense_step_s
    assert even.dense_step_s == report_of(case_of(MODEL, CLUSTER, SERVED, STACK), PLAIN).step_s
    assert served("async_sgd,periods=4,1,1,1").step_s < 0.5 * uneven.dense_step_s


def test_waiting_for_the_slowest_is_lost_only_inside_a_worker():
    """64 GPUs that wait for each other lose a share; a worker of half a node waits for no other node."""
    stack = stack_of("megatron-core@2021")
    waits, alone = (
        report_of(case_of(MODEL, CLUSTER, SERVED, stack), replace(PLAIN, sync=text)) for text in ("dsgd", "async_sgd")
    )
    overhead = alone.time_s["other"]
    busy = waits.step_s - waits.time_s["other"]
    assert waits.time_s["other"] - overhead == pytest.approx(float(waiting_share(CLUSTER.gpus, stack)) * busy)
    assert overhead == pytest.approx(stack.host.step_overhead_s)


def test_texts():
    assert texts_of("dsgd, local_sgd,every=4,psgd") == ["dsgd", "local_sgd,every=4", "psgd"]
    assert strategy_named("async_sgd,periods=20,1,1").periods == (20, 1, 1)
    with pytest.raises(ValueError, match="begins with a setting"):
        texts_of("every=4")
    with pytest.raises(ValueError, match="names 2 strategies"):
        strategy_named("dsgd,psgd")


def test_workers_that_share_a_node_are_named_and_the_form_with_one_a_node_is_priced():
    """BERT-Large on 64 V100 behind one 25 Gbps card a node: gossip between GPUs loses by what it leaves exposed."""
    case = case_of(model_of("bert-large"), cluster_of("8x8xv100@25Gbps/node"), Job(seq=128, global_batch=2048), STACK)
    policy = Policy(dp=64, zero=0, micro_batch=32)
    found, dense = report_of(case, replace(policy, sync="dsgd,topology=ring")), report_of(case, policy)
    nodes = found.sync.by_node
    assert nodes.node == 8
    assert nodes.strategy == "hierarchical,inner=psgd,outer=dsgd,size=8,outer.topology=ring"
    assert nodes.step_s == report_of(case, replace(policy, sync=nodes.strategy)).step_s < found.step_s / 3
    (loss,) = found.sync.loses
    assert loss.kind == NO_SHORTER
    exposed = dense.time_s["grad_comm"] + dense.time_s["param_comm"]
    assert time_text(exposed) in loss.why
    assert report_of(case, replace(policy, sync=nodes.strategy)).sync.by_node is None
    one_each = case_of(model_of("bert-large"), cluster_of("16x1xv100"), Job(seq=128, global_batch=2048), STACK)
    assert report_of(one_each, replace(policy, dp=16, sync="dsgd")).sync.by_node is None
