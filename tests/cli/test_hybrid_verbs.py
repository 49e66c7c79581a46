"""Verbs on models of unusual layers: those that plan take them, those that run refuse and say why."""

import json

import pytest

from terminal import narrow_terminal, refused, shown

__all__ = ["narrow_terminal"]

pytestmark = pytest.mark.usefixtures("narrow_terminal")


def test_a_hybrid_in_full(capsys):
    text = " ".join(shown(capsys, ["catalog", "models", "nemotron-3-super"]).split())
    assert "40 x Mamba-2: 128 heads of 64, state 128, 8 groups" in text
    assert "512 experts of 2,688 in a latent of 1,024, 22 active + shared 5,376" in text


@pytest.mark.parametrize(
    ("model", "stack", "said"),
    [
        ("gpt-oss-20b", "megatron-core", True),
        ("gpt-oss-20b", "torch-eager@compiled", False),
        ("qwen3-30b-a3b", "megatron-bridge@26.04", False),
    ],
)
def test_an_estimate_says_what_a_program_leaves_apart(capsys, model, stack, said):
    arguments = ["estimate", model, "--on", "dgx-h100:64", "--ep", "8", "--seq", "4096", "--stack", stack, "--verbose"]
    text = " ".join(shown(capsys, arguments).split())
    assert (f"work that {stack} leaves to PyTorch, kernel by kernel: " in text) is said


def test_an_estimate_says_what_it_assumes_of_the_scan(capsys):
    arguments = ["estimate", "nemotron-h-8b", "--on", "dgx-h100:8", "--tp", "2", "--global-batch", "32", "--verbose"]
    text = " ".join(shown(capsys, arguments).split())
    assert "Mamba-2 scan: 10 GB/s of memory traffic for each multiprocessor" in text


def test_a_plan_never_cuts_a_group(capsys):
    found = json.loads(shown(capsys, ["plan", "nemotron-h-8b", "--on", "2x8xh100", "--global-batch", "32", "--json"]))
    assert found["best"]
    assert all(8 % plan["policy"]["tp"] == 0 for plan in found["best"])


@pytest.mark.parametrize("verb", ["run", "verify"])
def test_what_executes_refuses_a_hybrid(capsys, verb):
    pytest.importorskip("torch")
    refused(capsys, [verb, "nemotron-3-nano", "--on", "2xh100"], "layers of one mixer each (hybrid_override_pattern)")


def test_the_delta_rule_is_planned_and_not_run(capsys):
    text = " ".join(shown(capsys, ["catalog", "models", "qwen3-next-80b-a3b"]).split())
    assert "36 x gated delta rule: 32 heads of 128, 16 key heads of 128; 512 experts of 512" in text
    assert "12 x 16 heads of 256, 2 kv, gated; 512 experts" in text
    job = ["qwen3-next-80b-a3b", "--on", "8x8xh200", "--global-batch", "512"]
    found = json.loads(shown(capsys, ["plan", *job, "--json"]))
    assert found["best"]
    assert all(16 % (plan["policy"]["tp"] * plan["policy"]["cp"]) == 0 for plan in found["best"])
    text = " ".join(shown(capsys, ["estimate", *job, "--ep", "16", "--recompute", "full", "--verbose"]).split())
    assert "gated delta rule: 15.5 GB/s of memory traffic for each multiprocessor" in text
    pytest.importorskip("torch")
    refused(capsys, ["run", "qwen3-next-80b-a3b", "--on", "2xh100"], "has attention this runtime lacks")


def test_compressed_attention_is_planned_and_not_run(capsys):
    text = " ".join(shown(capsys, ["catalog", "models", "deepseek-v4-flash"]).split())
    assert "20 x 64 heads of 512, 1 kv, window 128, and one key of 128 pooled; 256 experts" in text
    assert "and one key of 4 pooled, the first 512 by 64 index heads of 128" in text
    assert "hidden 4,096 in 4 streams" in text
    assert " 0 x" not in text
    job = ["deepseek-v4-flash", "--on", "gb300-nvl72:128", "--global-batch", "2048", "--seq", "4096"]
    found = json.loads(shown(capsys, ["plan", *job, "--json"]))
    assert found["best"]
    assert all(8 % plan["policy"]["tp"] == 0 for plan in found["best"])
    text = " ".join(
        shown(capsys, ["estimate", *job, "--ep", "64", "--zero", "1", "--recompute", "full", "--verbose"]).split()
    )
    assert "compressed attention: kernels that gather keys" in text
    pytest.importorskip("torch")
    refused(capsys, ["run", "deepseek-v4-flash", "--on", "2xh100"], "write a GPT, Llama or Mixtral form")


def test_no_cut_of_a_mixed_layer(capsys):
    refused(capsys, ["search", "cuts", "nemotron-3-nano", "--on", "8xh100"], "write attention or moe")
    refused(capsys, ["search", "cuts", "qwen3-next-80b-a3b", "--on", "8xh100"], "which has no cut here; write moe")
    refused(
        capsys, ["search", "cuts", "qwen3-next-80b-a3b", "--on", "8xh100", "--block", "attention"], "has an output gate"
    )
    refused(
        capsys,
        ["search", "cuts", "deepseek-v4-flash", "--on", "8xh100"],
        "pooled keys, which has no cut here; write moe",
    )
    assert "latent down" in shown(capsys, ["search", "cuts", "nemotron-3-super", "--on", "8xh100", "--block", "moe"])
