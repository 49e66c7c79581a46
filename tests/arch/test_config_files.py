"""Models from files: found, bounded, and refused in one clear line when they are not what they should be."""

import json
import os
from pathlib import Path

import pytest

from shardwise import catalog
from shardwise.spec.arch import model_from_config, model_of
from shardwise.spec.arch.tensors import parameters

TINY = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip


def write(folder: Path, text: str, name: str = "config.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_file_and_its_folder_are_the_same_model(tmp_path: Path) -> None:
    file = write(tmp_path / "tiny", json.dumps(TINY))
    assert model_of(str(file)) == model_of(str(file.parent))
    assert model_of(str(file)).name == "tiny"
    assert parameters(model_of(str(file))) == 2 * 100 * 64 + 2 * (64 * 64 * 3 + 3 * 64 * 128 + 128) + 64


def test_code_named_by_a_config_is_not_run(tmp_path: Path) -> None:
    hostile = {**TINY, "auto_map": {"AutoConfig": "evil.Config"}, "trust_remote_code": True}
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    assert model_of(str(write(tmp_path, json.dumps(hostile)))).hidden == 64


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "1e999", '"text"', "[" * 100_000, '{"a":' * 100_000, "{}", '{"model_type": 3}', "\x00",
        '{"model_type": "llama", "hidden_size": 1' + "0" * 5000 + "}",
    ],
)  # fmt: skip
def test_hostile_json_is_a_value_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="model"):
        model_of(str(write(tmp_path, text)))


def test_broken_utf8_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"model_type": "\xff\xfe"}')
    with pytest.raises(ValueError, match=r"config\.json|not valid JSON"):
        model_of(str(tmp_path))


def test_too_large_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4 MiB"):
        model_of(str(write(tmp_path, json.dumps({**TINY, "pad": "x" * (4 * 2**20)}))))


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="no file"):
        model_of(str(pipe))


@pytest.mark.parametrize("path", ["nowhere/config.json", "no\0where.json", "x" * 5000 + ".json", "./", "/dev/null"])
def test_what_is_not_there_is_a_value_error(path: str) -> None:
    with pytest.raises(ValueError, match="model"):
        model_of(path)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"llama-3-8b"):
        model_of("lama-3-8b")


def test_a_family_that_cannot_be_read_right_says_why() -> None:
    with pytest.raises(ValueError, match=r"model m: model_type is 'zamba', which is not read: .*; write a script"):
        model_from_config({**TINY, "model_type": "zamba"}, "m")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden_size", None, r"tiny: hidden_size is missing; write a whole number"),
        ("hidden_size", "64", r"tiny: hidden_size is '64'; write a whole number"),
        ("hidden_size", True, r"hidden_size is True"),
        ("hidden_size", 64.0, r"hidden_size is 64.0"),
        ("num_hidden_layers", 10**6, r"num_hidden_layers is 1000000; write a whole number from 1 to 4096"),
        ("num_attention_heads", 3, r"num_attention_heads is 3; write a divisor of hidden_size 64"),
        ("num_key_value_heads", 3, r"model tiny: .*kv_heads 3"),
        ("tie_word_embeddings", "no", r"tie_word_embeddings is 'no'; write true or false"),
        ("vocab_size", -1, r"vocab_size is -1"),
    ],
)
def test_messages_name_field_value_and_cure(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_from_config({**TINY, field: value}, "tiny")


def test_nested_field_is_named_with_its_section() -> None:
    with pytest.raises(ValueError, match=r"text_config\.hidden_size is missing"):
        model_from_config({"model_type": "gemma3", "text_config": {"intermediate_size": 8}}, "g")


def test_infinity_as_transformers_prints_it(tmp_path: Path) -> None:
    """Nemotron-H's published file has it in a field nobody reads; where a number is read it is refused."""
    config = catalog.entry("models", "nemotron-h-8b")
    file = write(tmp_path, json.dumps(config | {"time_step_limit": [0.0, float("inf")]}))
    assert parameters(model_of(str(file))) == parameters(model_of("nemotron-h-8b"))
    write(tmp_path, json.dumps(config | {"layer_norm_epsilon": float("inf")}))
    with pytest.raises(ValueError, match="layer_norm_epsilon is inf; write a number"):
        model_of(str(file))
