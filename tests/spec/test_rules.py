"""Illegal policies are verdicts with a rule, numbers and a cure that is itself legal."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Layer
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import RULES, divisors, legal, nearest_legal, split_refusal, verdict_of

LLAMA = model_of("llama-3-8b")
MIXTRAL = model_of("mixtral-8x7b")
HYBRID = model_of("nemotron-h-8b")
CLUSTER = cluster_of("dgx-h100:64")
JOB = Job(seq=8192, global_batch=128)
GOOD = Policy(dp=8, tp=4, pp=2, micro_batch=1)

BROKEN = {
    "world": Policy(dp=8, tp=4, pp=4),
    "tp divides heads": Policy(dp=1, tp=64),
    "stages have layers": Policy(dp=1, tp=1, pp=64),
    "batch divides": Policy(dp=64, micro_batch=4),
    "interleaving": Policy(dp=32, pp=2, vpp=2),
    "expert parallel": Policy(dp=64, ep=8),
    "shard group": Policy(dp=64, zero=3, shard_group=7),
    "recompute layers": Policy(dp=64, recompute="full", recompute_layers=40),
}


def test_good_policy_is_legal() -> None:
    assert verdict_of(LLAMA, CLUSTER, JOB, GOOD).legal


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_names_itself_and_offers_a_legal_cure(rule: str) -> None:
    verdict = verdict_of(LLAMA, CLUSTER, JOB, BROKEN[rule])
    assert not verdict.legal
    assert verdict.rule == rule
    assert any(ch.isdigit() for ch in verdict.why), "the numbers are in the reason"
    assert verdict.cure is not None
    assert verdict_of(LLAMA, CLUSTER, JOB, verdict.cure).legal


def test_sequence_rules() -> None:
    odd = Job(seq=1000, global_batch=128)
    assert verdict_of(LLAMA, CLUSTER, odd, Policy(dp=4, cp=16)).rule == "cp divides the sequence"
    short = Job(seq=1001, global_batch=128)
    assert verdict_of(LLAMA, CLUSTER, short, GOOD).rule == "sequence parallel divides the sequence"
    assert verdict_of(LLAMA, CLUSTER, short, Policy(dp=8, tp=4, pp=2, sp=False)).legal


def test_modules_are_there() -> None:
    again = Policy(dp=64, recompute="selective", recompute_modules=("mla_up_proj", "mlp"))
    assert verdict_of(LLAMA, CLUSTER, JOB, again).rule == "recompute modules"


def test_experts_divide() -> None:
    assert verdict_of(MIXTRAL, CLUSTER, JOB, Policy(dp=64, ep=8)).legal
    assert verdict_of(MIXTRAL, CLUSTER, JOB, Policy(dp=64, ep=3)).rule == "expert parallel"
    assert verdict_of(MIXTRAL, CLUSTER, JOB, Policy(dp=8, tp=8, etp=3)).rule == "tp divides width"


def test_mamba_is_cut_by_groups_and_heads() -> None:
    """8 groups, 128 heads: tp divides the groups, and cp takes over heads, tp x cp of them at once."""
    assert verdict_of(HYBRID, CLUSTER, JOB, Policy(dp=2, tp=8, cp=4)).legal
    verdict = verdict_of(HYBRID, CLUSTER, JOB, Policy(dp=4, tp=16))
    assert verdict.rule == "tp divides groups"
    assert "tp 16 must divide 8 Mamba groups" in verdict.why
    assert verdict.cure is not None
    assert verdict_of(HYBRID, CLUSTER, JOB, verdict.cure).legal
    narrow = msgspec.structs.replace(HYBRID, kinds=tuple(_with_heads(kind, 8) for kind in HYBRID.kinds))
    assert verdict_of(narrow, CLUSTER, JOB, Policy(dp=4, tp=8, cp=2)).rule == "tp divides groups"


def _with_heads(kind: Layer, heads: int) -> Layer:
    mamba = kind.mamba
    return kind if mamba is None else msgspec.structs.replace(kind, mamba=msgspec.structs.replace(mamba, heads=heads))


def test_experts_lie_on_neighbouring_ranks() -> None:
    spread = Policy(dp=16, tp=2, pp=2, ep=8, order="tp-pp-cp-dp")
    verdict = verdict_of(MIXTRAL, CLUSTER, JOB, spread)
    assert verdict.rule == "order"
    assert verdict.cure is not None
    assert verdict_of(MIXTRAL, CLUSTER, JOB, verdict.cure).legal


def test_every_rule_can_fail() -> None:
    shown = {*BROKEN, "cp divides the sequence", "sequence parallel divides the sequence",
             "tp divides width", "tp divides groups", "order", "recompute modules", "matrix layout",
             "shared matrices"}  # fmt: skip
    assert shown == {rule.name for rule in RULES}


def test_nearest_keeps_what_already_works() -> None:
    cure = nearest_legal(LLAMA, CLUSTER, JOB, Policy(dp=16, tp=4, pp=2, micro_batch=1))
    assert cure is not None
    assert (cure.tp, cure.pp, cure.gpus) == (4, 2, 64)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            Policy,
            dp=st.sampled_from([1, 2, 8, 16, 64]),
            tp=st.sampled_from([1, 2, 3, 4, 8]),
            pp=st.sampled_from([1, 2, 4, 5]),
            cp=st.sampled_from([1, 2]),
            micro_batch=st.sampled_from([1, 2, 3]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_columns_agree_with_single_policies(policies: list[Policy]) -> None:
    together = legal(LLAMA, CLUSTER, JOB, Policies.of(policies))
    alone = [verdict_of(LLAMA, CLUSTER, JOB, p, cure=False).legal for p in policies]
    assert together.tolist() == alone
    for policy, ok in zip(policies, together, strict=True):
        if ok:
            assert policy.gpus == CLUSTER.gpus


def test_policies_round_trip() -> None:
    policies = [GOOD, Policy(zero=3, recompute="full", sp=False, schedule="gpipe", offload="both")]
    columns = Policies.of(policies)
    assert [columns[i] for i in range(2)] == policies
    assert columns.take(np.array([1]))[0] == policies[1]


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


@pytest.mark.parametrize(
    ("field", "value"), [("dp", 0), ("tp", -1), ("zero", 4), ("recompute", "sometimes"), ("micro_batch", 10**9)]
)
def test_bad_fields_say_what_to_write(field: str, value: int | str) -> None:
    with pytest.raises(ValueError, match=field):
        Policy(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "policy", [Policy(tp=64), Policy(tp=3), Policy(dp=3), Policy(pp=2, schedule="zb_v"), Policy(tp=2)]
)
def test_a_split_without_a_cluster_has_the_verdict_of_one_that_is_as_large(policy):
    cluster = msgspec.structs.replace(CLUSTER, gpus=policy.gpus)
    verdict = verdict_of(LLAMA, cluster, JOB, policy, cure=False)
    assert split_refusal(LLAMA, JOB, policy) == verdict.why
    assert bool(verdict.why) != verdict.legal
