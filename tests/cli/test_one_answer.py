"""One question has one answer, whichever verb is asked."""

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardwise import question_of, report_of
from shardwise.question.command import command_of
from shardwise.spec.arch import model_names, model_of
from shardwise.spec.job import MOST_ASSUMED, Job, usual_sequence
from shardwise.spec.policy import Policy
from terminal import narrow_terminal, refused, shown  # noqa: F401

ONE_NODE = ["--on", "8xa100"]
SEQUENCE_TOKENS = {
    "llama-65b": 2048, "opt-175b": 2048, "gpt-3-175b": 2048, "bloom-176b": 2048, "llama-2-70b": 4096,
    "llama-3.1-405b": MOST_ASSUMED, "llama-4-maverick": MOST_ASSUMED, "mnist-mlp": 1,
}  # fmt: skip


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capsys, [*words, "--json"]))
    return found


@pytest.mark.parametrize("model", SEQUENCE_TOKENS)
def test_a_sequence_nobody_states_is_the_model_s_own(model: str) -> None:
    assert usual_sequence(model_of(model)) == SEQUENCE_TOKENS[model]


def test_every_model_of_the_catalog_trained_on_text_states_its_positions() -> None:
    silent = [name for name in model_names() if not model_of(name).context and model_of(name).inputs == "tokens"]
    assert silent == []


def test_every_verb_takes_the_same_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    policy = [*ONE_NODE, "--tp", "2", "--global-batch", "64"]
    answers = {
        "plan": told(["plan", "llama-7b", *ONE_NODE, "--top", "1"], capsys),
        "estimate": told(["estimate", "llama-7b", *policy], capsys),
        "simulate": told(["simulate", "llama-7b", *policy], capsys),
        "mfu": told(["calc", "mfu", "llama-7b", "--on", "a100", "--tps", "380"], capsys),
        "max": told(["size", "--max", "batch", "llama-7b", *ONE_NODE], capsys),
        "cuts": told(["search", "cuts", "llama-7b", *ONE_NODE], capsys),
    }
    assert {verb: found["seq_tokens"] for verb, found in answers.items()} == dict.fromkeys(answers, 2048)
    for verb, found in answers.items():
        assert any("2,048 assumed, llama-7b's own positions" in note for note in found["notes"]), verb


def test_longer_positions_than_models_are_trained_at_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(["calc", "mfu", "llama-3.1-405b", "--on", "h100", "--tps", "40"], capsys)
    assert found["seq_tokens"] == MOST_ASSUMED
    assert "positions reach 131,072" in found["notes"][0]


