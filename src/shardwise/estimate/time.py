"""Step time in closed form: the slowest stage, the idle time around it, and what communication leaves exposed."""

from dataclasses import dataclass

import numpy as np

from shardwise.estimate.exposure import Parts, ShardGathers, Unit, end_unit, layer_unit, with_mtp
from shardwise.estimate.layers import LayerSeconds, Machine, layer_seconds
from shardwise.estimate.nodes import nodes_of
from shardwise.estimate.once import copy_rate, inner_seconds, optimizer_seconds, sync_seconds
from shardwise.estimate.synced import SyncChoice
from shardwise.estimate.synced.price import Seconds, seconds_of, step_beside, workers_of
from shardwise.schedules import used
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Ints
from shardwise.work import Work
from shardwise.work.layout import Numbers
from shardwise.work.ops import LayerWork
from shardwise.work.parameters import NOTHING
from shardwise.work.stages import Grid, largest, totals
from shardwise.work.transfer import transfer_bytes

PARTS = (
    "forward", "backward", "recompute", "tp_comm", "cp_comm", "ep_comm", "pp_comm", "fsdp_comm", "host", "offload",
    "bubble", "grad_comm", "param_comm", "optimizer", "other",
)  # fmt: skip

SETTLED = ("grad_comm", "param_comm", "optimizer", "fsdp_comm")
"""parts that the settings of a frame decide"""


@dataclass(frozen=True)
class Times:
    step_s: Numbers
    parts: Parts
    """seconds of the step by cause; they add up to step_s"""
    hidden: Parts
    """communication that ran under compute, by kind: it costs no step time"""
    stage_s: Grid
    """one micro-batch, forward and backward, on each evaluated stage"""
    slowest: Ints
    """which of them takes longest, with the time it stands still for what it sends"""
    units: tuple[Unit, ...]
    """one layer of each kind, the embedding and the head, in one micro-batch: what a timeline is built from"""
    transfer_s: Numbers
    """one activation or gradient from a stage to the next"""
    reduce_s: Numbers
    """gradient reduction of the fullest stage, before any overlap"""
    gather_s: Numbers
    """parameter gather of the fullest stage, before any overlap"""
    bubble_share: Numbers


def step_times(work: Work, machine: Machine, cluster: Cluster, sync: SyncChoice | None = None) -> Times:
    layout, stages = work.layout, work.stages
    units = _units(work, machine)
    counts = [*stages.kinds, stages.first, stages.last]
    stage, transfer = _weighted(units, counts), _transfer(work, machine)
    rows = np.arange(len(stage))
    idle, exposed = _idle(work), _exposed(work, machine)
    waits = _waits(work, exposed * transfer)
    _, slowest = largest(stage + waits)
    longest = stage[rows, slowest]
    held = [count[rows, slowest] for count in counts]
    parts, hidden = _steady(work, units, held)
    everything = sum(
        (u.total * n for u, n in zip(units, [*totals(work.model), 1.0, 1.0], strict=True)), start=0.0 * longest
    )
    parts["bubble"] = idle / np.maximum(layout.pp - 1.0, 1.0) * np.maximum(everything - longest, 0.0)
    parts["pp_comm"] = layout.micro_batches * waits[rows, slowest] + _around(work, transfer, exposed)
    forward = sum((n * u.forward for u, n in zip(units, held, strict=True)), start=0.0 * longest)
    reduce, gather = (sync_seconds if sync is None else inner_seconds)(work, machine)
    _overlapped_sync(work, machine, parts, hidden, (reduce, longest - forward), (gather, forward))
    parts["offload"] = _activation_offload(work, cluster, longest, held)
    parts["optimizer"] = optimizer_seconds(work, machine, cluster)
    parts["other"], together = 0.0 * longest, nodes_of(layout, cluster)
    if sync is not None:
        _strategy(sync, seconds_of(sync, work, machine), work, machine, parts, hidden, (longest, longest - forward))
        if not sync.strategy.waits():
            # jitter is what nodes lose that wait for each other: here those of one worker
            together = np.maximum(together / workers_of(layout).count, 1.0)
    busy = sum(parts.values(), start=0.0 * longest)
    parts["other"] = busy * machine.stack.network.jitter * np.log2(together) + machine.stack.host.step_overhead_s
    step = busy + parts["other"]
    return Times(
        step_s=step, parts=parts, hidden=hidden, stage_s=stage, slowest=slowest, units=tuple(units),
        transfer_s=transfer, reduce_s=reduce, gather_s=gather, bubble_share=parts["bubble"] / step,
    )  # fmt: skip


