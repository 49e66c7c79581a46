"""The largest of several numbers that differ by chance: the slowest GPU of a job, the fullest of its expert ranks."""

from statistics import NormalDist


def largest_of(number: float) -> float:
    """Mean of the largest of so many standard normal numbers, E(n) ≈ z((n − 3/8) / (n + 1/4)), z the quantiles of the
    standard normal (Blom 1958)."""
    return NormalDist().inv_cdf((number - 0.375) / (number + 0.25))
