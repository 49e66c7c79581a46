"""Splits equal one process, gradient by gradient; splits with one thing left out do not, and the proof says so."""

from functools import cache

import pytest
import torch
from msgspec.structs import replace
from small_models import (
    SAMPLES,
    TOKENS,
    WIDTH,
    BiasedBlock,
    EachBlock,
    ExpertBlock,
    FusedBlock,
    LatentBlock,
    MixingBlock,
    NormedBlock,
    ScaledBlock,
    SinkBlock,
    Tiny,
    WideNormBlock,
    batch,
    program,
    step,
)

from shardwise.run.auto.live import foretold_peak
from shardwise.run.auto.plan import Column, degrees_of
from shardwise.run.auto.program import program_of
from shardwise.run.auto.prove import plan_of, proven
from shardwise.run.auto.stage import orders_of, routes_of
from shardwise.run.auto.truth import LOOKED_AT, truth_of

BLOCKS = {"normed": NormedBlock, "fused": FusedBlock, "mixing": MixingBlock, "wide": WideNormBlock,
          "experts": ExpertBlock, "latent": LatentBlock, "scaled": ScaledBlock, "sinks": SinkBlock,
          "biased": BiasedBlock, "each": EachBlock}  # fmt: skip


@cache
def told(block, dtype="float64", blocks=2):
    own = program(BLOCKS[block], dtype=dtype, blocks=blocks)
    return own, truth_of(own)


def proof(block, text, change=lambda plan: plan, dtype="float64"):
    own, truth = told(block, dtype, 4 if "vpp" in text else 2)
    return proven(own, change(plan_of(own, degrees_of(text))), truth)


def changed_cut(plan, row, **fields):
    kind = plan.kinds[0]
    cuts = tuple(replace(cut, **fields) if cut.row == row else cut for cut in kind.cuts)
    return replace(plan, kinds=(replace(kind, cuts=cuts),))


@pytest.mark.parametrize(
    ("block", "text"),
    [("normed", "fsdp=2,tp=2"), ("fused", "pp=2"), ("normed", "tp=2,pp=2"), ("normed", "tp=2,cp=2"),
     ("wide", "tp=2,sp"), ("experts", "fsdp=2,ep=2"), ("normed", "dp=2,fsdp=2"), ("fused", "pp=2,vpp=2"),
     ("fused", "pp=2,vpp=2,schedule=zb_v"), ("fused", "fsdp=2,offload=both"),
     *(pytest.param(*each, marks=pytest.mark.slow)
       for each in (("fused", "tp=2"), ("fused", "cp=2"), ("normed", "fsdp=2,pp=2"), ("mixing", "fsdp=2"),
                    ("wide", "fsdp=2,tp=2"), ("normed", "dp=2,fsdp=2,pp=2,micro=2"), ("wide", "tp=2,sp,pp=2,vpp=2"),
                    ("fused", "fsdp=2,pp=2,vpp=2"), ("normed", "tp=2,pp=2,schedule=zero_bubble_h1"),
                    ("fused", "pp=2,schedule=gpipe"), ("fused", "pp=2,vpp=2,schedule=looped_bfs"),
                    ("fused", "pp=2,vpp=2,schedule=interleaved_zero_bubble"),
                    ("fused", "pp=2,vpp=2,schedule=dualpipe_v"), ("normed", "tp=2,pp=2,offload=both")))],
)  # fmt: skip
def test_a_split_equals_one_process(block, text):
    found = proof(block, text)
    assert found.why == ""
    assert found.compared == found.trainable > 0
    assert found.gradients == found.steps * found.trainable
    assert len(found.gradient_gaps) == len(found.loss_gaps) == found.steps
    assert found.gradient_gap == max(found.gradient_gaps) < 1e-12
    assert found.checkpoint_equal
    assert found.messages_equal
    assert found.state_gap == 0.0
    # gloo's own thread may still hold a message between stages when the next tensor is made
    message = SAMPLES // degrees_of(text).micro_batches * TOKENS * WIDTH * 8 if "pp" in text else 0
    assert found.memory_gap < 0.03 + message / found.peak_bytes


