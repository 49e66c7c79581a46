"""The rule on schedules, chunks and micro-batches: the same as the schedules' own; cures keep the degrees first."""

from itertools import product

import pytest

from shardwise.plugins.pipeline import schedule_names
from shardwise.plugins.schedules import schedules
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import RULES, verdict_of

MODEL, CLUSTER = model_of("llama-3-8b"), cluster_of("8xh100")
RULE = next(rule for rule in RULES if rule.name == "interleaving")


@pytest.mark.parametrize("global_batch", [6, 8, 16])
def test_columns_of_mixed_schedules(global_batch: int) -> None:
    cases = list(product(schedule_names(), (1, 2, 3, 4), (1, 2, 3), (1, 2)))
    job = Job(seq=8192, global_batch=global_batch)
    policies = Policies.of(Policy(schedule=name, pp=pp, vpp=vpp, dp=dp) for name, pp, vpp, dp in cases)
    expected = [not schedules()[name].legal(pp, vpp, global_batch // dp) for name, pp, vpp, dp in cases]
    assert RULE.check(MODEL, CLUSTER.gpus, job, policies).tolist() == expected
    assert 0 < sum(expected) < len(expected)


@pytest.mark.parametrize(
    ("policy", "cure"),
    [
        (Policy(dp=2, pp=4, schedule="zb_v"), ("1f1b", 4, 1)),
        (Policy(dp=2, pp=4, vpp=2, schedule="dualpipe"), ("interleaved", 4, 2)),
        (Policy(dp=4, pp=2, vpp=2, schedule="1f1b"), ("interleaved", 2, 2)),
    ],
)
def test_a_schedule_that_does_not_suit_gives_way_to_the_usual_one(policy: Policy, cure: tuple[str, int, int]) -> None:
    verdict = verdict_of(MODEL, CLUSTER, Job(seq=8192, global_batch=64), policy)
    assert verdict.rule == "interleaving"
    assert policy.schedule in verdict.why
    assert verdict.cure is not None
    assert (verdict.cure.schedule, verdict.cure.pp, verdict.cure.vpp) == cure


@pytest.mark.parametrize(("name", "vpp"), [("zb_v", 2), ("dualpipe", 1), ("looped_bfs", 3), ("gpipe", 1)])
def test_a_cure_of_something_else_keeps_the_schedule(name: str, vpp: int) -> None:
    broken = Policy(dp=4, pp=4, vpp=vpp, schedule=name)
    verdict = verdict_of(MODEL, CLUSTER, Job(seq=8192, global_batch=64), broken)
    assert verdict.rule == "world"
    assert verdict.cure is not None
    assert (verdict.cure.schedule, verdict.cure.pp, verdict.cure.vpp) == (name, 4, vpp)
