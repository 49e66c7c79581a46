"""Traces of several ranks, made from causes that are known: what must be found is what was put in."""

import json
from dataclasses import dataclass, field
from pathlib import Path

KERNELS = 20
"""of a step"""
ALL = "[{}]"


@dataclass(frozen=True)
class Made:
    """Milliseconds of one step of a data-parallel job."""

    ranks: int = 4
    steps: int = 5
    compute: float = 80.0
    reduce: float = 10.0
    """the all-reduce, once all have arrived"""
    hidden: float = 10.0
    """of it: under the last kernels"""
    gaps: float = 0.0
    """between kernels, as the host launches late"""
    data: float = 0.0
    checkpoint: float = 0.0
    copies: float = 0.0
    factor: dict[int, float] = field(default_factory=dict)
    """rank -> its kernels take so many times as long"""
    late_data: dict[int, float] = field(default_factory=dict)
    """rank -> more milliseconds until its batch is there"""
    skew: dict[int, float] = field(default_factory=dict)
    """rank -> seconds that its clock is ahead"""
    marked: bool = True
    described: str = "default_pg"

    @property
    def step_ms(self) -> float:
        slow = max([1.0, *self.factor.values()])
        late = max([0.0, *self.late_data.values()])
        return (self.data + late + self.checkpoint + self.copies + self.compute * slow + self.gaps
                + self.reduce - self.hidden)  # fmt: skip


def span(cat: str, name: str, start: float, length: float, tid: object = 7, **args: object) -> dict:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": start * 1e3,
        "dur": length * 1e3,
        "args": args,
    }


def events_of(made: Made, rank: int) -> list[dict]:
    found: list[dict] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}]
    ranks = ", ".join(map(str, range(made.ranks)))
    slowest = max([1.0, *made.factor.values()])
    latest = max([0.0, *made.late_data.values()])
    number = 0
    for step in range(made.steps):
        begin = 1000.0 + step * made.step_ms + made.skew.get(rank, 0.0) * 1e3
        at = begin
        if made.marked:
            found.append(span("user_annotation", f"ProfilerStep#{step}", begin, made.step_ms, tid=1))
        data = made.data + made.late_data.get(rank, 0.0)
        if data:
            found.append(
                span("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, data, 1)
            )
            at += data
        if made.checkpoint:
            found.append(span("user_annotation", "save_checkpoint", at, made.checkpoint, 1))
            at += made.checkpoint
        if made.copies:
            found.append(
                span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at, made.copies, 9, correlation=10**6 + step)
            )
            at += made.copies
        each = made.compute * made.factor.get(rank, 1.0) / KERNELS
        gap, computes = made.gaps / KERNELS, at
        for _ in range(KERNELS):
            number += 1
            at += gap
            # a late host asks for the kernel just before it runs; else when the step begins to compute
            asked = at - min(gap / 2, 0.01) if gap else computes
            found.append(span("cuda_runtime", "cudaLaunchKernel", asked, 0.005, 1, correlation=number))
            found.append(span("kernel", "sm90_xmma_gemm_bf16bf16", at, each, 7, correlation=number))
            at += each
        arrived = at - made.hidden
        whole = (
            begin
            + latest
            + made.data
            + made.checkpoint
            + made.copies
            + made.compute * slowest
            + made.gaps
            - made.hidden
        )
        number += 1
        found.append(span("cuda_runtime", "cudaLaunchKernel", computes, 0.005, 1, correlation=number))
        found.append(span(
            "kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", arrived,
            whole + made.reduce - arrived, 20, correlation=number, **{
                "Collective name": "allreduce", "Group size": made.ranks, "Process Group Name": "0", "Seq": step,
                "Process Group Description": made.described, "Process Group Ranks": ALL.format(ranks),
                "In msg nelems": 1000, "dtype": "BFloat16",
            }))  # fmt: skip
    return found


def write(made: Made, folder: Path, only: tuple[int, ...] = ()) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for rank in only or range(made.ranks):
        path = folder / f"rank{rank}.pt.trace.json"
        path.write_text(json.dumps({
            "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": made.ranks},
            "traceEvents": events_of(made, rank), "traceName": "x",
        }))  # fmt: skip
        found.append(path)
    return found