def work_alone(times: Times) -> Numbers:
    """The step without what is done once for it (synchronisation, optimizer) and without gathered parameters: of a
    policy that neither recomputes nor offloads, what no setting can undercut."""
    busy = times.step_s - times.parts["other"]
    once = sum((times.parts[name] for name in SETTLED), start=0.0 * busy)
    overhead = times.parts["other"] * (1.0 - once / busy)
    return np.asarray(busy - once + np.minimum(overhead, times.parts["other"]))


def waiting_step(times: Times, slowest: float) -> Numbers:
    """A step in which all wait for a worker whose compute takes `slowest` times as long."""
    exchanged = times.parts["grad_comm"] + times.parts["param_comm"] + times.parts["other"]
    return np.asarray(times.step_s + (slowest - 1.0) * (times.step_s - exchanged))


def _units(work: Work, machine: Machine) -> list[Unit]:
    """Every kind of layer, then the embedding and the head."""
    gathers, once = ShardGathers(work, machine), machine.of_runs(work.runs)

    def seconds(part: LayerWork, operations: float) -> LayerSeconds:
        return layer_seconds(part, work.frames, once, operations).spread(work.runs)

    ends = machine.stack.host.ops_per_end
    layers = [seconds(kind, machine.stack.host.ops_per_layer * kind.ops_share) for kind in work.kinds]
    kinds = [layer_unit(s, c, work, machine, gathers) for s, c in zip(layers, work.counts.kinds, strict=True)]
    embedding = end_unit(seconds(work.embedding, ends), work.counts.embedding, work, machine, gathers)
    head = end_unit(seconds(work.head, ends), work.counts.head_alone, work, machine, gathers)
    if work.mtp is not None:
        project = end_unit(seconds(work.mtp, 1.0), NOTHING, work, machine, gathers)
        head = with_mtp(head, [kinds[kind] for kind in work.model.mtp_kinds], project, work.model.mtp_layers)
    return [*kinds, embedding, head]


def _weighted(units: list[Unit], counts: list[Grid]) -> Grid:
    """Seconds of one micro-batch on each evaluated stage."""
    return sum(
        (count * unit.total[:, None] for unit, count in zip(units, counts, strict=True)),
        start=np.zeros_like(counts[-1]),
    )


def _steady(work: Work, units: list[Unit], held: list[Numbers]) -> tuple[Parts, Parts]:
    """All micro-batches on the slowest stage, by part."""
    micro = work.layout.micro_batches
    parts: Parts = {name: np.zeros_like(micro) for name in PARTS}
    hidden: Parts = {}
    for unit, count in zip(units, held, strict=True):
        times = micro * count
        for name, value in unit.parts.items():
            parts[name] = parts[name] + times * value
        for name, value in unit.hidden.items():
            hidden[name] = times * value + hidden[name] if name in hidden else times * value
    return parts, hidden


def _transfer(work: Work, machine: Machine) -> Numbers:
    """One activation (or its gradient) from a stage to the next; nothing without stages."""
    layout = work.layout
    message = transfer_bytes(work)
    stride = machine.strides["pp"]
    send = machine.over("send", message, np.minimum(layout.pp, 2.0), stride)
    return np.where(layout.pp > 1, send + transfer_wait_s(machine), 0.0)


def transfer_wait_s(machine: Machine) -> Numbers:
    """What a transfer to another node takes besides its bytes."""
    return np.where(machine.leaves_node("pp"), machine.stack.network.transfer_overhead_s, 0.0)


def _waits(work: Work, each: Numbers) -> Grid:
    """Seconds each evaluated stage stands still in one micro-batch for what it sends: output and gradient, at an end of
    the pipeline only one of them. Chunks close the ranks to a ring without ends."""
    layout, stages = work.layout, work.stages
    ends = (stages.first + stages.last) * (layout.vpp == 1)[:, None]
    return np.asarray((layout.vpp * each)[:, None] * (2.0 - ends))


def _around(work: Work, transfer: Numbers, exposed: Numbers) -> Numbers:
    """Transfers while the pipeline fills and drains. Each round of pp micro-batches comes back to the first stage just
    as it is done with them, so every further chunk waits for a whole turn of transfers even where they are overlapped.
    """
    layout = work.layout
    turns = (1.0 - exposed) * (layout.vpp - 1.0) * layout.pp
    return 2.0 * transfer * (layout.pp - 1.0 + turns)


