"""A strategy of data parallelism in an estimate: its own trace priced, its memory, its legality, its extra steps."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.arch import model_of
from shardwise.case import case_of, driven_network
from shardwise.estimate.closed_form import estimate
from shardwise.estimate.synced import allowed_with, choice_of, choices_of, refusal
from shardwise.estimate.synced.price import sent_bytes
from shardwise.estimate.synced.traffic import traffic_of
from shardwise.report import report_of
from shardwise.report.sync_report import FAST_LINKS, GATHERED, NO_SHORTER
from shardwise.software import stack_of
from shardwise.spec.job import Job, optimizer_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.sync import strategies
from shardwise.sync._named import strategy_named, texts_of

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
    found = report_of(MODEL, CLUSTER, JOB, Policy(dp=64, zero=1, shard_group=8, sync="diloco,every=64"), STACK)
    whole = report_of(MODEL, CLUSTER, JOB, Policy(dp=64, zero=0, sync="diloco,every=64"), STACK)
    assert found.sync is not None
    assert whole.sync is not None
    assert (found.sync.workers, whole.sync.workers) == (8, 64)
    assert found.sync.state_bytes == pytest.approx(whole.sync.state_bytes / 8)


def test_gathered_top_k_loses_once_n_times_its_share_passes_one():
    """16 workers x 4 % of 8 bytes are below the dense gradient's; 64 are not, and the page says so."""
    for dp, loses in ((8, False), (64, True)):
        policy = Policy(dp=dp, tp=64 // dp, zero=0, sync="mem_sgd,compressor=top_k,compressor.ratio=0.05")
        found = report_of(MODEL, CLUSTER, JOB, policy, STACK).sync
        assert (found.sent_bytes > found.dense_sent_bytes) is loses
        assert any(loss.kind == GATHERED for loss in found.loses) is loses


def test_fast_links_make_compression_lose_and_slow_ones_do_not():
    def of(on: str):
        policy = Policy(dp=16, zero=0, sync="double_squeeze,compressor=sign")
        return report_of(model_of("gpt2"), cluster_of(on), Job(seq=1024, global_batch=64), policy, STACK).sync

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
    assert choice_of("local_sgd,every=17").extra.source.startswith("with local_sgd,every=16, not these settings")


def test_texts():
    assert texts_of("dsgd, local_sgd,every=4,psgd") == ["dsgd", "local_sgd,every=4", "psgd"]
    assert strategy_named("async_sgd,periods=20,1,1").periods == (20, 1, 1)
    with pytest.raises(ValueError, match="begins with a setting"):
        texts_of("every=4")
    with pytest.raises(ValueError, match="names 2 strategies"):
        strategy_named("dsgd,psgd")
