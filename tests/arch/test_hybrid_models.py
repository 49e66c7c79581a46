"""Hybrid models: every layer is one mixer, read from either spelling of the pattern; sizes are the published ones."""

import pytest

from shardwise import catalog
from shardwise.spec.arch import model_from_config, model_of
from shardwise.spec.arch.tensors import active_parameters, layer_tensors, matmul_parameters, mtp_tensors, parameters

SMALL = {
    "model_type": "nemotron_h", "hidden_size": 64, "hybrid_override_pattern": "M*-E", "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "mamba_num_heads": 8, "mamba_head_dim": 16,
    "ssm_state_size": 32, "n_groups": 4, "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 80,
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_latent_size": 24, "vocab_size": 256,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "billions", "active", "tolerance"),
    [
        # NVIDIA's model cards: 31.6B with 3.6B active (3.2B without the embedding), 120.6B with 12.7B, 550B with 55B
        ("nemotron-3-nano", 31.6, 3.58, 0.002), ("nemotron-3-super", 120.6, 12.7, 0.006),
        ("nemotron-3-ultra", 550, 55, 0.02), ("nemotron-3.5-lightning", 31.6, 3.58, 0.002),
        ("nemotron-h-56b", 56, 56, 0.01), ("nemotron-h-8b", 8.1, 8.1, 0.001),
    ],
)  # fmt: skip
def test_sizes_as_published(name: str, billions: float, active: float, tolerance: float) -> None:
    model = model_of(name)
    assert parameters(model) == pytest.approx(billions * 1e9, rel=tolerance)
    assert active_parameters(model) == pytest.approx(active * 1e9, rel=tolerance)


def test_nano_without_its_embedding() -> None:
    assert active_parameters(model_of("nemotron-3-nano"), embedding=False) == pytest.approx(3.2e9, rel=0.01)


def test_layers_are_what_the_pattern_says() -> None:
    model = model_from_config(SMALL, "small")
    mamba, attention, dense, routed = (model.kinds[kind] for kind in model.pattern)
    assert mamba.mamba is not None
    assert attention.attention is not None
    assert dense.feed_forward is not None
    assert not dense.feed_forward.glu
    assert routed.experts is not None
    assert routed.experts.latent == 24
    assert [kind.blocks for kind in model.kinds] == [kind.norms for kind in model.kinds] == [1] * 4
    assert not model.rotary


@pytest.mark.parametrize("pattern", ["M-", "*E"])
def test_layers_of_one_mixer_make_a_hybrid(pattern: str) -> None:
    assert model_from_config({**SMALL, "hybrid_override_pattern": pattern}, "small").hybrid
    assert [model_of(name).hybrid for name in ("llama-3-8b", "deepseek-v3", "mnist-mlp")] == [False] * 3


def test_a_list_of_words_means_the_same() -> None:
    words = {key: value for key, value in SMALL.items() if key != "hybrid_override_pattern"}
    words["layers_block_type"] = ["mamba", "attention", "mlp", "moe"]
    assert model_from_config(words, "small") == model_from_config(SMALL, "small")


def test_mamba_tensors_by_hand() -> None:
    """inner 8 x 16 = 128; B and C 2 x 4 x 32 = 256; the input product makes 128 + 128 + 256 + 8 = 520 outputs."""
    shapes = {t.role: t.shape for t in layer_tensors(model_from_config(SMALL, "small"), 0)}
    assert shapes == {
        "norm.0.weight": (64,), "mamba.in.weight": (520, 64), "mamba.conv.weight": (384, 1, 4),
        "mamba.conv.bias": (384,), "mamba.A_log": (8,), "mamba.D": (8,), "mamba.dt_bias": (8,),
        "mamba.norm.weight": (128,), "mamba.out.weight": (64, 128),
    }  # fmt: skip


def test_tensors_are_named_as_in_the_checkpoint() -> None:
    names = {t.name for t in layer_tensors(model_of("nemotron-3-super"), 0)}
    assert {"backbone.layers.{i}.mixer.A_log", "backbone.layers.{i}.mixer.in_proj.weight"} <= names


def test_prediction_layers_that_share_their_weights() -> None:
    """Super passes one attention and one expert layer twice: counted once as parameters, twice as products."""
    model = model_of("nemotron-3-super")
    assert (model.mtp_layers, model.mtp_repeated) == (2, True)
    assert [model.kinds[kind].attention is not None for kind in model.mtp_kinds] == [True, False]
    hidden, inside = model.hidden, [t for kind in model.mtp_kinds for t in layer_tensors(model, kind)]
    assert sum(t.size for t in mtp_tensors(model)) == sum(t.size for t in inside) + 2 * hidden**2 + 3 * hidden
    once = {**catalog.entry("models", "nemotron-3-super"), "mtp_num_layers": 1}
    plain = matmul_parameters(model)
    twice = matmul_parameters(model, mtp=True) - plain
    assert twice == 2 * (matmul_parameters(model_from_config(once, "once"), mtp=True) - plain)


@pytest.mark.parametrize(
    ("field", "value", "cure"),
    [
        ("hybrid_override_pattern", "M*X", "a letter for each layer out of M * - E"),
        ("hybrid_override_pattern", "", "a letter for each layer out of M * - E"),
        ("layers_block_type", ["mamba", "conv"], "a list of 1 to 4096 words out of mamba, attention, mlp, moe"),
        ("num_hidden_layers", 5, "4, as many as hybrid_override_pattern has"),
        ("mamba_num_heads", 6, "heads 6 must be a multiple of groups 4"),
        ("moe_latent_size", -1, "a whole number from 1"),
    ],
)
def test_what_does_not_fit_is_refused(field: str, value: object, cure: str) -> None:
    with pytest.raises(ValueError, match="model small: ") as refusal:
        model_from_config({**SMALL, field: value}, "small")
    assert cure in str(refusal.value)


def test_a_prediction_layer_of_a_kind_the_model_lacks_is_refused() -> None:
    config = {**SMALL, "hybrid_override_pattern": "M-", "num_nextn_predict_layers": 1,
              "mtp_hybrid_override_pattern": "*-"}  # fmt: skip
    with pytest.raises(ValueError, match=r"model small: mtp_hybrid_override_pattern .* only letters"):
        model_from_config(config, "small")
