"""The exhaustive scan: everything legal and nothing else, ranked by time among what fits."""

import numpy as np
import pytest

from shardwise.arch import model_of
from shardwise.estimate.closed_form import estimate
from shardwise.search import Limits, exhaustive, scan, space
from shardwise.search.losers import losers
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import legal, verdict_of
from shardwise.spec.stack import stack_of

STACK = stack_of("megatron-core")
MODEL, CLUSTER, JOB = model_of("llama-3-8b"), cluster_of("dgx-h100:32"), Job(seq=8192, global_batch=128)


@pytest.fixture(scope="module")
def found():
    return space(MODEL, CLUSTER, JOB, STACK)


def rows(policies):
    return {
        (p.tp, p.pp, p.cp, p.dp, p.vpp, p.micro_batch, p.zero, p.recompute)
        for p in (policies[i] for i in range(len(policies)))
    }


def test_every_point_is_legal_and_there_once(found):
    assert legal(MODEL, CLUSTER, JOB, found.policies).all()
    assert len(rows(found.policies)) == len(found.policies)
    assert found.points > len(found.policies)


def test_nothing_legal_is_missing(found):
    """Counted the slow way: one policy at a time."""
    powers = (1, 2, 4, 8, 16)
    slow = set()
    for tp in (1, 2, 4, 8, 16):
        for pp in (1, 2, 4, 8, 16, 32):
            for cp in (1, 2, 4, 8):
                for vpp in range(1, 17):
                    if 32 % (tp * pp * cp) or (vpp > 1 and (pp == 1 or (32 % (pp * vpp) and 34 % (pp * vpp)))):
                        continue
                    dp = 32 // (tp * pp * cp)
                    for micro in powers:
                        for zero in (0, 1, 2, 3) if pp == 1 else (0, 1):
                            if dp * cp == 1 and zero:
                                continue
                            schedule = "interleaved" if vpp > 1 else "1f1b"
                            policy = Policy(dp=dp, tp=tp, pp=pp, cp=cp, vpp=vpp, micro_batch=micro, zero=zero,
                                            sp=tp > 1, schedule=schedule)  # fmt: skip
                            if verdict_of(MODEL, CLUSTER, JOB, policy, cure=False).legal:
                                slow |= {(tp, pp, cp, dp, vpp, micro, zero, r) for r in ("none", "full")}
    assert rows(found.policies) == slow


def test_limits_are_kept():
    few = space(MODEL, CLUSTER, JOB, STACK, Limits(nodes_of_tp=1, micro_batch=2, zero=(1, 3), recompute=("selective",)))
    assert few.policies.tp.max() == 8
    assert few.policies.micro_batch.max() == 2
    assert set(few.policies.zero) <= {1, 3}
    assert set(few.policies.recompute) == {1}


def test_chunks_may_count_embedding_and_head_as_layers():
    job = Job(seq=8192, global_batch=2048)
    found = space(model_of("llama-3.1-405b"), cluster_of("dgx-h100:1024"), job, STACK).policies
    assert ((found.pp == 16) & (found.vpp == 8)).any()
    assert not ((found.pp == 16) & (found.vpp == 7)).any()


def test_experts_bring_expert_parallelism():
    job = Job(seq=4096, global_batch=256)
    sparse = space(model_of("mixtral-8x7b"), cluster_of("dgx-h100:64"), job, STACK)
    assert set(sparse.policies.ep) == {1, 2, 4, 8}


