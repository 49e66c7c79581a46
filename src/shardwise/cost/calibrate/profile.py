"""What `shardwise calibrate` measured on a machine, as a file the planner reads instead of its shipped constants.

A profile is TOML in the form of curves/*.toml with the machine it was taken on and the raw points. Everything in it is
optional except what names it: what was not measured keeps the shipped value.
"""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from shardwise.bounded import toml_of
from shardwise.fields import converted, read_file
from shardwise.spec.gpu import Gpu

VERSION = 1
MOST_BYTES = 4 * 2**20
MOST_POINTS = 20_000
MOST_RUNS = 1_000

Text = Annotated[str, Meta(min_length=1, max_length=200)]
Note = Annotated[str, Meta(max_length=500)]
Share = Annotated[float, Meta(gt=0, le=1)]
Size = Annotated[float, Meta(ge=0, le=1e9)]
Rate = Annotated[float, Meta(gt=0, le=1e20)]
Seconds = Annotated[float, Meta(gt=0, le=1e5)]
Factor = Annotated[float, Meta(ge=0.01, le=100)]
LevelKind = Literal["nvlink", "pcie", "network"]
Point = dict[str, str | int | float]


class GemmConstants(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As in cost/curve.py: shares of the profile's own peak."""

    e_max: Share
    sustained: Share = 1.0
    k0: Size
    wave: Size
    memory_efficiency: Share
    power: float = 2.0


class AttentionConstants(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    e_max: Share
    seq0: Size
    dim0: Size
    work0: Size


class HostMeasurement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seconds_per_op: Seconds
    """the host launches one operation of a training step"""


class Factors(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured over modelled, for the levels of one kind."""

    latency: Factor = 1.0
    bandwidth: Annotated[float, Meta(ge=0.01, le=2)] = 1.0


class FittedOp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A straight line through one collective's times on one group of ranks."""

    ranks: Annotated[int, Meta(ge=2, le=10**7)]
    nodes: Annotated[int, Meta(ge=1, le=10**7)]
    latency_s: Annotated[float, Meta(ge=0, le=1e5)]
    bus_bytes_per_s: Rate


class NetworkFit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: Note = ""
    """whose modelled times the factors are over"""
    factors: dict[LevelKind, Factors] = {}
    fitted: dict[str, FittedOp] = {}

    @property
    def by_kind(self) -> dict[str, Factors]:
        return {str(kind): found for kind, found in self.factors.items()}


class LearnedRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training run, and what was predicted of it by the rates of this profile."""

    source: Text
    """the file it was read from"""
    job: Text
    """model and GPU"""
    stack: Text
    measured_s: Seconds
    predicted_s: Seconds
    causes: dict[str, Annotated[float, Meta(ge=-1e4, le=1e4)]]
    """what such a prediction can err by (step/estimate/causes.py); those that are missing are 0"""
    memory_offset_bytes: Annotated[float, Meta(ge=-1e13, le=1e13)] | None = None
    """measured less predicted peak"""


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Literal[1] = 1
    name: Text
    device: Text
    """catalog name of the GPU, or what the driver calls it"""
    reported: Note = ""
    driver: Note = ""
    torch: Note = ""
    date: Note = ""
    complete: bool = True
    """False: the calibration was interrupted"""
    memory_bandwidth: Annotated[float, Meta(ge=0, le=1e16)] = 0.0
    """bytes/s that the shares of [memory] are of; 0: not measured"""
    kernel_floor_s: Annotated[float, Meta(ge=0, le=1)] = 0.0
    peak_flops: dict[str, Rate] = {}
    """FLOP/s that the shares of [gemm] and [attention] are of, by dtype"""
    gemm: dict[Literal["bf16", "fp16", "tf32", "fp32"], GemmConstants] = {}
    attention: dict[Literal["flash"], dict[Literal["forward", "backward"], AttentionConstants]] = {}
    memory: dict[Literal["stream", "norm", "activation", "optimizer"], Share] = {}
    host: HostMeasurement | None = None
    network: NetworkFit | None = None
    runs: tuple[LearnedRun, ...] = ()
    """what steps are corrected by, cause by cause"""
    measured: dict[str, tuple[Point, ...]] = {}

    def __post_init__(self) -> None:
        for dtype in self.gemm:
            if dtype not in self.peak_flops:
                raise ValueError(f"peak_flops has no {dtype}, and [gemm.{dtype}] is a share of it; write both")
        if self.attention and not {"bf16", "fp32"} & self.peak_flops.keys():
            raise ValueError("peak_flops has no bf16, and [attention] is a share of it; write both")
        if self.memory and not self.memory_bandwidth:
            raise ValueError("memory_bandwidth is missing, and [memory] is a share of it; write both")
        if len(self.runs) > MOST_RUNS:
            raise ValueError(f"runs has more than {MOST_RUNS:,}; remove some")
        if sum(map(len, self.measured.values())) > MOST_POINTS:
            raise ValueError(f"[measured] has more than {MOST_POINTS:,} points; remove some")

    @property
    def words(self) -> str:
        made = [f"torch {self.torch}" if self.torch else "", f"driver {self.driver}" if self.driver else "", self.date]
        return ", ".join(part for part in (f"profile {self.name}", *made) if part)

    def fits(self, gpu: Gpu) -> bool:
        return self.device.lower() in {gpu.name.lower(), *(alias.lower() for alias in gpu.aliases)}

    def on(self, gpu: Gpu) -> "Profile":
        """This profile, if it speaks of that GPU."""
        if not self.fits(gpu):
            raise ValueError(
                f"profile: {self.name} was measured on {self.device!r}, the cluster has {gpu.name!r}; "
                "calibrate on one of its GPUs, or leave --profile out"
            )
        return self


def profile_of(path: Path) -> Profile:
    """The profile in a file; what is wrong in it is a ValueError that names the field."""
    return profile_from(read_file(path, "profile", MOST_BYTES, "a file `calibrate` made", pipes=True), path.name)


def profile_from(raw: bytes, where: str) -> Profile:
    try:
        data = toml_of(raw.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"profile {where}: not readable as TOML: {str(error)[:200]}") from None
    if data.get("version", VERSION) != VERSION:
        stated = repr(data["version"])[:20]
        raise ValueError(f"profile {where}: version is {stated}, this shardwise reads {VERSION}; calibrate again")
    if "run" in data:
        raise ValueError(f"profile {where}: run is of an earlier release; remove [run], and give the log to `learn`")
    return converted(data, Profile, f"profile {where}", "what fits there, or calibrate again")
