"""A model of pictures in every verb that takes a model: an answer, or one clear line."""

import json

import pytest

from shardwise.show.cli._frame import main
from shardwise.spec.model import Model

TOKENS, CLUSTER = 197, ["--on", "8xh100"]
BATCH = ["--global-batch", "1024"]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main([*words, "--json"]) in (0, None)
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 2
    line = capsys.readouterr().err.strip()
    assert "\n" not in line
    return line


def test_an_estimate_needs_no_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "estimate", "vit-l-16", *CLUSTER, "--zero", "3", *BATCH)
    assert (found["seq_tokens"], found["global_sequences"], found["fits"]) == (TOKENS, 1024, True)
    assert found["policy"]["micro_batch"] == 64
    # logits of 64 pictures, not of their 12,608 tokens
    logits = found["stages"][0]["kinds_bytes"]["logits"]
    assert logits < 64 * 1000 * 16


def test_a_batch_that_nobody_states_is_of_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "estimate", "vit-l-16", "--on", "24xh100", "--zero", "3")
    assert found["global_sequences"] % 24 == 0
    assert found["global_sequences"] == pytest.approx(4096, rel=0.05)


@pytest.mark.parametrize("verb", ["estimate", "plan", "simulate", "fabric", "size --max batch"])
def test_another_sequence_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, *verb.split(), "vit-l-16", *CLUSTER, "--seq", "512")
    assert "197 tokens" in line
    assert "image_size" in line


@pytest.mark.parametrize(
    "words",
    [
        ["plan"], ["simulate"], ["search", "stages", "--pp", "4"], ["fabric"], ["size"], ["operate"],
        ["size", "--max", "batch"],
        ["compare"], ["sweep", "--over", "gpus=8,16"], ["search", "--pp", "4"], ["search", "cuts", "--tp", "2"],
    ],
)  # fmt: skip
def test_verbs_answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    verbs = 2 if words[1:2] in (["stages"], ["cuts"]) else 1
    batch = [] if "cuts" in words else BATCH
    assert told(capsys, *words[:verbs], "vit-l-16", *CLUSTER, *batch, *words[verbs:])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["size", "--max", "sequence", "vit-l-16"], "max batch"),
        (["estimate", "vit-l-16", "--lengths", "sft"], "leave --lengths out"),
        (["export", "vit-l-16", "--to", "torchtitan", "--zero", "3"], "--to accelerate"),
        (["export", "vit-l-16", "--to", "megatron"], "--to accelerate"),
        (["run", "vit-l-16", "--device", "cpu"], "shardwise auto"),
    ],
)
def test_what_pictures_have_not_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refusal(capsys, *words, *CLUSTER)


def test_programs_that_start_your_script_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("accelerate", "deepspeed"):
        assert told(capsys, "export", "vit-l-16", *CLUSTER, "--to", target, "--zero", "3", *BATCH)["files"]


def test_tensor_parallelism_goes_without_shared_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "estimate", "vit-l-16", *CLUSTER, "--tp", "2", *BATCH)
    assert not found["policy"]["sp"]
    assert any("197 tokens" in note and "tp 2" in note for note in found["notes"])


def test_a_whole_run_is_counted_in_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    notes = told(capsys, "operate", "vit-l-16", *CLUSTER, *BATCH)["notes"]
    assert any("300 epochs of ImageNet" in note for note in notes)


def test_models_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    names = {model["name"]: model for model in told(capsys, "catalog", "models")["models"]}
    assert names["vit-l-16"]["parameters"] == 304_326_632
    assert main(["catalog", "models", "vit-h-14"]) in (0, None)
    text = capsys.readouterr().out
    assert "256 of 588 numbers + 1 learned" in text
    assert "1,000, once a sample" in text


@pytest.mark.parametrize("change", [{"input_width": 0}, {"class_tokens": 65}, {"sample_tokens": 1}])
def test_a_picture_without_patches_is_no_model(change: dict[str, int]) -> None:
    from shardwise.spec.arch import model_of

    known = model_of("vit-l-16")
    given = {field: getattr(known, field) for field in known.__struct_fields__}
    with pytest.raises(ValueError, match="patches of"):
        Model(**{**given, **change})
