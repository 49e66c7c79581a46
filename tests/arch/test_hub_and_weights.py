"""Models by a Hugging Face id, and what the weights beside a config.json tell. No test here reaches a network."""

import json
import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.arch._hub import is_hub_id
from shardwise.spec.arch._weights import form_of_names
from shardwise.spec.arch.tensors import parameters

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 512, "torch_dtype": "bfloat16",
}  # fmt: skip
COUNT = 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 64_000 + 64


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no library to fill it."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    return tmp_path / "hub"


def _stored(folder: Path, config: dict[str, Any] = TINY, **index: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}, "metadata": index}))
    return folder


@pytest.mark.parametrize("text", ["Qwen/Qwen2.5-72B", "qwen/qwen2.5-72b", "meta-llama/Meta-Llama-3-70B"])
def test_an_id_of_the_catalog_is_the_catalogs(text: str) -> None:
    assert model_of(text) == model_of(text.partition("/")[2].lower().replace("meta-llama-3", "llama-3"))


@pytest.mark.parametrize("text", ["a/b/c", "../b", "a/..", "x/config.json", "", "a", "-a/b", "a/b c"])
def test_what_is_no_id(text: str) -> None:
    assert not is_hub_id(text)


def test_the_cache_of_this_machine_comes_first(cache: Path) -> None:
    _stored(cache / "models--some--thing-7B" / "snapshots" / "abc", total_size=2 * COUNT)
    model = model_of("some/thing-7B")
    assert (model.name, parameters(model), model.context) == ("thing-7B", COUNT, 512)
    assert model.source == "Hugging Face some/thing-7B, config.json"


def test_without_library_and_copy_the_error_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"Qwen2.5-72B-Instruct.*not installed.*config.json, or 'qwen2.5-72b'"):
        model_of("Qwen/Qwen2.5-72B-Instruct")


def test_the_library_is_asked_for_two_files(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(repo: str, file: str) -> None:
        asked.append(file)
        if file != "config.json":
            raise OSError("no such file")
        _stored(cache / f"models--{repo.replace('/', '--')}" / "snapshots" / "abc")

    library = types.SimpleNamespace(hf_hub_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)  # type: ignore[arg-type]
    assert parameters(model_of("some/thing")) == COUNT
    assert asked == ["config.json", "model.safetensors.index.json"]


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: str) -> None:
        raise ConnectionError("offline\nand more")

    library = types.SimpleNamespace(hf_hub_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the hub gave none \(ConnectionError: offline\); write the path"):
        model_of("some/thing")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"total_size": 2 * COUNT}, f"{COUNT:,} parameters, {COUNT:,} counted (+0.00%)"),
        ({"total_parameters": COUNT, "total_size": 1}, f"{COUNT:,} counted (+0.00%)"),
        ({"total_parameters": 2 * COUNT}, "(-50.00%)"),
    ],
)
def test_parameters_are_compared_with_the_list_of_weights(tmp_path: Path, index: dict[str, int], words: str) -> None:
    model = model_of(str(_stored(tmp_path / "m", **index)))
    assert words in model.notes[-1]


def test_a_single_file_tells_by_its_head(tmp_path: Path) -> None:
    folder = _stored(tmp_path / "m")
    head = json.dumps({"__metadata__": {}, "w": {"dtype": "BF16", "shape": [COUNT // 64, 64]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    assert "(-0.00%)" in model_of(str(folder)).notes[-1] or "(+0.00%)" in model_of(str(folder)).notes[-1]


@pytest.mark.parametrize("raw", [b"", b"\xff" * 40, struct.pack("<Q", 2**60), b"{}", b"[" * 5000])
def test_lists_of_weights_that_are_broken_are_left_aside(tmp_path: Path, raw: bytes) -> None:
    folder = _stored(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(raw)
    (folder / "model.safetensors.index.json").write_bytes(raw)
    assert model_of(str(folder)).notes == ()


def test_names_of_weights_give_the_form_away(tmp_path: Path) -> None:
    layer = "model.layers.0."
    names = [
        layer + name
        for name in ("self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.o_proj.weight", "input_norm.weight",
                     "self_attn.q_norm.weight", "input_norm.bias", "mlp.fc1.weight", "mlp.fc2.weight")
    ]  # fmt: skip
    facts = form_of_names(tuple(names))
    assert facts == {
        "qkv_bias": True, "out_bias": False, "mlp_bias": False, "glu": False, "qk_norm": "head", "norm": "layer",
    }  # fmt: skip
    folder = _stored(tmp_path / "m", {**TINY, "model_type": "nobody"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(names, "x")}))
    note = model_of(str(folder)).notes[0]
    assert "by its weights' names taken as LayerNorm, plain feed-forward, a norm on each head" in note


def test_a_config_may_say_its_own_form(tmp_path: Path) -> None:
    own = {**TINY, "model_type": "nobody", "_shardwise_form": {"glu": False, "norm": "layer"}}
    model = model_of(str(_stored(tmp_path / "m", own)))
    assert model.norm == "layer"
    with pytest.raises(ValueError, match=r"_shardwise_form.glue is unknown; did you mean 'glu'"):
        model_of(str(_stored(tmp_path / "n", {**own, "_shardwise_form": {"glue": False}})))
