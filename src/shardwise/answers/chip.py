"""`catalog gpus NAME --chip`: the parts of one GPU, the switches of its fast domain, the counterparts in a TPU."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Cell, FactList, Part, Table, shown, table
from shardwise.spec.chips import Counterpart, SwitchedDomain, chip_table
from shardwise.spec.gpu import Gpu
from shardwise.units import bytes_of, memory_text, rate_of

LANE_BYTES = 4
"""of a register"""
MOST_NAMED = 8
"""switches whose links are listed one by one"""


class FastDomain(Struct, frozen=True, kw_only=True):
    links: Annotated[str, shown("links of a GPU to each switch")]
    gpus: Annotated[int, shown("GPUs")]
    switches: Annotated[int, shown("switches")]
    ports: Annotated[int, shown("ports")]
    source: str


class ChipInside(Struct, frozen=True, kw_only=True):
    """Parts of a chip that the catalog knows."""

    parts_per_sm: int
    tensor_cores_per_sm: int
    tensor_cores: int
    lanes_per_sm: int
    warps_per_sm: int
    warps_per_part: int
    registers_bytes_per_sm: float
    registers_bytes: float
    registers_per_lane: int
    tensor_memory_bytes_per_sm: float
    tensor_memory_bytes: float
    l2_bytes_per_s: float | None
    flop_per_cycle_per_tensor_core: int
    peak_clock_hz: float
    """at which the tensor cores reach the data sheet's peak in 16 bits"""
    source: str

    def facts(self) -> Iterator[tuple[str, Cell]]:
        cores = f"{self.tensor_cores_per_sm} tensor cores, {self.lanes_per_sm} lanes"
        yield "its parts", f"{self.parts_per_sm}, together {cores}, up to {self.warps_per_sm} warps"
        each, tensor = memory_text(self.registers_bytes_per_sm), self.tensor_memory_bytes
        yield "registers", f"{each} an SM, {memory_text(self.registers_bytes)}"
        yield "tensor memory", f"{memory_text(self.tensor_memory_bytes_per_sm)} an SM" if tensor else None
        cycle = f"{self.flop_per_cycle_per_tensor_core:,} FLOP a cycle in each of {self.tensor_cores:,}"
        yield "tensor cores", f"{cycle}: the peak at {self.peak_clock_hz / 1e9:.3g} GHz"
        yield "L2", f"{self.l2_bytes_per_s / 1e12:.3g} TB/s" if self.l2_bytes_per_s else None
        yield "source", self.source


class ChipAnswer(Struct, frozen=True, kw_only=True):
    inside: ChipInside | None
    """none: the catalog does not know this architecture"""
    flops_per_s_per_sm: float
    domains: Sequence[FastDomain]
    nvswitch_bytes_per_s: float | None
    """of one switch of the smallest domain, each way"""
    counterparts: Sequence[Counterpart]

    def parts(self) -> Iterator[Part]:
        rate: list[tuple[str, Cell]] = [("an SM", f"{self.flops_per_s_per_sm / 1e12:.3g} TFLOP/s in 16 bits")]
        yield FactList("inside", [*rate, *(self.inside.facts() if self.inside else ())])
        if self.domains:
            yield table("fast domains of these links", self.domains)
        rows = [[row.gpu, row.tpu, row.what] for row in self.counterparts]
        yield Table("the same in a TPU", ["GPU", "TPU", "meaning"], rows, words=3, breaks=2)


def chip_answer(gpu: Gpu) -> ChipAnswer:
    domains = _domains(gpu)
    ports = domains[0].ports if domains else 0
    return ChipAnswer(
        inside=_inside(gpu), flops_per_s_per_sm=gpu.peak("bf16") / gpu.sms,
        domains=[FastDomain(gpus=each.gpus, switches=each.switches, ports=each.ports, links=_links(each.pattern),
                            source=each.source) for each in domains],
        nvswitch_bytes_per_s=ports * gpu.nvlink.link_bandwidth if ports and gpu.nvlink else None,
        counterparts=chip_table().tpu,
    )  # fmt: skip


def _inside(gpu: Gpu) -> ChipInside | None:
    known = chip_table().architecture.get(gpu.architecture)
    if known is None:
        return None
    registers, tensor = bytes_of(known.registers), bytes_of(known.tensor_memory)
    cores = known.tensor_cores * gpu.sms
    return ChipInside(
        parts_per_sm=known.parts, tensor_cores_per_sm=known.tensor_cores, tensor_cores=cores,
        lanes_per_sm=known.lanes, warps_per_sm=known.warps, warps_per_part=known.warps // known.parts,
        registers_bytes_per_sm=registers, registers_bytes=registers * gpu.sms,
        registers_per_lane=int(registers / LANE_BYTES / known.lanes), tensor_memory_bytes_per_sm=tensor,
        tensor_memory_bytes=tensor * gpu.sms, l2_bytes_per_s=rate_of(known.l2_bandwidth) or None,
        flop_per_cycle_per_tensor_core=known.flop_per_cycle,
        peak_clock_hz=gpu.peak("bf16") / (cores * known.flop_per_cycle), source=known.source,
    )  # fmt: skip


def switches_inside(gpu: Gpu, node: int) -> int:
    """Switches of one fast domain of so many GPUs; 0 where the catalog has none."""
    return next((each.switches for each in _domains(gpu) if each.gpus == node), 0)


def _domains(gpu: Gpu) -> list[SwitchedDomain]:
    if gpu.nvlink is None or gpu.vendor != "NVIDIA":
        return []
    return [each for each in chip_table().domain if each.generation == gpu.nvlink.generation]


def _links(pattern: Sequence[int]) -> str:
    return f"{pattern[0]} to each of {len(pattern)}" if len(pattern) > MOST_NAMED else " + ".join(map(str, pattern))
