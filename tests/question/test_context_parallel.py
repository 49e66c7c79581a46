"""How attention goes over context-parallel ranks, asked for as any other option of a question."""

import pytest

from shardwise.plan.space import space
from shardwise.question.build import open_question_of, question_of
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate

LONG = {"seq": 65_536, "global_batch": 8}


def test_three_ways_send_three_messages() -> None:
    sent = {}
    for way in ("ring", "ulysses", "gather"):
        case = open_question_of("llama-3-8b", "8xh100", context_parallel=way, **LONG).case
        work = estimate(case, Policies.of([Policy(dp=2, cp=4)])).work
        sent[way] = {item.op for item in work.kinds[0].collectives if item.axis == "cp"}
    assert sent == {"ring": {"send"}, "ulysses": {"all_to_all"}, "gather": {"all_gather", "reduce_scatter"}}


def test_heads_are_exchanged_whole() -> None:
    """Llama 3 8B has 32: 4 on each of 8 tensor-parallel ranks, which 8 others cannot share."""
    with pytest.raises(ValueError, match="context-parallel: ulysses needs cp 8 to divide the query heads"):
        question_of("llama-3-8b", on="64xh100", tp=8, cp=8, dp=1, context_parallel="ulysses", **LONG)
    cut = question_of("llama-3-8b", on="64xh100", tp=8, cp=4, dp=2, context_parallel="ulysses", **LONG)
    assert cut.policy.cp == 4


def test_a_plan_leaves_out_what_cuts_a_head() -> None:
    ways = {}
    for way in ("ring", "ulysses"):
        frames = space(open_question_of("llama-3-8b", "8x8xh100", context_parallel=way, **LONG).case).frames
        ways[way] = {(int(tp), int(cp)) for tp, cp in zip(frames.tp, frames.cp, strict=True)}
    assert ways["ulysses"] == {(tp, cp) for tp, cp in ways["ring"] if cp == 1 or 32 // tp % cp == 0}
    assert ways["ulysses"] < ways["ring"]


def test_another_way_is_refused() -> None:
    with pytest.raises(ValueError, match="context-parallel: 'star' is unknown"):
        open_question_of("llama-3-8b", "8xh100", context_parallel="star")
