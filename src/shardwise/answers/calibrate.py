"""`calibrate`: the profile that was measured or read, beside the catalog's figures of the same GPU."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec import UNSET

from shardwise.answers.answer import Answer, Bars, Cell, Part, Table
from shardwise.cost.calibrate.overlay import curve_with
from shardwise.cost.calibrate.profile import Profile
from shardwise.cost.curve import Curve, curve_of
from shardwise.cost.gpu import attention_seconds, gemm_seconds
from shardwise.spec.gpu import Gpu
from shardwise.spec.software import stack_of

HEADS = ["what", "measured", "catalog", "unit"]
SIDE = 8192
HEADS_OF_32, LENGTH, WIDTH = 32, 8192, 128


class CalibrateAnswer(Answer, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("gpu",)

    out: str
    profile: Profile
    gpu: Any = UNSET
    """the catalog's Gpu, if it knows the device"""

    def parts(self) -> Iterator[Part]:
        rows = _rows_of(self.profile, self.gpu)
        yield Table(f"{self.profile.device}: {self.profile.words}", HEADS, rows)
        yield Bars("measured over the catalog", {n: (ratio, f"{ratio:.2f}") for n, ratio in _ratios_of(rows).items()})


ANSWERS = (CalibrateAnswer,)


def calibrate_answer(out: str, profile: Profile, gpu: Gpu | None, notes: Sequence[str]) -> CalibrateAnswer:
    """`out`: the file that has the profile."""
    written = f"written to {out}; use it with --profile {out}"
    return CalibrateAnswer(out=out, profile=profile, gpu=gpu, notes=[*notes, written])


def _rows_of(profile: Profile, gpu: Gpu | None) -> list[list[Cell]]:
    """What was measured, each with the catalog's figure where the catalog knows the GPU."""
    shipped = curve_of(gpu) if gpu is not None else None
    mine = curve_with(gpu, profile) if gpu is not None else None
    rows = _kernels(profile, mine, shipped)
    for kind, share in profile.memory.items():
        catalog = shipped.memory[kind] if shipped is not None else None
        rows.append([f"{kind} passes", _two(share), _two(catalog), "of memory bandwidth"])
    if profile.kernel_floor_s:
        rows.append(["smallest kernel", _micros(profile.kernel_floor_s),
                     _micros(shipped.kernel_floor_s) if shipped is not None else None, "us"])  # fmt: skip
    if profile.host is not None:
        eager = stack_of("torch-eager").host.host_s_per_op
        rows.append(["host, per operation", _micros(profile.host.seconds_per_op), _micros(eager), "us"])
    return rows + _network(profile)


def _ratios_of(rows: list[list[Cell]]) -> dict[str, float]:
    """What was measured over what the catalog says, where it says anything."""
    found = {str(row[0]): [float(str(cell).replace(",", "")) for cell in row[1:3]] for row in rows if row[1] and row[2]}
    return {name: measured / said for name, (measured, said) in found.items() if said}


def _kernels(profile: Profile, mine: Curve | None, shipped: Curve | None) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for dtype, law in profile.gemm.items():
        if mine is None or shipped is None:
            rate = profile.peak_flops[dtype] * law.e_max * law.sustained
            rows.append([f"{dtype} product", f"{rate / 1e9:,.1f}", None, "GFLOP/s"])
        else:
            rows.append([f"{dtype} product", _product(mine, dtype), _product(shipped, dtype), "of peak"])
    if mine is None or shipped is None:
        return rows
    return rows + [
        [f"attention {side}", _attention(mine, side), _attention(shipped, side), "of peak"]
        for side in profile.attention.get("flash", {})
    ]


def _product(curve: Curve, dtype: str) -> str:
    seconds = float(gemm_seconds(curve, SIDE, SIDE, SIDE, dtype))
    return f"{2.0 * SIDE**3 / seconds / curve.gemm_law(dtype).peak:.2f}"


def _attention(curve: Curve, side: str) -> str:
    backward = side == "backward"
    flops = 2.0 * HEADS_OF_32 * LENGTH**2 * WIDTH * (2.5 if backward else 1.0)
    seconds = float(attention_seconds(curve, flops, LENGTH, WIDTH, HEADS_OF_32, backward=backward))
    return f"{flops / seconds / curve.attention_peak:.2f}"


def _network(profile: Profile) -> list[list[Cell]]:
    if profile.network is None:
        return []
    rows: list[list[Cell]] = []
    for kind, found in profile.network.factors.items():
        rows.append([f"{kind} latency", _two(found.latency), "1.00", "of the model"])
        rows.append([f"{kind} bandwidth", _two(found.bandwidth), "1.00", "of the model"])
    for op, line in profile.network.fitted.items():
        rows.append([f"{op}, {line.ranks} ranks", f"{line.bus_bytes_per_s / 1e9:.3g}", None, "bus GB/s"])
        rows.append([f"{op}, smallest", _micros(line.latency_s), None, "us"])
    return rows


def _two(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"
