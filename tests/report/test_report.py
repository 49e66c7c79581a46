"""One policy's report: its numbers add up, its pages fit, its keys stay."""

import json
import re

import msgspec
import pytest

from shardwise.answers._estimate_parts import (
    facts_of,
    hidden_line,
    memory_legend,
    memory_table,
    money_table,
    time_table,
    traffic_table,
)
from shardwise.answers.answer import Notes
from shardwise.question.studies.build import report_of
from shardwise.report.report import Money
from shardwise.report.terminal import days_text, legend_of, policy_code, policy_text, usd_text
from shardwise.show.cli._output import print_parts
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

JOB = Job(seq=8192, global_batch=512, tokens=15e12)
KEYS = {
    "tier", "model", "cluster", "gpu", "gpus", "stack", "seq_tokens", "global_sequences", "step_tokens", "precision",
    "pipeline_passes",
    "optimizer", "policy", "fits", "verdict", "step_s", "error_band", "error_range", "error_basis",
    "tokens_per_s_per_gpu", "peak_flops_per_s",
    "mfu_causal_half", "mfu_full_square", "hfu", "capacity_bytes", "peak_bytes", "reserve_bytes", "free_bytes",
    "fullest_stage", "host_bytes", "host_limit_bytes",
    "out_of_memory_chance", "stages", "time_s", "hidden_s", "micro_batches", "bubble_share", "traffic_bytes",
    "money", "sync",
    "assumptions", "time_share",
}  # fmt: skip


def report(model="llama-3-70b", on="dgx-h100:1024", job=JOB, **policy):
    return report_of(case_of(model_of(model), cluster_of(on), job, stack_of("megatron-core")), Policy(**policy))


@pytest.fixture(scope="module")
def dense():
    return report(tp=8, pp=4, dp=32, vpp=5, schedule="interleaved")