def test_code_may_ask_for_the_type_of_a_table_that_another_stage_holds():
    class Asking(Tiny):
        def forward(self, tokens):
            return super().forward(tokens.to(self.words.weight.device)).to(self.head.weight.dtype)

    def build():
        model = Asking(FusedBlock, tied=False)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    own = program_of(build, batch, step, 3, "float64")
    assert proven(own, plan_of(own, degrees_of("pp=2")), truth_of(own)).why == ""


def test_recomputed_blocks_give_the_same():
    assert proof("normed", "tp=2,recompute").equal


def test_in_32_bits_too():
    found = proof("fused", "tp=2", dtype="float32")
    assert found.equal
    assert found.tolerance == 1e-5


def test_a_forgotten_sum_of_inner_weights_is_seen_in_gradients():
    found = proof("normed", "tp=2", lambda plan: changed_cut(plan, "o", inner=()))
    assert not found.equal
    assert found.gradient_gap > 0.1
    assert found.worst.endswith("norm.weight")


def test_swapped_indices_of_a_fused_product_are_seen():
    def swapped(plan):
        column = next(cut for cut in plan.kinds[0].cuts if cut.row == "out").columns[0]
        wrong = tuple(tuple(range(48 * rank, 48 * (rank + 1))) for rank in range(2))
        return changed_cut(plan, "out", columns=(Column(module=column.module, indices=wrong),))

    assert not proof("fused", "tp=2", swapped).equal


def test_a_tied_table_that_is_not_summed_is_seen():
    def apart(plan):
        ends = tuple(replace(end, last=False) if end.parameter == "words.weight" else end for end in plan.ends)
        return replace(plan, ends=ends)

    found = proof("fused", "pp=2", apart)
    assert not found.equal


@pytest.mark.parametrize("text", ["tp=2", "fsdp=2,tp=2", "tp=4", "tp=2,sp", "pp=2"])
def test_latent_attention_is_split_and_equal(text):
    """The latent path enters the cut where the rotary key does: its gradient is summed once."""
    found = proof("latent", text)
    assert found.why == ""
    assert found.gradient_gap < 1e-10
    assert found.messages_equal
    if "pp" in text:
        return
    own, _ = told("latent")
    cut = next(cut for cut in plan_of(own, degrees_of(text)).kinds[0].cuts if cut.row == "attention.o")
    assert {column.module for column in cut.columns if column.inside} == {"attention.kv_b"}


@pytest.mark.parametrize("text", ["tp=2", "tp=2,pp=2"])
def test_attention_with_sinks_is_split_and_equal(text):
    found = proof("sinks", text)
    assert found.why == ""
    assert found.gradient_gap < 1e-12
    assert found.messages_equal
    assert "attention.o" in {cut.row for cut in plan_of(told("sinks")[0], degrees_of(text)).kinds[0].cuts}


@pytest.mark.parametrize(("block", "text"), [("biased", "tp=2"), ("biased", "fsdp=2,ep=2"), ("each", "fsdp=2,ep=2")])
def test_experts_with_biases_or_rows_of_their_own_are_split(block, text):
    """A bias behind the sum over ranks is added once."""
    found = proof(block, text)
    assert found.why == ""
    assert found.gradient_gap < 1e-12
    assert found.messages_equal
    assert found.share < 0.65
    if "tp" in text:
        (cut,) = (cut for cut in plan_of(told(block)[0], degrees_of(text)).kinds[0].cuts if cut.stacks)
        assert cut.divided == ("chosen.down_bias",)
        assert "chosen.down_bias" in cut.inner


def test_a_weight_before_and_between_the_gemms_is_not_summed_twice():
    """Of one scale, on what enters the GEMMs and on what all heads share, ranks know the first part whole."""
    assert "scale is used before the GEMMs and between them" in " ".join(
        each.why for each in plan_of(told("scaled")[0], degrees_of("tp=2")).all_refusals
    )
    assert proof("scaled", "tp=2").equal


