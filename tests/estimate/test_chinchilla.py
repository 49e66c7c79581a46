"""The two laws: published sizes, and that the fitted optimum is one."""

import pytest

from shardwise.step.estimate.chinchilla import loss_of, optima


def test_chinchilla_itself():
    """arXiv:2203.15556 trained 70B parameters on 1.4T tokens with 5.76e23 FLOP."""
    fixed, _ = optima(5.76e23)
    assert fixed.parameters == pytest.approx(70e9, rel=0.02)
    assert fixed.tokens == pytest.approx(1.4e12, rel=0.02)


@pytest.mark.parametrize("flops", [1e19, 5.76e23, 1e26])
def test_the_fit_is_least_at_its_optimum(flops):
    fixed, fitted = optima(flops)
    for found in (fixed, fitted):
        assert 6 * found.parameters * found.tokens == pytest.approx(flops)
        assert found.loss == loss_of(found.parameters, found.tokens)
    assert fitted.loss < fixed.loss
    for factor in (0.95, 1.05):
        moved = fitted.parameters * factor
        assert loss_of(moved, flops / (6 * moved)) > fitted.loss


@pytest.mark.parametrize("flops", [0.0, -1.0, float("nan"), 1e50])
def test_out_of_range(flops):
    with pytest.raises(ValueError, match="flops"):
        optima(flops)
