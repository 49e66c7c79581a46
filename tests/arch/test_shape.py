"""Models from a bare shape agree with the full configuration where the form is the same."""

import pytest

from shardwise.spec.arch import model_from_shape, model_of
from shardwise.spec.arch.tensors import active_parameters, parameters


def test_gated_shape_is_llama() -> None:
    shape = model_from_shape("m", 80, 8192, 64, 8, 28672, True, 128256, tied=False)
    assert parameters(shape) == parameters(model_of("llama-3-70b"))


def test_plain_shape_is_gpt() -> None:
    shape = model_from_shape("m", 48, 8192, 64, 64, 32768, False, 51200, tied=True)
    assert parameters(shape) == parameters(model_of("megatron-39.1b"))


def test_expert_shape_takes_ffn_as_the_expert_width() -> None:
    shape = model_from_shape("m", 32, 4096, 32, 8, 14336, True, 32000, tied=False, experts=8, top_k=2)
    assert parameters(shape) == parameters(model_of("mixtral-8x7b"))
    assert active_parameters(shape) == active_parameters(model_of("mixtral-8x7b"))


def test_dense_layers_come_first() -> None:
    shape = model_from_shape(
        "m", 5, 64, 4, 4, 256, True, 100, tied=False, experts=4, top_k=1, expert_ffn=32, shared_ffn=32, dense_layers=2
    )
    assert [shape.kinds[k].experts is None for k in shape.pattern] == [True, True, False, False, False]


def test_heads_may_be_wider_than_hidden_over_heads() -> None:
    shape = model_from_shape("m", 28, 3072, 16, 16, 24576, True, 256000, tied=True, head_dim=256)
    assert parameters(shape) == parameters(model_of("gemma-7b"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 7}, "divisor of hidden 64"),
        ({"heads": 0}, "heads is 0"),
        ({"layers": 0}, "layers is 0"),
        ({"experts": 4}, "top_k"),
        ({"experts": 4, "top_k": 5}, "top_k 5"),
        ({"hidden": 0}, "hidden is 0"),
        ({"dense_layers": 3, "experts": 2, "top_k": 1}, "dense_layers is 3; write 0 to 2"),
    ],
)
def test_odd_shapes_are_refused(change: dict[str, int], message: str) -> None:
    good = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 256, "vocab": 100}
    with pytest.raises(ValueError, match=message):
        model_from_shape("m", glu=True, tied=False, **{**good, **change})