def test_keys_that_all_heads_share_are_summed():
    def apart(plan):
        """As if every rank had keys of its own."""
        cut = next(cut for cut in plan.kinds[0].cuts if cut.row == "attention.o")
        columns = tuple(each for each in cut.columns if each.module != "attention.k")
        return changed_cut(plan, "attention.o", columns=columns, inner=())

    assert proof("wide", "tp=2").equal
    assert proof("wide", "tp=2", apart).gradient_gap > 1e-3


def test_activations_are_foretold():
    """Recomputed blocks keep less, and one rank's part is foretold without the others."""
    own, truth = told("normed")
    plain, again = (foretold_peak(own, plan_of(own, degrees_of(text)), truth.clips, 0) for text in
                    ("tp=2", "tp=2,recompute"))  # fmt: skip
    assert again < plain
    assert proof("normed", "tp=2").peak_bytes == plain


def test_tokens_that_others_send_to_a_ranks_experts_are_foretold():
    """One process tells which experts the routers of all ranks choose; others would choose as this rank does."""
    own, truth = told("experts")
    plan = plan_of(own, degrees_of("fsdp=2,ep=2"))
    assert len(truth.choices) == LOOKED_AT
    assert proof("experts", "fsdp=2,ep=2").memory_gap < 0.005
    first, second = (
        [{name: torch.full_like(chosen, expert) for name, chosen in truth.choices[0].items()}] for expert in (0, 3)
    )
    # experts 0 and 1 are on the first rank, 2 and 3 on the second
    assert foretold_peak(own, plan, truth.clips, 0, first) > 1.05 * foretold_peak(own, plan, truth.clips, 0, second)
    assert foretold_peak(own, plan, truth.clips, 1, first) < foretold_peak(own, plan, truth.clips, 1, second)


def test_a_message_of_gloo_is_no_tensor_of_the_program():
    """It sums and scatters a copy of what it is given, while a stage's gradients are at their fullest."""
    assert proof("fused", "fsdp=2,pp=2").memory_gap < 0.005


def test_what_is_on_the_host_is_not_on_the_device():
    own, truth = told("fused")
    peaks = {text: foretold_peak(own, plan_of(own, degrees_of(f"fsdp=2,offload={text}")), truth.clips, 0)
             for text in ("none", "activations", "optimizer", "both")}  # fmt: skip
    assert peaks["both"] < min(peaks["activations"], peaks["optimizer"])
    assert max(peaks["activations"], peaks["optimizer"]) < peaks["none"]


@pytest.mark.parametrize(
    ("text", "why"),
    [("pp=2,vpp=4", "4 blocks for 8 stages"), ("pp=2,schedule=dualpipe", "has the model twice"),
     ("fsdp=2,pp=2,schedule=zero_bubble_h1", "FSDP2 takes a block's"), ("pp=2,schedule=zb_v", "it needs vpp 2"),
     ("pp=2,schedule=zero_bubble_h1,recompute", "recomputed blocks"), ("dp=2,fsdp=2,cp=2", "with cp")],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_with_its_reason(text, why):
    assert why in proof("fused", text).why


def test_a_message_that_comes_early_waits_for_its_stage():
    """Two ranks with two stages each: both directions run between the same two ranks."""
    plan = plan_of(told("fused", blocks=4)[0], degrees_of("pp=2,vpp=2,micro=2"))
    routes = routes_of(plan, orders_of(plan))
    assert {way for way, *_ in routes[0, 1]} == {"F", "B"}
    assert len(routes[0, 1]) + len(routes[1, 0]) == 2 * 3 * 2  # micro-batches x borders x directions


def test_tokens_meet_in_a_block_that_reads_how_many_there_are():
    assert proof("normed", "tp=2,sp").why.startswith("outside the GEMMs: ")


def test_experts_are_shared_out_where_there_are_some():
    assert "no experts are shared out" in proof("normed", "fsdp=2,ep=2").why


def test_a_batch_that_does_not_divide_is_refused_before_anything_runs():
    assert "8 samples are not shared evenly by 3" in proof("fused", "fsdp=3").why


def test_nothing_to_cut_is_refused():
    assert proof("mixing", "tp=2").why.startswith("no GEMM of the blocks can be cut")


def test_without_attention_tokens_are_not_shared():
    assert "no scaled dot-product attention" in proof("mixing", "cp=2").why