def test_the_best_is_the_fastest_that_fits(found):
    ranked = scan(MODEL, CLUSTER, JOB, STACK, top=5)
    every = estimate(MODEL, CLUSTER, JOB, found.policies, STACK)
    fits = every.memory.peak <= 0.94 * CLUSTER.gpu.memory_bytes
    assert ranked.best[0].step_s == pytest.approx(every.times.step_s[fits].min())
    assert [c.step_s for c in ranked.best] == sorted(c.step_s for c in ranked.best)
    assert all(c.peak_bytes <= ranked.limit_bytes for c in ranked.best)
    assert (ranked.legal, ranked.evaluated, ranked.fitting) == (len(found.policies), len(found.policies), fits.sum())
    assert ranked.best[0].tokens_per_s_per_gpu * ranked.best[0].step_s * 32 == pytest.approx(JOB.step_tokens)


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v2-lite", "gpt-oss-20b"])
def test_leaders_and_losers_are_what_estimating_them_alone_gives(name):
    """Also where layers do not divide by stages and kinds of layers are mixed."""
    model, cluster, job = model_of(name), cluster_of("dgx-h100:96"), Job(seq=4096, global_batch=192)
    ranked = scan(model, cluster, job, stack_of("nanotron"), headroom=1.0)
    assert ranked.best
    for found in (*ranked.best, *ranked.losers):
        alone = estimate(model, cluster, job, Policies.of([found.policy]), stack_of("nanotron"), every_stage=True)
        assert alone.times.step_s[0] == pytest.approx(found.step_s, rel=1e-12)
        assert alone.memory.peak[0] == pytest.approx(found.peak_bytes, rel=1e-12)


def test_batches_change_nothing(monkeypatch):
    whole = scan(MODEL, CLUSTER, JOB, STACK)
    monkeypatch.setattr(exhaustive, "CHUNK", 257)
    seen = []
    parts = scan(MODEL, CLUSTER, JOB, STACK, progress=lambda done, of: seen.append((done, of)))
    assert [c.policy for c in parts.best] == [c.policy for c in whole.best]
    assert seen[-1] == (whole.legal, whole.legal)
    assert len(seen) == -(-whole.legal // 257)


def test_ctrl_c_ranks_what_there_is(monkeypatch):
    monkeypatch.setattr(exhaustive, "CHUNK", 500)

    def stop(done, _of):
        if done >= 1000:
            raise KeyboardInterrupt

    ranked = scan(MODEL, CLUSTER, JOB, STACK, progress=stop)
    assert ranked.evaluated == 1000 < ranked.legal
    assert ranked.best


def test_nothing_fits_names_the_smallest():
    ranked = scan(model_of("llama-3.1-405b"), cluster_of("8xh100"), Job(seq=8192, global_batch=64), STACK)
    assert ranked.best == ()
    assert ranked.losers == ()
    assert ranked.smallest.peak_bytes > ranked.limit_bytes
    assert ranked.fitting == 0


def test_less_headroom_never_helps():
    tight = scan(MODEL, CLUSTER, JOB, STACK, headroom=0.4)
    assert tight.best[0].step_s >= scan(MODEL, CLUSTER, JOB, STACK).best[0].step_s


@pytest.mark.parametrize(
    ("options", "word"), [({"headroom": 0.0}, "headroom"), ({"headroom": 2}, "headroom"), ({"top": 0}, "top")]
)
def test_bad_options(options, word):
    with pytest.raises(ValueError, match=f"^{word}: .*; write"):
        scan(MODEL, CLUSTER, JOB, STACK, **options)


def test_losers_on_hand_made_numbers():
    policies = Policies.of([Policy(tp=2, zero=1), Policy(zero=1), Policy(tp=2, zero=3), Policy(tp=2, pp=2, zero=1)])
    steps, peaks = np.array([1.0, 0.5, 1.25, 2.0]), np.array([50.0, 90.0, 40.0, 30.0]) * 2**30
    why = {loser.kind: loser.why for loser in losers(policies, steps, peaks, 60 * 2**30, 0)}
    assert why["no tensor parallelism"] == "needs 30.0 GiB more than may be filled"
    assert why["ZeRO 3"] == "step +25.0%"
    assert why["a pipeline"] == "step +100.0%"
    assert "tensor parallelism" not in why
    assert "ZeRO 2" not in why
