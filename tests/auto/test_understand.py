"""What can be cut is found by running blocks; what cannot stays whole, with the reason."""

import pytest
import torch
from small_models import FusedBlock, MixingBlock, NormedBlock, WideNormBlock, program

from shardwise.run.auto.plan import Degrees
from shardwise.run.auto.prove import plan_of, refused


def cuts_by_row(plan):
    return {cut.row: cut for cut in plan.kinds[0].cuts}


def test_products_are_paired_by_what_flows_between_them():
    plan = plan_of(program(NormedBlock), Degrees(tp=2))
    cuts = cuts_by_row(plan)
    assert {c.module for c in cuts["o"].columns} == {"q", "k", "v"}
    assert {c.module for c in cuts["down"].columns} == {"gate", "up"}
    assert set(cuts["o"].inner) == {"q_norm.weight", "k_norm.weight"}
    assert cuts["o"].attends
    assert not cuts["down"].attends
    assert plan.vocabulary.tables == ("words",)
    assert plan.vocabulary.heads == ("head",)


def test_a_fused_product_is_cut_by_heads():
    plan = plan_of(program(FusedBlock), Degrees(tp=2))
    (column,) = cuts_by_row(plan)["out"].columns
    assert column.indices[0] == (*range(16), *range(32, 48), *range(64, 80))
    assert cuts_by_row(plan)["out"].fitted


def test_norms_over_all_heads_shared_keys_and_flat_biases():
    cut = cuts_by_row(plan_of(program(WideNormBlock), Degrees(tp=2)))["attention.o"]
    held = {column.module: column.indices for column in cut.columns}
    assert held["attention.k"] == held["attention.v"] == (tuple(range(8)),) * 2
    assert held["attention.q"] == (tuple(range(16)), tuple(range(16, 32)))
    assert [(norm.module, norm.epsilon, norm.centred) for norm in cut.norms] == [("attention.q_norm", 1e-6, False)]
    assert cut.flat


def test_what_mixes_stays_whole_and_says_why():
    plan = plan_of(program(MixingBlock), Degrees(tp=2))
    assert plan.kinds[0].cuts == ()
    assert "separate shares" in plan.all_refusals[0].why
    assert refused(plan).startswith("no GEMM of the blocks can be cut")


def test_heads_that_do_not_divide_stay_whole():
    plan = plan_of(program(NormedBlock), Degrees(tp=4))
    assert set(cuts_by_row(plan)) == {"down"}
    assert any(each.where.endswith(".o") for each in plan.all_refusals)


def test_the_users_model_is_left_as_it_was():
    own = program(FusedBlock)
    before = {name: p.detach().clone() for name, p in own.model.named_parameters()}
    plan_of(own, Degrees(tp=2))
    after = dict(own.model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any("forward" in vars(module) for module in own.model.modules())


def test_uneven_words_are_not_shared():
    plan = plan_of(program(NormedBlock), Degrees(tp=5))
    assert plan.vocabulary.tables == ()
    assert "not shared evenly by 5 ranks" in plan.refusals[0].why


@pytest.mark.parametrize("block", [NormedBlock, FusedBlock])
def test_ends_know_their_stages(block):
    ends = {end.parameter: end for end in plan_of(program(block), Degrees(pp=2)).ends}
    assert ends["words.weight"].first
    assert ends["words.weight"].last
    assert ends["norm.weight"].last
    assert not ends["norm.weight"].first
