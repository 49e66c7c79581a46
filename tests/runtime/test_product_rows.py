"""Rows of a product kept further apart than they are long give the same numbers."""

import pytest
import torch

from shardwise.run.runtime.parallel import products


@pytest.mark.parametrize("biased", [False, True])
def test_rows_apart_are_the_same_product(monkeypatch: pytest.MonkeyPatch, biased: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 2, 8), torch.randn(13, 8)
    bias = torch.randn(13) if biased else None
    together = products._linear(x, weight, bias)
    assert together.is_contiguous()
    monkeypatch.setattr(products, "_row", lambda columns, _: columns + 3)
    apart = products._linear(x, weight, bias)
    assert apart.stride() == (32, 16, 1)
    torch.testing.assert_close(apart, together)
    torch.testing.assert_close(apart.flatten(0, -2) @ weight, together.flatten(0, -2) @ weight)


def test_only_sixteen_bits_on_a_gpu_are_kept_apart() -> None:
    assert products._row(13, torch.ones(1)) == 13
    assert products._row(13, torch.ones(1, dtype=torch.bfloat16)) == 13
