"""The model of a measured run is found by the names that people give to its weights."""

import pytest

from shardwise.measured.validate.models import catalog_model


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("Qwen3-8B-Base", "qwen3-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama 3.1 405B", "llama-3.1-405b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("GPT-OSS 20B", "gpt-oss-20b"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("NVIDIA-Nemotron/Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2"),
    ],
)
def test_the_words_of_weights_change_no_shape(name: str, found: str) -> None:
    model = catalog_model(name)
    assert model is not None
    assert model.name == found


@pytest.mark.parametrize("name", ["Llama-3.1-Nemotron-8B", "DeepSeek-V3.1", "Qwen3-4B-Pruned", "GPT-2-1558"])
def test_other_words_do(name: str) -> None:
    assert catalog_model(name) is None