@pytest.mark.parametrize("model", ["llama-2-7b", "mixtral-8x7b"])
def test_plan_and_estimate_agree_on_memory_that_is_free_and_on_mfu(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = told(["plan", model, "--on", "dgx-h100:32", "--top", "4"], capsys)
    job = Job(seq=planned["seq_tokens"], global_batch=planned["global_sequences"])
    for plan in planned["best"]:
        policy = msgspec.convert(plan["policy"], Policy)
        words = shlex.split(command_of(model, "dgx-h100:32", job, policy, planned["stack"]))
        found = told(words[1:], capsys)
        assert plan["free_bytes"] == found["free_bytes"]
        assert found["free_bytes"] == found["capacity_bytes"] - found["reserve_bytes"] - found["peak_bytes"]
        assert plan["mfu_causal_half"] == pytest.approx(found["mfu_causal_half"])
        assert plan["mfu_full_square"] == pytest.approx(found["mfu_full_square"])


def test_the_first_mfu_of_a_long_sequence_counts_the_half_that_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    """At 131,072 tokens attention is most of the work: the whole square nearly doubles what a GPU really does."""
    long = ["llama-3-8b", "--on", "dgx-h100:64", "--cp", "8", "--seq", "131072", "--global-batch", "32", "--recompute"]
    found = told(["estimate", *long, "full"], capsys)
    assert found["mfu_full_square"] > 1.6 * found["mfu_causal_half"]
    run = ["calc", "mfu", "llama-3-8b", "--on", "h100", "--seq", "131072", "--recompute", "full"]
    rows = told([*run, "--tps", str(found["tokens_per_s_per_gpu"])], capsys)["conventions"]
    assert found["mfu_causal_half"] == pytest.approx(rows["causal_half"]["utilization"])
    assert found["mfu_full_square"] == pytest.approx(rows["full_square"]["utilization"])
    assert found["hfu"] == pytest.approx(rows["executed"]["utilization"])
    page = shown(capsys, ["estimate", *long, "full"])
    assert f" {found['mfu_causal_half']:.1%}, with the masked half" in page


def test_a_fuller_expert_rank_needs_more_memory_in_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["mixtral-8x7b", "--on", "dgx-h100:64", "--seq", "4096", "--global-batch", "512"]
    policy = ["--tp", "2", "--ep", "8", "--pp", "2"]
    peaks: dict[str, list[float]] = {"estimate": [], "simulate": [], "compare": []}
    for imbalance in ("1", "2", "4"):
        skewed = [*job, "--imbalance", imbalance]
        peaks["estimate"].append(told(["estimate", *skewed, *policy], capsys)["peak_bytes"])
        peaks["simulate"].append(max(told(["simulate", *skewed, *policy], capsys)["peak_bytes"]))
        compared = told(["compare", *skewed, "--policy", "tp=2,pp=2,ep=8,micro=1"], capsys)
        peaks["compare"].append(compared["cases"][0]["peak_bytes"])
        planned = told(["plan", *skewed, "--top", "1", "--fix", "ep=8"], capsys)
        run = shlex.split(planned["next"][0])[1:]
        assert told(run, capsys)["peak_bytes"] == planned["recommended"]["peak_bytes"]
    for verb, (even, twice, four) in peaks.items():
        assert even < twice, verb
        assert four - twice == pytest.approx(2 * (twice - even), rel=1e-6), f"{verb}: the experts' tensors grow alone"


def test_a_pipeline_that_leaves_its_node_at_one_boundary_shows_in_every_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Stages 0 and 1 share a node and so do 2 and 3. Of three boundaries one leaves it, from the node's last four GPUs
    to the other's first: over NVLink to the card of their rail, then over the network."""
    job = ["llama-3-8b", "--on", "2x8xa100-80", "--seq", "8192", "--global-batch", "32"]
    alone = told(["estimate", *job, "--tp", "2", "--pp", "4", "--cp", "2"], capsys)["traffic_bytes"]["pp"]
    sent = told(["compare", *job, "--policy", "tp=2,pp=4,cp=2,micro=1"], capsys)["cases"][0]["traffic_bytes"]["pp"]
    inside, beyond = sent.values()
    assert sent == alone
    assert inside == pytest.approx(3 * beyond)
    assert beyond > 0


def test_one_expert_rank_is_as_full_as_the_mean(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["mixtral-8x7b", "--on", "dgx-h100:64", "--seq", "4096", "--global-batch", "512", "--tp", "8", "--zero", "3"]
    even, skewed = (told(["estimate", *job, "--imbalance", imbalance], capsys) for imbalance in ("1", "3"))
    assert (even["peak_bytes"], even["step_s"]) == (skewed["peak_bytes"], skewed["step_s"])


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "mixtral-8x7b"], ["size", "--max", "batch", "mixtral-8x7b"], ["compare", "mixtral-8x7b"],
        ["sweep", "mixtral-8x7b", "--over", "micro=1:2"], ["fabric", "mixtral-8x7b"], ["size", "mixtral-8x7b"],
    ],
)  # fmt: skip
def test_imbalance_below_the_mean_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, [*words, "--on", "8xh100", "--imbalance", "0.5"], "write 1 (balanced) or more")