@pytest.fixture
def page(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def printed(found):
        print_parts([facts_of(found), memory_table(found), memory_legend(found), time_table(found), hidden_line(found),
                     traffic_table(found), money_table(found), Notes(found.assumptions)])  # fmt: skip
        return capsys.readouterr().out

    return printed


def test_parts_add_up(dense):
    assert sum(dense.time_s.values()) == pytest.approx(dense.step_s)
    assert sum(dense.shares.values()) == pytest.approx(1)
    for stage in dense.stages:
        assert sum(stage.kinds_bytes.values()) == pytest.approx(stage.total_bytes)
    assert [stage.stage for stage in dense.stages] == [0, 1, 2, 3]
    assert dense.peak_bytes == max(stage.total_bytes for stage in dense.stages)
    assert dense.free_bytes == dense.capacity_bytes - dense.reserve_bytes - dense.peak_bytes


def test_throughput_is_tokens_over_time(dense):
    assert dense.tokens_per_s_per_gpu * dense.step_s * 1024 == pytest.approx(JOB.step_tokens)
    assert dense.micro_batches == 512 // 32


def test_mfu_conventions(dense):
    assert dense.hfu == dense.mfu_causal_half < dense.mfu_full_square
    plain = report(tp=8, pp=4, dp=32, attention="plain")
    assert plain.mfu_causal_half < plain.mfu_full_square == plain.hfu
    again = report(tp=8, pp=4, dp=32, recompute="full")
    assert again.hfu > 1.25 * again.mfu_causal_half
    some = report(tp=8, pp=4, dp=32, recompute="full", recompute_layers=10)
    extra = (some.hfu / some.mfu_causal_half - 1) / (again.hfu / again.mfu_causal_half - 1)
    assert extra == pytest.approx(0.5)


def test_out_of_memory_says_how_much_where_and_what():
    found = report(on="8xh100", tp=8, dp=1)
    assert not found.fits
    over = (found.peak_bytes + found.reserve_bytes - found.capacity_bytes) / 2**30
    assert found.verdict == f"out of memory by {over:.1f} GiB on stage 0: optimizer"
    assert found.largest_kind == "optimizer"
    assert report(tp=8, pp=4, dp=32).verdict == "fits"


def test_tensor_parallel_traffic_is_the_collectives_of_every_layer():
    """Per layer and micro-batch: ten gathers or scatters of tokens x hidden x 2 bytes, 7/8 of each sent (ring)."""
    found = report(tp=8, pp=4, dp=32)
    sent = found.traffic_bytes["tp"]["node"]
    layers = 10 * 2 * 8192 * 8192 * 7 / 8 * 80 * found.micro_batches / 4
    assert sent == pytest.approx(layers, rel=0.02)
    assert sent > layers
    assert found.traffic_bytes["tp"]["leaf"] == 0


def test_gradient_traffic_by_zero_stage():
    """ZeRO-1 scatters once (32 bits) and gathers once (16); ZeRO-2 must scatter in each of the 4 micro-batches."""
    job = Job(seq=8192, global_batch=512)
    sent = {zero: sum(report(job=job, tp=8, dp=128, zero=zero).traffic_bytes["dp"].values()) for zero in (0, 1, 2, 3)}
    assert sent[2] == pytest.approx(sent[1] * (4 * 4 + 2) / (4 + 2))
    assert sent[3] > sent[2]
    alone = report(on="8xh100", job=job, tp=8, dp=1).traffic_bytes["dp"]
    assert sum(alone.values()) == 0


def test_pipeline_sends_over_every_cut_both_ways():
    found = report(tp=8, pp=4, dp=32)
    message = 2 * 8192 * 8192 / 8
    sent = found.traffic_bytes["pp"]
    assert sent["leaf"] == pytest.approx(2 * 3 / 4 * message * found.micro_batches)
    # every stage fills its own units, so that what leaves a node leaves its leaves too
    assert sent["spine"] == sent["leaf"]
    assert sent["node"] == 0


def test_expert_traffic_only_with_experts(dense):
    assert sum(dense.traffic_bytes["ep"].values()) == 0
    job = Job(seq=4096, global_batch=1024)
    experts = report("mixtral-8x7b", "dgx-h100:64", job, dp=64, ep=8, zero=1)
    assert experts.traffic_bytes["ep"]["node"] > 0
    assert "routing: balanced" in " ".join(experts.assumptions)


def test_money(dense):
    run, step = dense.money["run"], dense.money["step"]
    assert step.seconds == pytest.approx(dense.step_s)
    assert run.seconds * run.useful_share == pytest.approx(15e12 / JOB.step_tokens * dense.step_s)
    assert 0.9 < run.useful_share < 1
    assert run.energy_j == pytest.approx(128 * 0.76 * 10_200 * run.seconds), "of whole nodes"
    assert run.usd[0] == pytest.approx(1.99 * 1024 * run.seconds / 3600)
    assert dense.money["billion_tokens"].tokens == 1e9
    no_price = report("llama-3-8b", "h800:64", Job(seq=8192, global_batch=512), tp=8, dp=8)
    assert set(no_price.money) == {"step", "billion_tokens"}
    assert no_price.money["step"].usd is None


def test_dictionary_keys_are_stable_and_plain(dense):
    found = dense.to_dict()
    assert set(found) == KEYS
    assert json.loads(msgspec.json.encode(found)) == found
    low, high = found["error_range"]
    assert (found["tier"], found["error_band"]) == ("closed form", max(abs(low), abs(high)))


@pytest.mark.parametrize("pp", [1, 4, 16])
def test_page_is_no_wider_than_the_terminal(pp, page):
    found = report("deepseek-v3", "h800:2048", Job(seq=4096, global_batch=16384), pp=pp, dp=2048 // pp, ep=64)
    text = page(found)
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("verdict", "MFU", "stage", "backward", "ep", "placement", "micro-batches"):
        assert word in text


def test_page_marks_the_limit_inside_an_overfull_bar(page):
    lines = [line for line in page(report(on="8xh100", tp=8, dp=1)).splitlines() if line.startswith("0 ")]
    before, after = lines[0].split("|")
    assert "O" in before
    assert "A" in after


def test_notebook_page_is_self_contained(dense):
    text = msgspec.structs.replace(dense, model="<b>bad</b>")._repr_html_()
    assert "<b>bad" not in text
    assert "<script" not in text
    assert set(re.findall(r"https?://[^\"]*", text)) == {"http://www.w3.org/2000/svg"}
    assert len(text) < 10_000


def test_policy_in_words():
    policy = Policy(dp=4, tp=2, zero=3, micro_batch=2, recompute="full", recompute_layers=3)
    assert policy_text(policy) == "dp 4, tp 2, zero 3, micro 2, recompute full (3 layers)"
    assert policy_code(policy) == "dp4 tp2 z3 mb2 full3"


def test_assumptions_tell_measured_from_borrowed_kernels(dense):
    assert "fitted on measurements of h100" in " ".join(dense.assumptions)
    borrowed = report("llama-3-8b", "h800:64", Job(seq=8192, global_batch=512), tp=8, dp=8)
    assert "none measured on h800; constants of h100" in " ".join(borrowed.assumptions)


@pytest.mark.parametrize(("usd", "text"), [
    ((615.2, 2310.4), "615–2,310"), ((3.2, 8.0), "3.20–8.00"), ((561.0, 1409.0), "561–1,409"),
    ((504_000.0, 1.26e6), "0.504–1.26M"), ((58.8e6, 223.4e6), "58.8–223M"), ((20.0, 20.0), "20.00"),
])  # fmt: skip
def test_dollars_are_written_out(usd, text):
    assert usd_text(Money(tokens=1.0, seconds=1.0, energy_j=1.0, usd=usd, electricity_usd=0.0)) == text


@pytest.mark.parametrize(("days", "text"), [(0.3131, "0.313"), (52.68, "52.7"), (40_850.2, "40,850")])
def test_days_are_days(days, text):
    assert days_text(days * 86400) == text


def test_a_legend_has_every_code_that_is_printed_and_no_other():
    policies = [
        Policy(dp=2, tp=8, pp=4, vpp=2, sp=True, schedule="interleaved", zero=1, shard_group=2),
        Policy(dp=2, pp=4, schedule="gpipe", recompute="full", recompute_layers=3, offload="optimizer"),
        Policy(dp=2, tp=2, sp=False, recompute="selective", recompute_modules=("layernorm",), loss="fused"),
    ]
    legend = legend_of(policies)
    codes = ("dp", "tp", "pp", "vpp", "z", "mb", "full", "off-opt", "nosp", "selective", "gpipe", "layernorm", "fused")
    for code in codes:
        assert f"{code} " in legend
    for code in ("cp ", "ep ", "off-act", "tp-cp-dp-pp"):
        assert f" {code}" not in legend.replace(" etp ", "")
