"""--tune and --freeze as a user meets them, over the verbs that take a job."""

import json
import shlex
from pathlib import Path

import pytest

from shardwise.show.cli import main
from terminal import narrow_terminal, refused, shown  # noqa: F401

pytestmark = pytest.mark.usefixtures("narrow_terminal")
TINY = Path(__file__).parents[2] / "docs" / "tiny-llama.json"
ON = ["--on", "8xh100"]
SMALL = ["--seq", "2048", "--global-batch", "32"]
GOOD = [
    ["estimate", "llama-3-8b", *ON, *SMALL, "--tune", "lora,rank=8,targets=q_proj,v_proj"],
    ["estimate", "llama-3-8b", *ON, *SMALL, "--tune", "dora", "--freeze", "first=8", "--zero", "3"],
    ["estimate", "mixtral-8x7b", *ON, *SMALL, "--tune", "qlora", "--ep", "8"],
    ["simulate", "llama-3-8b", *ON, *SMALL, "--tune", "qlora", "--pp", "4"],
    ["plan", "llama-3-8b", *ON, *SMALL, "--tune", "lora", "--top", "2"],
    ["compare", "llama-3-8b", *ON, *SMALL, "--tune", "lora", "--policy", "fsdp"],
    ["sweep", "llama-3-8b", "--over", "seq=2048,4096", *ON, "--freeze", "embeddings,first=16", "--policy", "fsdp"],
    ["search", "stages", "llama-3-8b", *ON, *SMALL, "--tune", "lora", "--pp", "4"],
]


def told(capsys, arguments: list[str], code: int = 0) -> dict:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("arguments", GOOD, ids=" ".join)
def test_pages_and_json(arguments: list[str], capsys) -> None:
    shown(capsys, arguments)
    told(capsys, arguments)


def test_an_estimate_says_what_is_trained(capsys) -> None:
    found = told(capsys, ["estimate", "llama-3-8b", *ON, *SMALL, "--tune", "lora"])
    assert found["tuning"] == {
        "tune": "lora,rank=16,targets=all", "freeze": "", "parameters": 8_072_204_288, "trained_parameters": 41_943_040,
    }  # fmt: skip
    assert found["error_range"] is None
    assert "tuning" not in told(capsys, ["estimate", "llama-3-8b", *ON, *SMALL, "--tune", "full"])


def test_bf16_of_a_quantised_base_is_the_default(capsys) -> None:
    """Whatever the program makes of bf16 for weights that it trains."""
    asked = ["estimate", "llama-3-8b", *ON, *SMALL, "--tune", "qlora", "--stack", "torch-fsdp"]
    assert told(capsys, [*asked, "--precision", "bf16"])["step_s"] == told(capsys, asked)["step_s"]


def test_memory_shrinks_from_full_to_lora_to_qlora(capsys) -> None:
    asked = ["estimate", "llama-3-8b", "--on", "1xh100", "--tp", "1", *SMALL]
    full, lora, qlora = (
        told(capsys, [*asked, *tune], code)
        for tune, code in (([], 1), (["--tune", "lora"], 0), (["--tune", "qlora"], 0))
    )
    assert full["peak_bytes"] > 2 * lora["peak_bytes"]
    assert lora["peak_bytes"] - qlora["peak_bytes"] > 9e9
    assert full["step_s"] > lora["step_s"]
    assert qlora["step_s"] > lora["step_s"]


def test_longer_sequences_fit(capsys) -> None:
    asked = ["size", "--max", "sequence", "llama-3-8b", "--on", "1xa100-80"]
    assert told(capsys, [*asked, "--tune", "qlora"])["largest"] > told(capsys, [*asked, "--tune", "lora"])["largest"]


def test_fewer_gpus_are_enough(capsys) -> None:
    asked = ["size", "llama-3-70b", "--on", "h100", "--tokens", "1G", "--max-gpus", "4", *SMALL]
    lora, qlora = (
        [size["gpus"] for size in told(capsys, [*asked, "--tune", tune])["sizes"] if size["fits"]]
        for tune in ("lora", "qlora")
    )
    assert (min(lora), min(qlora)) == (2, 1)


def test_a_plan_prints_a_command_that_tunes(capsys) -> None:
    asked = ["plan", "llama-3-8b", *ON, *SMALL, "--tune", "qlora,rank=8", "--freeze", "first=4", "--top", "1"]
    (command,) = told(capsys, asked)["next"]
    assert "--tune qlora,rank=8,targets=all --freeze first=4" in command
    words = shlex.split(command)
    assert main(words[1:]) == 0


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (["estimate", "llama-3-8b", *ON, "--tune", "lorra"], "did you mean 'lora'?"),
        (["plan", "llama-3-8b", *ON, "--tune", "lora,targets=c_attn"], "has no 'c_attn' to adapt"),
        (["size", "--max", "batch", "llama-3-8b", *ON, "--freeze", "first=99"], "write at most 32"),
        (["estimate", "mnist-mlp", *ON, "--tune", "lora"], "of language models"),
        (["estimate", "llama-3-8b", *ON, "--tune", "qlora", "--precision", "fp8"], "write --precision bf16"),
        (["run", "llama-3-8b", *ON, "--tune", "dora"], "dora cannot be run; write --tune lora"),
        (["export", "llama-3-8b", *ON, "--to", "megatron", "--tune", "lora"], "write --to trl or accelerate"),
        (["size", "llama-3-8b", "--mfu", "0.4", "--tokens", "1G", "--tune", "lora"], "counts a training of all"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], cure: str, capsys) -> None:
    refused(capsys, arguments, cure)


