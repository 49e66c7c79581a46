"""How much work between two saves: Young, Daly, and the optimum of the exact expectation."""

from math import exp, sqrt


def young_s(save_s: float, between_s: float) -> float:
    """First order; Young 1974."""
    return sqrt(2.0 * save_s * between_s)


def daly_s(save_s: float, between_s: float) -> float:
    """Higher order; Daly 2006, equation 37."""
    if save_s >= 2.0 * between_s:
        return between_s
    ratio = save_s / (2.0 * between_s)
    return sqrt(2.0 * save_s * between_s) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - save_s


def best_s(save_s: float, between_s: float) -> float:
    """Where W / (exp((W + C) / M) - 1) is largest, which is where W / M = 1 - exp(-(W + C) / M). Neither the time to
    recover nor the time to notice moves it."""
    if save_s <= 0:
        return 0.0
    share, low, high = save_s / between_s, 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if middle - 1.0 + exp(-middle - share) < 0 else (low, middle)
    return between_s * (low + high) / 2.0