def test_a_perceptron_has_one_prediction_small_units_and_no_band_of_language_models(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    found = told(["estimate", "mnist-mlp", "--on", "2xh100"], capsys)
    assert told(["verify", "mnist-mlp", "--on", "2xh100"], capsys)["predicted_step_s"] == found["step_s"] < 0.01
    assert told(["simulate", "mnist-mlp", "--on", "2xh100"], capsys)["step_s"] == pytest.approx(
        found["step_s"], rel=0.05
    )
    assert (found["stack"], found["precision"], found["policy"]["micro_batch"]) == ("shardwise", "fp32", 512)
    assert (found["error_band"], found["error_range"]) == (None, None)
    page = shown(capsys, ["estimate", "mnist-mlp", "--on", "2xh100"])
    assert f"{found['peak_bytes'] / 2**20:.1f} MiB of 79.6 GiB" in page
    assert "no band" in page
    assert "MFU       0.0%" not in page
    assert " tokens" not in page.replace("billion tokens", "")
    best = told(["plan", "mnist-mlp", "--on", "2xh100", "--top", "1"], capsys)["best"][0]
    assert best["step_s"] <= found["step_s"]


def test_one_policy_has_one_price_whichever_verb_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """plan, estimate, compare, sweep, size, export, check and Python are closed form; simulate states that tier too."""
    case, batch = ["llama-3-8b", "--on", "8xh100"], ["--global-batch", "64"]
    fixed = [part for degree in ("tp=2", "pp=1", "zero=1") for part in ("--fix", degree)]
    planned = told(["plan", *case, *batch, *fixed, "--top", "1"], capsys)["best"][0]
    policy = msgspec.convert(planned["policy"], Policy)
    job = Job(seq=8192, global_batch=64)
    words = shlex.split(command_of("llama-3-8b", "8xh100", job, policy, "megatron-core"))[2:]
    estimated = told(["estimate", *words], capsys)
    simulated = told(["simulate", *words], capsys)
    text = ",".join(
        f"{flag.removeprefix('--')}={value}" for flag, value in pairwise(words)
        if flag in ("--tp", "--pp", "--dp", "--zero", "--micro", "--recompute", "--recompute-layers")
    )  # fmt: skip
    compared = told(["compare", *case, *batch, "--policy", text], capsys)["cases"][0]
    swept = told(["sweep", *case, "--over", "batch=64", "--policy", text], capsys)["points"][0]
    exported = told(["export", *words, "--to", "megatron"], capsys)
    exact = [part for degree in text.split(",") for part in ("--fix", degree)]
    sized = told(["size", *case, *batch, *exact, "--tokens", "1B"], capsys)["sizes"][-1]
    script = tmp_path / "train.sh"
    script.write_text(exported["files"]["train.sh"])
    checked = told(["check", str(script), *case[1:], "--model", "llama-3-8b", *batch], capsys)
    degrees = {"tp": policy.tp, "pp": policy.pp, "dp": policy.dp, "zero": policy.zero, "micro": policy.micro_batch,
               "recompute": policy.recompute, "recompute_layers": policy.recompute_layers}  # fmt: skip
    ask = question_of("llama-3-8b", on="8xh100", global_batch=64, **degrees)
    alone = report_of(ask.case, ask.policy)
    found = {
        "plan": planned["step_s"], "estimate": estimated["step_s"], "simulate": simulated["closed_form"]["step_s"],
        "compare": compared["step_s"], "sweep": swept["step_s"], "export": exported["step_s"],
        "size": sized["step_s"], "check": checked["step_s"], "Python": alone.step_s,
    }  # fmt: skip
    assert found == pytest.approx(dict.fromkeys(found, estimated["step_s"]), rel=1e-9)
    peaks = {
        "plan": planned["peak_bytes"], "estimate": estimated["peak_bytes"], "compare": compared["peak_bytes"],
        "sweep": swept["peak_bytes"], "size": sized["peak_bytes"], "Python": alone.peak_bytes,
    }  # fmt: skip
    assert peaks == pytest.approx(dict.fromkeys(peaks, estimated["peak_bytes"]), rel=1e-9)