def test_a_plan_that_tunes_is_run_so(tmp_path, capsys) -> None:
    pytest.importorskip("torch")
    job = ["--on", "2xh100", "--seq", "32", "--global-batch", "4", "--dp", "2", "--tune", "lora,rank=2"]
    assert main(["estimate", str(TINY), *job, "--json"]) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    result = told(capsys, ["verify", str(plan), "--model", str(TINY)])
    assert result["holds"] is True
    gradients = next(row for row in result["memory"] if row["kind"] == "gradients")
    parameters = next(row for row in result["memory"] if row["kind"] == "parameters")
    assert gradients["measured_bytes"] < parameters["measured_bytes"] / 10


def test_lengths_have_lines_of_their_own(capsys) -> None:
    asked = ["estimate", "llama-3-8b", *ON, "--zero", "3", "--seq", "4096", "--global-batch", "64", "--micro", "2"]
    stated = [*asked, "--lengths", "lognormal,mean=600,sigma=1"]
    text = " ".join(shown(capsys, stated).split())
    assert "with the lengths of the data" in text
    assert "packing saves" in text
    padded, packed = (told(capsys, [*stated, *packing])["lengths"] for packing in ([], ["--packing", "on"]))
    assert padded["step_s"] == padded["padded_step_s"]
    assert packed["step_s"] == packed["packed_step_s"] < padded["step_s"]
    assert "lengths" not in told(capsys, asked)


LONG = ["llama-3-8b", "--on", "4x8xh100", "--seq", "64k", "--global-batch", "64"]
SHORT_DATA = ["--lengths", "lognormal,mean=4000,sigma=1.5", "--packing", "dynamic"]


def test_verbs_agree_over_the_data(capsys) -> None:
    """What `plan` takes over the data, `estimate`, `compare` and `sweep` say too."""
    planned = told(capsys, ["plan", *LONG, *SHORT_DATA, "--tp", "2", "--cp", "4", "--fix", "zero=1,pp=1"])
    best = planned["recommended"]
    assert (planned["lengths"], planned["packing"]) == ("lognormal", "dynamic")
    stated = ["--tp", "2", "--cp", "4", "--zero", "1"]
    one = told(capsys, ["estimate", *LONG, *SHORT_DATA, *stated])["lengths"]
    if best["policy"]["recompute"] == "none":
        assert best["step_s"] == one["step_s"] == one["dynamic_step_s"]
        assert best["waiting"] == one["waiting"]
    policy = "tp=2,cp=4,zero=1"
    beside = told(capsys, ["compare", *LONG, *SHORT_DATA, "--policy", policy])["cases"][0]["lengths"]
    assert beside == one
    point = told(capsys, ["sweep", *LONG, *SHORT_DATA, "--policy", policy, "--over", "gpus=32,64"])["points"][0]
    assert (point["data_step_s"], point["waiting"]) == (one["step_s"], one["waiting"])
    assert one["dynamic_step_s"] < one["packed_step_s"] < one["padded_step_s"]


def test_the_best_over_the_data_is_no_slower_than_the_best_of_full_sequences(capsys) -> None:
    full = told(capsys, ["plan", *LONG])["best"][0]["policy"]
    degrees = [word for name in ("tp", "pp", "cp", "zero", "vpp") for word in (f"--{name}", str(full[name]))]
    again = ["--recompute", full["recompute"], "--recompute-layers", str(full["recompute_layers"])]
    stated = told(capsys, ["estimate", *LONG, *SHORT_DATA, *degrees, *again])["lengths"]
    assert told(capsys, ["plan", *LONG, *SHORT_DATA])["best"][0]["step_s"] <= stated["step_s"] * (1 + 1e-9)


def test_the_page_of_a_plan_over_the_data(capsys) -> None:
    text = " ".join(shown(capsys, ["plan", *LONG, *SHORT_DATA, "--top", "2", "--verbose"]).split())
    for words in (
        "by step time over the data",
        "wait %",
        "packed, with dynamic context parallelism",
        "--packing dynamic",
    ):
        assert words in text


@pytest.mark.parametrize("more", [["--why"], ["--pareto"], ["--why-not", "tp=8"], ["--sync", "any"]])
def test_what_a_plan_answers_of_full_sequences_only(more: list[str], capsys) -> None:
    refused(capsys, ["plan", *LONG, *SHORT_DATA, *more], "leave one of --lengths and")


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["--packing", "on"], "write --lengths with it"),
        (["--packing", "maybe", "--lengths", "lognormal,mean=9,sigma=1"], "known: dynamic, off, on"),
        (["--lengths", "gaussian"], "there is no file 'gaussian'"),
    ],
)
def test_lengths_that_cannot_be_read(words: list[str], cure: str, capsys) -> None:
    refused(capsys, ["estimate", "llama-3-8b", *ON, "--zero", "3", *words], cure)


@pytest.mark.parametrize("words", [["size", "llama-3-8b"], ["size", "--max", "sequence", "llama-3-8b", *ON]])
def test_verbs_of_full_sequences_name_those_that_take_lengths(words: list[str], capsys) -> None:
    refused(capsys, [*words, "--lengths", "lognormal,mean=600,sigma=1"], "estimate, plan, compare and sweep take it")
