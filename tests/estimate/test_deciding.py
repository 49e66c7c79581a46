"""An estimate names the numbers that decide it, with where they come from; what is read in a program is not one."""

import json

import pytest

from shardwise.show.cli import main
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_names, stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.deciding import MATTERS, deciding_numbers, uneven_groups
from shardwise.work.case import Case, case_of


def case_with(stack: str, gpus: int = 64, batch: int = 512) -> Case:
    job = Job(seq=4096, global_batch=batch)
    return case_of(model_of("llama-3-8b"), cluster_from("h100", gpus, 8), job, stack_of(stack))


def step(case: Case, policy: Policy) -> float:
    return float(estimate(case, Policies.of([policy])).times.step_s[0])


def test_each_named_number_moves_the_step_by_what_is_said() -> None:
    case, policy = case_with("nanotron"), Policy(tp=16, dp=4)
    found = deciding_numbers(case, policy)
    assert found
    for number in found:
        without = step(case.changed(**{number.setting: number.default}), policy)
        assert step(case, policy) / without - 1 == pytest.approx(number.share)
        assert abs(number.share) > MATTERS
        assert number.origin.kind not in ("read", "default")
        assert str(number.origin) in str(number)


def test_what_no_number_decides_names_none() -> None:
    assert not deciding_numbers(case_with("torch-eager@compiled", gpus=8), Policy(dp=8, micro_batch=8))


@pytest.mark.parametrize("name", stack_names())
def test_one_node_more_makes_no_cliff_but_the_one_that_is_named(name: str) -> None:
    """Equal work for each GPU takes about as long on 63 nodes as on 64, but for groups of 63 ranks of which some node
    holds one: what the estimate says of them is the whole difference."""
    (fewer, named), (more, none) = (
        (step(case, policy), uneven_groups(case, policy))
        for case, policy in ((case_with(name, 8 * dp, batch=8 * dp), Policy(pp=8, dp=dp, zero=0)) for dp in (63, 64))
    )
    assert none is None
    assert named is not None
    assert (named.groups[0].ranks, named.groups[0].fewest, named.gpus_per_node) == (63, 1, 8)
    assert fewer / (1 + named.share) == pytest.approx(more, rel=0.02)


@pytest.mark.parametrize("name", stack_names())
def test_a_pipeline_in_each_node_has_no_cliff(name: str) -> None:
    policies = [Policy(pp=8, dp=dp, zero=0, order="tp-pp-cp-dp") for dp in (63, 64)]
    cases = [case_with(name, 8 * policy.dp, batch=8 * policy.dp) for policy in policies]
    fewer, more = map(step, cases, policies)
    assert more == pytest.approx(fewer, rel=0.02)
    assert uneven_groups(cases[0], policies[0]) is None


def test_one_short_node_makes_no_cliff() -> None:
    """63 ranks of one group leave the node that holds 7 of them by 7 cards, so all others too."""
    fewer, more = (step(case_with("megatron-core", dp, batch=dp), Policy(dp=dp, zero=1)) for dp in (63, 64))
    assert fewer == pytest.approx(more, rel=0.02)


def test_estimate_prints_them_and_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["llama-3-8b", "--on", "dgx-h100:64", "--stack", "nanotron", "--tp", "16", "--seq", "4096"]
    assert main(["estimate", *flags]) == 0
    assert "constants that move the step by more than 5%" in capsys.readouterr().out
    assert main(["estimate", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["deciding_numbers"]
    assert {"setting", "value", "default", "share", "origin"} == set(found[0])
    assert all(abs(number["share"]) > MATTERS for number in found)


def test_estimate_names_groups_that_do_not_fill_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["llama-3-8b", "--on", "dgx-h100:504", "--pp", "8", "--zero", "0", "--seq", "4096", "--global-batch", "504"]
    assert main(["estimate", *flags]) == 0
    assert "groups of 63 ranks (dp) do not fill nodes of 8" in " ".join(capsys.readouterr().out.split())
    assert main(["estimate", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["uneven_groups"]
    assert found["groups"] == [{"axis": "dp", "ranks": 63, "fewest": 1}]
    assert found["share"] > MATTERS
