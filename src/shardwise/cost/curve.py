"""What one GPU's kernels reach of its datasheet: fitted constants joined with that GPU's peaks.

The constants are the `[kernels]` of the GPU's catalog file and say there from what they were fitted. A file may name
a `fallback`: the constants of the nearest measured GPU, applied to this GPU's own peaks and bandwidth.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise import catalog
from shardwise.registry import closest
from shardwise.spec.gpu import Gpu

_T = TypeVar("_T")
Numbers = float | NDArray[np.float64]

DTYPES = ("bf16", "fp16", "fp8", "fp8-block", "fp4", "tf32", "fp32")
_ELEMENT_BYTES = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0,
    "fp4": 0.5,
}
# A chip without the narrow format computes in the next wider one it has.
_WIDER = {"fp4": "fp8", "fp8-block": "bf16", "fp8": "bf16", "bf16": "fp16"}
# A format without a fitted section uses the constants of a near one, at its own peak.
_NEAR = {"fp16": "bf16", "tf32": "bf16", "fp32": "bf16", "fp8-block": "fp8", "fp4": "fp8", "fp8": "bf16"}

# Whose constants a GPU takes whose file states none: the chip with the most measurements behind them.
_DEFAULT = {"fallback": "h100", "source": "as h100: stated default for a GPU without constants of its own"}
_ORIGIN = ("rows", "bench_floor_s", "fitted_from", "sustained_from", "wgrad_from", "held_out_all", "held_out_large")


class GemmLaw(Struct, frozen=True, kw_only=True):
    """Constants of one dtype; `gpu.gemm_seconds` states the law."""

    peak: float
    """FLOP/s"""
    e_max: float
    """share of peak that a large product reaches in a short burst"""
    sustained: float
    """factor on e_max where matrix units work all the time and the power limit lowers the clock"""
    k0: float
    """prologue and epilogue of a tile, as extra length of the inner dimension"""
    wave: float
    """the last, part-filled wave of tiles, as extra output elements"""
    memory_efficiency: float
    element_bytes: float
    power: float = 2.0
    """of the mean of both bounds, 2 or 4: the higher, the less a GEMM near the corner is slowed by the other bound"""
    output_bytes: float = 2.0
    cast_bytes: float = 0.0
    """traffic to scale and round the left operand to this dtype, per element"""
    wgrad_fp32: float = 1.0
    """relative time of a weight gradient that accumulates into fp32, against the forward layout"""

    def level(self, duty: Numbers) -> Numbers:
        """Share of the burst rate that the power limit leaves where matrix units work for `duty` of the time: below
        its limit a GPU keeps its clock, so a step that is half something else loses less than half."""
        return 1.0 - (1.0 - self.sustained) * duty**2


FIRST_FLASH = 0.5
"""rate of the first FlashAttention over the second, which is about twice as fast (arXiv:2307.08691)"""


class AttentionLaw(Struct, frozen=True, kw_only=True):
    """Constants of one pass of one flash kernel, as shares of the bf16 peak."""

    e_max: float
    seq0: float
    dim0: float
    work0: float
    """rows of queries (batch x heads x sequence) at which half the GPU is filled; of the sparse kernel: heads"""


class Curve(Struct, frozen=True, kw_only=True):
    gpu: str
    measured: str
    """the GPU the constants were fitted on"""
    source: str
    bandwidth: float
    """bytes/s of the datasheet"""
    kernel_floor_s: float
    """device time of the smallest kernel; the host's launch cost is not in it"""
    gemm: dict[str, GemmLaw]
    attention: dict[str, dict[str, AttentionLaw]]
    """kernel name -> forward, backward"""
    memory: dict[str, float]
    """share of the bandwidth by kind of element-wise pass"""
    attention_peak: float
    same_chip: bool = False
    """the GPU is the measured one with other links: its kernels are the same"""
    sdpa: str = "flash2"
    """the kernel that PyTorch's scaled_dot_product_attention runs here"""

    def gemm_law(self, dtype: str) -> GemmLaw:
        return _pick(self.gemm, dtype, "dtype")

    def attention_law(self, kernel: str, backward: bool) -> AttentionLaw:
        """FlashAttention-2 on a GPU without rates of it is taken as the vendor's kernel."""
        which = "backward" if backward else "forward"
        kernel = self.sdpa if kernel == "sdpa" else kernel
        second = self.attention.get("flash2", self.attention["flash"])[which]
        if kernel == "flash1":
            return msgspec.structs.replace(second, e_max=FIRST_FLASH * second.e_max)
        return second if kernel == "flash2" else _pick(self.attention, kernel, "attention kernel")[which]

    def memory_efficiency(self, kind: str) -> float:
        return _pick(self.memory, kind, "kind of memory pass")


