"""The catalog's models have the sizes their publishers print."""

import pytest

from shardwise import catalog
from shardwise.spec.arch import model_from_config, model_names, model_of
from shardwise.spec.arch.tensors import (
    active_parameters,
    embedding_tensors,
    head_tensors,
    matmul_parameters,
    parameters,
    products_per_token,
)
from shardwise.step.estimate.mfu import attention_flops_per_token

MEGATRON = ("1.7", "3.6", "7.5", "18.4", "39.1", "76.1", "145.6", "310.1", "529.6", "1008.0")
OFF_IN_THE_SOURCE = {
    "gpt-3-medium": 0.02,  # printed 350M; its own depth and width make 356M
    "mcore-1.7b": 0.04,  # printed 1.7B; the form that gives all eight others to the digit makes 1.75B
    "ministral-3-8b": 0.011,  # 8.49 billion, printed 8.4B
    # printed with their towers, here the text part
    "llama-4-scout": 0.02,
}
SPOT_CHECKS = {
    "llama-3-8b": 8_030_261_248, "llama-2-7b": 6_738_415_616, "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512, "qwen3-30b-a3b": 30_532_122_624, "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672, "deepseek-v3": 671_026_419_200, "gemma-2-9b": 9_241_705_984,
    "mistral-7b": 7_241_732_096, "gpt2": 124_439_808, "bert-large": 336_226_108, "mpt-7b": 6_658_859_008,
    "bloom-176b": 176_247_271_424, "gpt-neox-20b": 20_554_567_680, "mnist-mlp": 101_632,
}  # fmt: skip


def digits(published: float) -> int:
    return len(str(int(published)).rstrip("0"))


def rounds_to(count: int, published: float) -> bool:
    """The count, printed with as many digits as the publisher printed, is what the publisher printed."""
    unit = 10 ** (len(str(int(published))) - digits(published))
    return abs(count - published) <= unit / 2


@pytest.mark.parametrize("name", model_names())
def test_size_is_the_published_one(name: str) -> None:
    model = model_of(name)
    count, published = parameters(model), model.published_params
    if digits(published) >= 6:
        assert count == published
    elif name in OFF_IN_THE_SOURCE:
        assert 0.01 < abs(count / published - 1) < OFF_IN_THE_SOURCE[name]
    else:
        assert rounds_to(count, published) or abs(count / published - 1) < 0.01


@pytest.mark.parametrize(("name", "count"), SPOT_CHECKS.items())
def test_exact_sizes(name: str, count: int) -> None:
    assert parameters(model_of(name)) == count


@pytest.mark.parametrize("printed", MEGATRON)
def test_megatron_table_to_its_last_digit(printed: str) -> None:
    count = parameters(model_of(f"megatron-{printed.removesuffix('.0')}b"))
    assert f"{count / 1e9:.1f}" == printed


