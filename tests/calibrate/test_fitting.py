"""The bounded fit: against scipy's on the same problem, at bounds, and with points that are far off."""

import numpy as np
import pytest

from shardwise.cost.calibrate.fitting import Products, fit_gemm, least_squares, with_gemm
from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import gemm_seconds
from shardwise.spec.load import gpu_of


def problem(seed: int):
    random = np.random.default_rng(seed)
    t = random.uniform(0, 4, 60)
    noise = random.normal(0, 0.02, 60) + (random.uniform(size=60) < 0.1) * 0.8
    y = 2.0 * np.exp(-0.7 * t) + 0.3 + noise
    return lambda x: x[0] * np.exp(-x[1] * t) + x[2] - y


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("high", [[10.0, 5.0, 5.0], [1.8, 5.0, 5.0]], ids=["inside", "at a bound"])
def test_scipy_finds_the_same(seed, high):
    optimize = pytest.importorskip("scipy.optimize", reason="scipy is not installed: nothing to compare with")
    residual, start, low = problem(seed), [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]
    mine = least_squares(residual, start, low, high, [1.0, 1.0, 1.0], robust=0.05)
    theirs = optimize.least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=0.05).x
    assert mine == pytest.approx(theirs, rel=2e-3, abs=2e-3)


def test_bounds_hold_and_hopeless_starts_end():
    found = least_squares(lambda x: x - np.array([5.0, -5.0]), [0.0, 0.0], [-1.0, -1.0], [1.0, 1.0], [1.0, 1.0])
    assert found == pytest.approx([1.0, -1.0])
    nothing = least_squares(lambda x: np.full(3, np.nan) + x[0], [1.0], [0.0], [2.0], [1.0])
    assert nothing.shape == (1,)


def test_constants_of_a_product_are_found_through_outliers():
    curve = curve_of(gpu_of("h100"))
    wanted = {"e_max": 0.6, "k0": 120.0, "wave": 2e5, "memory_efficiency": 0.7}
    random = np.random.default_rng(0)
    m, n, k = (2.0 ** random.uniform(7, 14, 300) for _ in range(3))
    seconds = np.asarray(gemm_seconds(with_gemm(curve, "bf16", wanted), m, n, k, duty=0.0))
    seconds[::20] *= 3.0
    found = fit_gemm(Products(m, n, k, seconds), curve, "bf16", list(wanted))
    assert found == pytest.approx(wanted, rel=0.02)


def test_what_is_not_free_stays():
    curve = curve_of(gpu_of("h100"))
    sides = np.array([1024.0, 4096.0, 8192.0])
    seconds = np.asarray(gemm_seconds(curve, sides, sides, sides, duty=0.0)) * 1.25
    found = fit_gemm(Products(sides, sides, sides, seconds), curve, "bf16", ["e_max"])
    assert list(found) == ["e_max"]
    assert found["e_max"] == pytest.approx(curve.gemm_law("bf16").e_max / 1.25, rel=0.05)
