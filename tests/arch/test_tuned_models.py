"""Which layers of a model a job trains, and which a gradient passes."""

import json
from pathlib import Path

import pytest

from shardwise.spec.arch import model_from_config, model_of
from shardwise.spec.arch.tensors import layer_tensors
from shardwise.spec.arch.tuned import trained_layer, trained_parameters, tuned
from shardwise.spec.model import Model
from shardwise.spec.tuning import tuning_of

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "registry.jsonl").read_text().splitlines()]
LLAVA = model_from_config(next(row["config"] for row in RECORDED if row["model_type"] == "llava"), "llava")
TOWER = sum(bool(LLAVA.kinds[kind].tokens) for kind in LLAVA.pattern)


def places(model: Model, tune: str | None, freeze: str | None) -> list[str]:
    """Of each layer: w(hole), a(dapters), f(rozen, passed by a gradient), or - where none passes."""
    found = []
    for kind in tuned(model, tuning_of(tune, freeze)).pattern:
        how = tuned(model, tuning_of(tune, freeze)).kinds[kind].tuned
        found.append("w" if how is None else "a" if how.adapters else "f" if how.backward else "-")
    return found


def test_a_frozen_tower_is_passed_by_no_gradient() -> None:
    text = LLAVA.layers - TOWER
    assert TOWER > 0
    assert places(LLAVA, None, "vision") == ["-"] * TOWER + ["w"] * text
    assert places(LLAVA, "lora", "vision") == ["-"] * TOWER + ["a"] * text
    assert places(LLAVA, "lora", None) == ["a"] * LLAVA.layers


def test_behind_a_trained_tower_gradients_pass() -> None:
    """Frozen layers of the language model still bring the tower its gradient."""
    found = places(LLAVA, None, "embeddings,first=2")
    assert found[: TOWER + 3] == ["w"] * TOWER + ["f", "f", "w"]


@pytest.mark.parametrize(
    ("tune", "freeze", "first"),
    [
        (None, "first=2", ["f", "f", "w"]),
        (None, "embeddings,first=2", ["-", "-", "w"]),
        ("lora", "first=2", ["-", "-", "a"]),
        ("lora", None, ["a", "a", "a"]),
    ],
)
def test_layers_of_a_language_model(tune: str | None, freeze: str | None, first: list[str]) -> None:
    found = places(model_of("llama-3-8b"), tune, freeze)
    assert found == first + first[-1:] * 29


def test_only_layers_that_have_a_target_are_adapted() -> None:
    """Most layers of this model have no attention."""
    found = tuned(model_of("nemotron-h-8b"), tuning_of("lora,targets=attention", None))
    adapted = {kind for kind in set(found.pattern) if trained_layer(found, kind)}
    assert adapted
    assert all(found.kinds[kind].attention is not None for kind in adapted)


def test_parts_of_a_fused_matrix_share_one_adapter() -> None:
    """GPT-2 has queries, keys and values in one module: A reads once, B writes three times the width."""
    model = tuned(model_of("gpt2"), tuning_of("lora,rank=8,targets=c_attn", None))
    assert trained_parameters(model) == model.layers * 8 * (768 + 3 * 768)


def test_every_expert_has_its_own() -> None:
    model = tuned(model_of("mixtral-8x7b"), tuning_of("lora,rank=2,targets=mlp", None))
    shapes = {t.role: t.shape for t in trained_layer(model, 0)}
    assert shapes["expert.up.lora_a"] == (8, 2, 4096)
    assert shapes["expert.up.lora_b"] == (8, 14336, 2)
    assert not [t for t in layer_tensors(model, 0) if t.role.startswith("router") and t.role in shapes]
