"""The training loop as the GPU and as the network see it, and the burst of the gradients."""

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.series import spread
from shardwise.fabric.step import StepLoad
from shardwise.question.studies.fabric.series import LoadSeries, coarse
from shardwise.report.fabric_report import Burst, Phase
from shardwise.step.simulate.joint import JointStep
from shardwise.step.tasks.program import FORWARD, Program

LINE_RATE = 0.8
"""share of a link's capacity from which it counts as full: what data reaches of line rate is about 0.85 to 0.97"""
BURST = 0.005
"""share of the burst's bytes at either end that does not count as its start or end"""
INSIDE = ("tp", "cp", "ep", "pp", "fsdp")
Spans = list[tuple[float, float]]


def burst_of(load: StepLoad, series: LoadSeries, step_s: float) -> Burst | None:
    """When the busiest card sends gradients (and gathers parameters), where there are any."""
    lanes = [lane for lane in ("grad", "fsdp") if lane in series.lanes]
    shares = sum((series.lanes[lane] for lane in lanes), start=np.zeros(len(series.edges) - 1))
    if not shares.any():
        return None
    done = np.cumsum(shares) / shares.sum()
    first, last = int(np.searchsorted(done, BURST)), int(np.searchsorted(done, 1.0 - BURST))
    links = load.prices.fabric.links
    cards = min(1, len(links.tiers) - 1)
    capacity = float(links.capacity[load.busiest(cards)])
    margin = max((last - first) // 2, 4)
    low, high = max(first - margin, 0), min(last + margin + 1, len(shares))
    return Burst(
        start_s=float(series.edges[first]), end_s=float(series.edges[min(last + 1, len(shares))]),
        bytes=float(shares.sum() * series.bin_s * capacity), peak_share=float(shares.max()),
        mean_share=float(shares.sum() * series.bin_s / step_s),
        series=coarse(series.links[cards][low:high], 60), from_s=float(series.edges[low]),
        to_s=float(series.edges[high]),
    )  # fmt: skip


def phases_of(load: StepLoad, series: LoadSeries, program: Program, step: JointStep, update: str) -> tuple[Phase, ...]:
    """`update`: what the optimizer's kernels wait for."""
    cards = series.means.get(1, series.means.get(0, np.zeros(len(series.edges) - 1)))
    ahead = program.kind == FORWARD
    rows = [
        Phase(phase="mini-batch load", gpu_s=0.0, gpu="copies tokens in; hidden", network_share=None,
              network="storage and PCIe; not on this fabric"),
    ]  # fmt: skip
    for name, chosen, lanes, what in (
        ("forward", ahead, INSIDE, "GEMMs and attention"),
        ("backward", ~ahead, (*INSIDE, "grad"), "gradients of inputs and weights"),
    ):
        spans = list(zip(step.start[chosen].tolist(), step.end[chosen].tolist(), strict=True))
        seconds, share = _during(spans, program.pp, series.edges, cards)
        sent = sorted({str(p.call.axis) for p in load.priced if p.call.lane in lanes})
        rows.append(Phase(phase=name, gpu_s=seconds, gpu=what, network_share=share, network=_words(share, sent)))
    for name, lane, idle, spans in (
        ("gradient synchronisation", "grad", "overlapped with backward where it can be", list(step.reduced)),
        ("parameter gather", "param", "waits, or runs the first forward", list(step.gathered)),
    ):
        seconds, share = _during(spans, program.pp, series.edges, series.lanes.get(lane))
        if seconds:
            ops = sorted({p.call.op.replace("_", "-") for p in load.priced if p.call.lane == lane})
            rows.append(Phase(phase=name, gpu_s=seconds, gpu=idle, network_share=share, network=_words(share, ops)))
    seconds, share = _during([(step.synced_s, step.busy_s)], 1, series.edges, cards)
    rows.append(Phase(phase="weight update", gpu_s=seconds, gpu=f"optimizer, bound by {update}", network_share=share,
                      network=_words(share, [])))  # fmt: skip
    return tuple(rows)


def _during(spans: Spans, ranks: int, edges: Floats, shares: Floats | None) -> tuple[float, float]:
    """(seconds of an average GPU, mean share of the cards' capacity meanwhile)."""
    start, end = (np.array([span[side] for span in spans]) for side in (0, 1))
    length = end - start
    seconds = float(length.sum() / ranks)
    there = spread(start, end, length, edges)
    if shares is None or not there.sum():
        return seconds, 0.0
    return seconds, float((there * shares).sum() / there.sum())


def _words(share: float, sent: list[str]) -> str:
    level = "line rate" if share >= LINE_RATE else "high" if share >= 0.4 else "medium" if share >= 0.1 else "low"
    if share < 0.002:
        return "quiet"
    return f"{level}: {', '.join(sent)}" if sent else level
