"""Families that no file describes in code: read by the names of their fields."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from shardwise.spec.arch import families, model_from_config
from shardwise.spec.arch.by_fields.form import forms, not_read
from shardwise.spec.arch.tensors import layer_tensors, matmul_parameters, parameters
from shardwise.spec.model import Model
from shardwise.step.estimate.mfu import attention_flops_per_token

RECORDED = [json.loads(line) for line in Path(__file__).with_name("registry.jsonl").read_text().splitlines()]
PLAIN: dict[str, Any] = {
    "model_type": "nobody", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 1000, "rms_norm_eps": 1e-6,
}  # fmt: skip
LLAVA = next(row["config"] for row in RECORDED if row["model_type"] == "llava")
WHISPER = next(row["config"] for row in RECORDED if row["model_type"] == "whisper")


def _model(**changed: Any) -> Model:
    return model_from_config({**PLAIN, **changed}, "m")


@pytest.mark.parametrize("row", RECORDED, ids=[f"{row['kind']}-{row['model_type']}" for row in RECORDED])
def test_parameters_as_the_modules_of_transformers_have_them(row: dict[str, Any]) -> None:
    """Recorded from transformers 5.22.2 on torch's meta device; test_registry.py counts them anew."""
    count = parameters(model_from_config(row["config"], row["model_type"]))
    assert count == pytest.approx(row["parameters"], rel=1e-3)


def test_an_unknown_family_is_read_and_says_what_was_taken_for_granted() -> None:
    model = _model()
    heads, ffn, norms = 4 * 64 * 64, 3 * 64 * 128, 2 * 64
    assert parameters(model) == 3 * (heads + ffn + norms) + 2 * 64_000 + 64
    assert "taken as RMSNorm, gated feed-forward, no norm on heads, biases on nothing" in model.notes[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"layer_norm_eps": 1e-5, "rms_norm_eps": None, "hidden_act": "gelu"}, "LayerNorm, plain feed-forward"),
        ({"attention_bias": True}, "biases on query, key, value and attention output"),
        ({"use_bias": True}, "biases on query, key, value and attention output and feed-forward"),
        ({"qk_norm": True}, "a norm on each head"),
    ],
)
def test_what_fields_say_about_the_form_is_taken(changed: dict[str, Any], words: str) -> None:
    assert words in _model(**changed).notes[0]


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"])
def test_what_is_essential_and_missing_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=f"model m: {field} is missing; write a whole number"):
        _model(**{field: None})


def test_sizes_go_by_other_names() -> None:
    other = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": 128, "vocab_size": 1000, "rms_norm_eps": 1e-6}
    assert parameters(model_from_config({"model_type": "nobody", **other}, "m")) == parameters(_model())


def test_experts_and_which_layers_have_them() -> None:
    model = _model(
        num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1, n_shared_experts=2
    )
    dense, sparse = (model.kinds[model.pattern[index]] for index in (0, 1))
    assert dense.feed_forward is not None
    assert dense.experts is None
    assert sparse.experts is not None
    assert (sparse.experts.count, sparse.experts.top_k, sparse.experts.width, sparse.experts.shared_width) == (
        8, 2, 32, 64,
    )  # fmt: skip


def test_a_layer_may_have_sizes_of_its_own() -> None:
    changed = _model(per_layer_config={"01": {"head_dim": 32}}, intermediate_size=[128, 128, 256])
    kinds = [changed.kinds[kind] for kind in changed.pattern]
    assert [kind.attention.head_dim for kind in kinds if kind.attention] == [16, 32, 16]
    assert [kind.feed_forward.width for kind in kinds if kind.feed_forward] == [128, 128, 256]


def test_windows_follow_the_words_of_the_file() -> None:
    model = _model(layer_types=["full_attention", "sliding_attention", "full_attention"], sliding_window=8)
    assert [model.kinds[k].attention.window for k in model.pattern] == [0, 8, 0]  # type: ignore[union-attr]


def test_a_tower_has_its_own_width_and_positions() -> None:
    model = model_from_config(LLAVA, "llava")
    tower, text = model.kinds[model.pattern[1]], model.kinds[model.pattern[-1]]
    assert (tower.width, tower.tokens, text.width, text.tokens) == (1024, 577, 0, 0)
    assert model.layers == 24 + 32
    assert any("image tower: 24 layers of width 1,024 see 577 positions" in note for note in model.notes)
    q = next(t for t in layer_tensors(model, model.pattern[1]) if t.role == "q.weight")
    assert q.shape == (1024, 1024)


def test_flops_of_a_tower_are_those_of_its_positions() -> None:
    model = model_from_config(LLAVA, "llava")
    text = model_from_config(LLAVA["text_config"], "text")
    own = matmul_parameters(model) - matmul_parameters(text)
    # a sequence of 5,770 tokens has one image of 577
    assert matmul_parameters(model, seq=5770) - matmul_parameters(text) == pytest.approx(own / 10, rel=1e-9)
    both = attention_flops_per_token(model, 5770, causal_half=False)
    alone = attention_flops_per_token(text, 5770, causal_half=False)
    assert both - alone == pytest.approx(24 * 4 * 577 * 1024 / 10)


def test_an_encoder_hears_what_its_file_says_and_the_decoder_attends_to_it() -> None:
    model = model_from_config(WHISPER, "whisper")
    heard, written = model.kinds[model.pattern[0]], model.kinds[model.pattern[-1]]
    assert heard.tokens == 1500
    assert heard.attention is not None
    assert not heard.attention.causal
    assert written.cross is not None
    assert written.cross_tokens == 1500
    assert model.context == 448


def test_dropout_is_as_the_file_states_it() -> None:
    bart = next(row["config"] for row in RECORDED if row["model_type"] == "bart")
    assert model_from_config({**bart, "dropout": 0.1}, "m").dropout
    assert not model_from_config({**bart, "dropout": 0.0}, "m").dropout


def test_a_part_that_nobody_reads_is_not_lost() -> None:
    with pytest.raises(ValueError, match="qformer_config is a part that is not read"):
        model_from_config({**LLAVA, "qformer_config": {"model_type": "q", "hidden_size": 4}}, "m")


def test_whatever_a_file_holds_is_read_or_refused_in_one_line() -> None:
    rng = random.Random(7)
    junk = [None, "x", "", -1, 0, True, [], {}, [1], ["a"], {"a": 1}, 1e30, 0.5, 10**18, "64", {"model_type": "llama"}]
    for _ in range(400):
        config = copy.deepcopy(rng.choice(RECORDED)["config"])
        part = config
        while isinstance(part.get(name := rng.choice(sorted(part))), dict) and part[name] and rng.random() < 0.7:
            part = part[name]
        part[name] = rng.choice(junk)
        try:
            parameters(model_from_config(config, "m"))
        except ValueError as error:
            assert "\n" not in str(error), (name, part[name])  # noqa: PT017


def test_a_family_is_described_once() -> None:
    written = {known for family in families().values() for known in family.model_types}
    assert not (set(forms()) | written) & set(not_read())
    # those of several parts have only what joins them
    assert all("projector" in forms()[name] for name in set(forms()) & written)


@pytest.mark.parametrize("kind", ["dinov2", "swin", "beit"])
def test_other_models_of_pictures_are_refused_in_one_line(kind: str) -> None:
    """Even where the sizes of a language model stand in their files."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = {"model_type": kind, **sizes, "vocab_size": 8192, "image_size": 224, "patch_size": 16}
    with pytest.raises(ValueError, match=f"{kind}.*reads images.*vit and deit.*shardwise auto") as told:
        model_from_config(config, "mine")
    assert "\n" not in str(told.value)
