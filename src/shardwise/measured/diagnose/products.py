"""Matrix products of a trace beside their curve: which shapes run below what such a GPU reaches."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.cost.curve import Curve
from shardwise.cost.gpu import gemm_seconds
from shardwise.measured.diagnose.device_trace import ProductTime


@dataclass(frozen=True)
class ProductBesideCurve:
    product: ProductTime
    measured_s: float
    """of one call"""
    curve_s: float

    @property
    def lost_s(self) -> float:
        """Of all its calls."""
        return self.product.calls * (self.measured_s - self.curve_s)


def beside_curve(products: Sequence[ProductTime], curve: Curve) -> list[ProductBesideCurve]:
    """The largest loss first."""
    found = [
        ProductBesideCurve(
            each, each.seconds / each.calls,
            float(gemm_seconds(curve, float(each.m), float(each.n), float(each.k), each.dtype)),
        ) for each in products
    ]  # fmt: skip
    return sorted(found, key=lambda each: -each.lost_s)