@pytest.mark.parametrize(
    ("name", "billions"),
    [("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)],
)
def test_active_parameters_without_the_lookup(name: str, billions: float) -> None:
    """The gpt-oss model card counts the head and leaves the embedding out."""
    assert round(active_parameters(model_of(name), embedding=False) / 1e9, 2) == billions


@pytest.mark.parametrize(
    ("name", "billions", "tolerance"),
    [
        ("mixtral-8x7b", 12.9, 0.01), ("mixtral-8x22b", 39, 0.01), ("deepseek-v3", 37, 0.02), ("deepseek-v2", 21, 0.02),
        ("deepseek-v2-lite", 2.7, 0.02), ("qwen3-30b-a3b", 3.3, 0.02), ("qwen3-235b-a22b", 22, 0.01),
        ("kimi-k2", 32, 0.03), ("llama-4-maverick", 17, 0.02), ("dbrx", 36, 0.02), ("moonlight-16b-a3b", 3, 0.03),
        ("grok-1", 86, 0.03), ("qwen1.5-moe-a2.7b", 2.7, 0.01),
    ],
)  # fmt: skip
def test_active_parameters_as_published(name: str, billions: float, tolerance: float) -> None:
    assert active_parameters(model_of(name)) == pytest.approx(billions * 1e9, rel=tolerance)


def test_mnist_weights_in_fp32() -> None:
    model = model_of("mnist-mlp")
    assert [t.size for t in embedding_tensors(model) + head_tensors(model)] == [100_352, 1_280]
    assert 4 * parameters(model) == 406_528


def test_corrected_slips_of_the_gpt3_print() -> None:
    assert model_of("gpt-3-13b").hidden == 5120
    heads = model_of("gpt-3-xl").kinds[0].attention
    assert heads is not None
    assert (heads.heads, heads.head_dim) == (16, 128)


@pytest.mark.parametrize("name", model_names())
def test_counts_are_ordered(name: str) -> None:
    model = model_of(name)
    bare = active_parameters(model, embedding=False)
    assert matmul_parameters(model) <= bare <= active_parameters(model) <= parameters(model)
    assert parameters(model) <= parameters(model, mtp=True)


@pytest.mark.parametrize(
    ("alias", "name"),
    [("Llama3-8B", "llama-3-8b"), ("GPT-39.1B", "megatron-39.1b"), ("gpt3-175b", "gpt-3-175b"), ("GPT2-XL", "gpt2-xl")],
)
def test_aliases_in_any_case(alias: str, name: str) -> None:
    assert model_of(alias) == model_of(name)


VIT = {"b": (768, 12, 12, 3072), "l": (1024, 24, 16, 4096), "h": (1280, 32, 16, 5120)}
TORCHVISION = {
    ("b", 16, 224): (86_567_656, 17.56),
    ("l", 16, 224): (304_326_632, 61.55),
    ("l", 32, 224): (306_535_400, 15.38),
    ("h", 14, 518): (633_470_440, None),
}
"""num_params and GFLOPS, which are multiplications with their additions, of vit_b_16, vit_l_16, vit_l_32 and vit_h_14
(IMAGENET1K_SWAG_E2E_V1) on the pages of torchvision.models"""


@pytest.mark.parametrize("which", TORCHVISION)
def test_models_of_pictures_are_as_large_as_torchvision_says(which: tuple[str, int, int]) -> None:
    size, patch, side = which
    hidden, layers, heads, width = VIT[size]
    config = {
        "model_type": "vit", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": width, "image_size": side, "patch_size": patch, "num_labels": 1000,
    }  # fmt: skip
    model = model_from_config(config, "vit")
    published, operations = TORCHVISION[which]
    assert parameters(model) == published
    seq = model.sample_tokens
    forward = products_per_token(model, seq=seq) + attention_flops_per_token(model, seq, causal_half=False) / 2
    if operations is not None:
        assert seq * forward / 1e9 == pytest.approx(operations, abs=0.006)


def test_a_file_without_classes_has_those_of_transformers_and_says_so() -> None:
    config = {key: value for key, value in catalog.entry("models", "vit-h-14").items() if key != "num_labels"}
    model = model_from_config(config, "vit")
    assert model.vocab == 2
    assert "names no classes" in model.notes[0]
    named = model_from_config({**config, "id2label": {str(i): f"class {i}" for i in range(7)}}, "vit")
    assert (named.vocab, named.notes) == (7, ())


@pytest.mark.parametrize(
    "wrong",
    [{"patch_size": 300}, {"patch_size": 0}, {"image_size": [224]}, {"image_size": "224"}, {"num_channels": -1}],
)
def test_a_picture_of_no_size_is_refused_in_one_line(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))) as told:
        model_from_config({**catalog.entry("models", "vit-l-16"), **wrong}, "vit")
    assert "\n" not in str(told.value)


def test_a_newer_model_is_not_its_elder() -> None:
    assert (model_of("llama-3-8b").context, model_of("llama-3.1-8b").context) == (8192, 131072)
    assert model_of("llama-3.3-70b").context == 131072


@pytest.mark.parametrize(
    ("meant", "name"),
    [
        ("qwen3-235b", "qwen3-235b-a22b"),
        ("qwen-3-235b", "qwen3-235b-a22b"),
        ("kimi", "kimi-k2"),
        ("llama3-70", "llama-3-70b"),
        ("mistral7b", "mistral-7b"),
        ("llama-3.1-400b", "llama-3.1-405b"),
    ],
)
def test_a_name_that_is_nearly_right_leads_to_its_family_and_size(meant: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{name}'"):
        model_of(meant)


@pytest.mark.parametrize("name", ["qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3-next-80b-a3b"])
def test_three_of_four_layers_attend_by_the_delta_rule(name: str) -> None:
    """Hugging Face: linear_attention three times, then full_attention (full_attention_interval 4)."""
    model = model_of(name)
    kinds = [model.kinds[kind] for kind in model.pattern]
    assert [kind.delta is None for kind in kinds] == [i % 4 == 3 for i in range(model.layers)]