def _exposed(work: Work, machine: Machine) -> Numbers:
    """Share of a transfer that its sender waits for: all of it where the schedule leaves no slack."""
    codes = work.layout.policies.schedule
    tight = np.zeros(len(codes), dtype=np.bool_)
    for code, schedule in used(codes):
        tight |= schedule.tight & (codes == code)
    return np.where((work.layout.policies.overlap_pp > 0) & ~tight, 1.0 - machine.stack.overlap.hidden_share, 1.0)


def _idle(work: Work) -> Numbers:
    """Around the steady phase: how many other stages a micro-batch passes while this one waits."""
    layout, codes = work.layout, work.layout.policies.schedule
    idle = np.zeros_like(layout.tp)
    for code, schedule in used(codes):
        found = schedule.idle(layout.pp, layout.vpp, layout.micro_batches)
        idle = np.where(codes == code, found, idle)
    return np.where(layout.pp > 1, idle, 0.0)


def _overlapped_sync(
    work: Work,
    machine: Machine,
    parts: Parts,
    hidden: Parts,
    reduce: tuple[Numbers, Numbers],
    gather: tuple[Numbers, Numbers],
) -> None:
    """Gradients are reduced under the last backward, parameters gathered under the next forward.

    `reduce` and `gather` are each (seconds needed, seconds of compute they may run under). A chunk of an interleaved
    stage hides its share under its own compute; the other chunks' run while the pipeline works on what is between.
    """
    layout, policies, stack = work.layout, work.layout.policies, machine.stack
    backwards = np.where(policies.zero == 2, layout.micro_batches, 1.0)
    own = 1.0 / layout.vpp
    for name, (seconds, window), overlap in (
        ("grad", (reduce[0], reduce[1] * backwards), policies.overlap_grad),
        ("param", gather, policies.overlap_param),
    ):
        alone, beside = np.minimum(seconds, window), np.minimum(seconds, window * layout.pp)
        under = np.where(overlap > 0, stack.overlap.hidden_share * (own * alone + (1.0 - own) * beside), 0.0)
        parts[f"{name}_comm"] = seconds - under + stack.overlap.overlap_slowdown * under
        hidden[name] = under


def _strategy(
    sync: SyncChoice, needed: Seconds, work: Work, machine: Machine, parts: Parts, hidden: Parts,
    windows: tuple[Numbers, Numbers],
) -> None:  # fmt: skip
    """Adds `sync_comm` and `sync_work`; compressing is never hidden. `windows`: a micro-batch, its backward pass. Where
    nobody waits, `sync_uneven` is what slow workers leave undone."""
    under, stack, policies = sync.strategy.hides_under(), machine.stack, work.layout.policies
    parts["sync_work"] = needed.work
    if not sync.strategy.waits():
        compute = sum(parts.values(), start=0.0 * needed.work)
        step, alone = step_beside(sync, work, compute, needed.own)
        parts["sync_uneven"], parts["sync_comm"] = alone - compute, step - alone
        hidden["sync"] = np.maximum(needed.messages - parts["sync_comm"], 0.0)
        return
    room = np.zeros_like(needed.messages)
    if under == "backward":
        room = np.where(policies.overlap_grad > 0, np.maximum(windows[1] - hidden["grad"], 0.0), 0.0)
    elif under == "step":
        room = windows[0] * work.layout.micro_batches
    hidden["sync"] = stack.overlap.hidden_share * np.minimum(needed.messages, room)
    parts["sync_comm"] = needed.messages - (1.0 - stack.overlap.overlap_slowdown) * hidden["sync"]


def _activation_offload(work: Work, cluster: Cluster, longest: Numbers, held: list[Numbers]) -> Numbers:
    """Activations that go to the host and come back, as far as that is slower than the micro-batch's compute."""
    away = work.layout.policies.offload >= 2
    if not away.any():
        return np.zeros_like(longest)
    each = [work.runs.spread(layer.saved_bytes()[0]) for layer in work.kinds]
    kept = sum((n * saved for saved, n in zip(each, held, strict=False)), start=0.0 * longest)
    exposed = np.maximum(2.0 * kept / copy_rate(cluster) - longest, 0.0)
    # while the pipeline fills and drains, the other stages wait for their copies too
    return np.where(away, (work.layout.micro_batches + _idle(work)) * exposed, 0.0)
