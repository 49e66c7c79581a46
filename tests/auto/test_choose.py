"""Which split `auto` takes: the planner's fastest that can be made of the model, and why faster ones are not."""

import pytest
from small_models import FusedBlock, NormedBlock, SwitchBlock, WideBlock, program

from shardwise.run.auto.choose import chosen
from shardwise.run.auto.plan import Degrees
from shardwise.run.auto.small import MOST_RANKS, few_ranks
from shardwise.spec.load import cluster_of


def choice(block, on, *fix):
    return chosen(program(block, blocks=4), cluster_of(on), fix)


def test_tokens_are_shared_where_the_model_allows_it():
    found = choice(WideBlock, "2xh100", "tp=2", "sp=on")
    assert found.plan.degrees == Degrees(tp=2, sp=True)
    assert found.policy.sp
    assert found.prediction.fits


def test_where_the_model_does_not_the_reason_is_told():
    found = choice(FusedBlock, "2xh100", "tp=2", "sp=on")
    assert not found.prediction.fits
    assert any(each.startswith("tp 2, sp: outside the GEMMs: ") for each in found.prediction.passed_over)
    assert "tp=2, sp=on is not held to" in found.prediction.unknown
    assert choice(FusedBlock, "2xh100", "tp=2").plan.degrees == Degrees(tp=2)


def test_experts_are_shared_out():
    found = choice(SwitchBlock, "2xh100", "ep=2")
    assert found.plan.degrees == Degrees(dp=2, ep=2)
    assert found.plan.kinds[0].homes
    assert found.policy.ep == 2


@pytest.mark.parametrize(
    ("on", "fix", "text"),
    [("8xh100", "vpp=2", ", vpp 2"), ("4xh100", "shard_group=2,tp=1,cp=1,pp=1", "dp 2 x fsdp 2"),
     ("2xh100", "offload=activations", "activations on the host"), ("2xh100", "schedule=gpipe,pp=2", "pp 2, gpipe")],
)  # fmt: skip
def test_what_a_policy_says_is_made(on, fix, text):
    assert text in choice(NormedBlock, on, fix).plan.degrees.text


def test_a_small_copy_keeps_the_schedule_legal():
    whole = Degrees(dp=8, replicas=4, pp=4, vpp=3, micro_batches=12)
    assert few_ranks(whole, 96) == Degrees(dp=4, replicas=2, pp=4, vpp=3, micro_batches=8)
    # six samples each would be no multiple of the stages: one rank gets all of them
    assert few_ranks(whole, 24) == Degrees(pp=4, vpp=3, micro_batches=8)


@pytest.mark.parametrize("degrees", [Degrees(tp=8), Degrees(tp=4, cp=4), Degrees(dp=8, ep=8), Degrees(tp=8, sp=True)])
def test_a_small_copy_is_split_as_planned(degrees):
    assert few_ranks(degrees, 64) == degrees


def test_a_small_copy_has_few_processes():
    assert few_ranks(Degrees(dp=64, tp=8, pp=16, micro_batches=64), 1024).ranks <= 2 * MOST_RANKS