def _pick(table: dict[str, _T], name: str, what: str) -> _T:
    if name not in table:
        raise ValueError(f"{what} {name!r} is unknown; {closest(name, list(table))}")
    return table[name]


def curve_of(gpu: Gpu) -> Curve:
    """The curve of a GPU; one whose file states no kernels, or that has no file, takes the stated default."""
    # A Gpu holds a dict and cannot be hashed; its bytes can, and two what-if chips of one name stay apart.
    return _curve(msgspec.json.encode(gpu))


@cache
def _curve(encoded: bytes) -> Curve:
    gpu = msgspec.json.decode(encoded, type=Gpu)
    data, measured = _constants(gpu.name.lower())
    return Curve(
        gpu=gpu.name,
        measured=measured,
        source=data["source"],
        bandwidth=gpu.memory_bandwidth,
        kernel_floor_s=data["kernel_floor_s"],
        gemm={dtype: _gemm_law(gpu, data["gemm"], dtype) for dtype in DTYPES},
        attention=msgspec.convert(data["attention"], dict[str, dict[str, AttentionLaw]]),
        memory=data["memory"],
        attention_peak=gpu.peak("bf16"),
        same_chip=_own(gpu.name.lower()).get("same_chip", False),
        sdpa=data.get("sdpa", "flash2"),
    )


def _own(name: str) -> dict[str, Any]:
    """What a GPU's own file states of its kernels."""
    known: dict[str, Any] = catalog.entry("gpus", name) if name in catalog.names("gpus") else {}
    return known.get("kernels") or _DEFAULT


@cache
def _constants(name: str) -> tuple[dict[str, Any], str]:
    """The constants of a GPU laid over those it falls back to, and the name of the GPU that was measured."""
    own = _own(name)
    _check(own, name)
    if "fallback" not in own:
        return own, name
    base, measured = _constants(catalog.resolve("gpus", own["fallback"]))
    return _overlay(base, own), measured


def _check(own: dict[str, Any], name: str) -> None:
    """A constant under a name nobody reads would be a default in disguise."""
    known = ("fallback", "same_chip", "source", "date", "kernel_floor_s", "sdpa", "gemm", "attention", "memory")
    gemm = (*GemmLaw.__struct_fields__, *_ORIGIN)
    tables: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {"": (own, known)}
    tables |= {f"gemm.{dtype}.": (table, gemm) for dtype, table in own.get("gemm", {}).items()}
    for where, (table, fields) in tables.items():
        for key in table:
            if key not in fields:
                raise ValueError(f"gpu {name}: kernels.{where}{key} is unknown; {closest(key, list(fields))}")


def _overlay(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        merged[key] = _overlay(base.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def _gemm_law(gpu: Gpu, sections: dict[str, dict[str, Any]], dtype: str) -> GemmLaw:
    while dtype in _WIDER and dtype.removesuffix("-block") not in gpu.peak_flops:
        dtype = _WIDER[dtype]
    near = dtype
    while near not in sections:
        near = _NEAR[near]
    # Products in 32 bits also write 32 bits.
    constants = {
        "peak": gpu.peak(dtype.removesuffix("-block")),
        "element_bytes": _ELEMENT_BYTES[dtype],
        "output_bytes": max(2.0, _ELEMENT_BYTES[dtype]),
    }
    fields = set(GemmLaw.__struct_fields__)
    return GemmLaw(**{k: v for k, v in sections[near].items() if k in fields} | constants)
