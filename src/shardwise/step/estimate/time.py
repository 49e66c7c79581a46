"""Step time in closed form: the slowest stage, the idle time around it, and what communication leaves exposed."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardwise.arrays import Ints
from shardwise.cost.hops import Hops
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import SHARES
from shardwise.step.estimate.cards import sent_seconds, slow_boundaries
from shardwise.step.estimate.exposure import (
    Parts,
    ShardGathers,
    Unit,
    end_unit,
    fully_repeated,
    layer_unit,
    recompute_share,
    with_mtp,
)
from shardwise.step.estimate.layers import LayerSeconds, layer_seconds
from shardwise.step.estimate.losses import lost_share
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.memory import saved_and_left
from shardwise.step.estimate.once import (
    SyncRates,
    copy_rate,
    exchanged_seconds,
    inner_rates,
    shared_seconds,
    sync_rates,
)
from shardwise.step.estimate.once_each import PACED, REPEATED, SHARDED, UPDATED, OnceEach, finer, of_frames, of_policies
from shardwise.step.estimate.pipeline import Pipeline, pipeline_of
from shardwise.step.estimate.pipeline.laws import gathered_before_chunks
from shardwise.step.estimate.pipeline.micro_batch import (
    GatherTimes,
    MicroBatch,
    Reductions,
    Transfers,
    micro_batch_of,
    piles_up,
    stage_counts,
)
from shardwise.step.estimate.stage_groups import StagePaces, all_alike, stage_paces
from shardwise.step.estimate.synced import SyncChoice
from shardwise.step.estimate.synced.price import Seconds, seconds_of, step_beside, workers_of
from shardwise.step.estimate.transfers import (
    busiest_seconds,
    gradients_meet_outputs,
    sent_at_once,
    transfer_hops,
    transfer_seconds,
)
from shardwise.step.estimate.update import update_seconds
from shardwise.work import Work
from shardwise.work.layout import Numbers, passing
from shardwise.work.ops import LayerWork
from shardwise.work.parameter_messages import reduced_each
from shardwise.work.parameters import NOTHING, Counts
from shardwise.work.runs import Runs
from shardwise.work.stages import Grid, largest

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
    micro_batch: MicroBatch = field(repr=False)
    transfer_s: Numbers
    """one activation or gradient from a stage to the next, over the slowest boundary"""
    stopped_share: Numbers
    """of it: what the sender waits for"""
    reduce_s: Numbers
    """gradient reduction of the fullest stage, before any overlap"""
    gather_s: Numbers
    """parameter gather of the fullest stage, before any overlap"""
    bubble_share: Numbers
    carried_s: Numbers
    """what the busiest card needs for all that its stage sends in a step: no pipeline is over before"""
    sent_s: Numbers
    """the same with gradients and parameters: they are not reduced before"""

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """One layer of each kind, the embedding and the head, in one micro-batch: what a timeline is built from."""
        return tuple(unit.spread(self.micro_batch.runs) for unit in self.micro_batch.units)


def step_times(
    work: Work, machine: Machine, cluster: Cluster, sync: SyncChoice | None = None, *, for_floors: bool = False
) -> Times:
    """`for_floors`: for `work_alone`, which leaves out what replicas send: no stage has a pace of its own."""
    layout, frames = work.layout, of_frames(work, machine)
    sharded = finer(frames, work, machine, SHARDED)
    rates, paces, reduce, gather = _between_replicas(sharded, strategy=sync is not None, alike=for_floors)
    wire = transfer_hops(frames.work, frames.machine)
    transfers, wire = _transfers(work, frames, wire), wire if work.runs.of is None else wire.take(work.runs.of)
    synced = _reductions(work, machine, rates, paces), _gathers(work, machine, rates)
    # ZeRO 2 and 3 work in every micro-batch: there hardly two policies pace alike
    in_each = bool((layout.policies.zero > 1).any())
    paced = of_policies(work, machine) if in_each else finer(frames, work, machine, PACED)
    gathers = ShardGathers(sharded) if in_each else None
    few = _micro_batch(paced, frames, gathers, transfers, synced, reduce, cluster)
    given, column = few.spread(paced.runs, work, *synced), largest(few.stage.load)[1]
    pipeline = pipeline_of(given, few, column)
    parts, hidden = _steady(few, column, paced.runs)
    stage, rows, micro = given.stage, np.arange(len(reduce)), layout.micro_batches
    slowest = column if paced.runs.of is None else column[paced.runs.of]
    longest = stage.total[rows, slowest]
    parts["pp_comm"] = micro * stage.sends[rows, slowest]
    parts["offload"] = micro * stage.copies[rows, slowest]
    _overlapped_sync(given, machine, parts, hidden, pipeline, (reduce, gather))
    # what the busiest rank does besides is to reduce the gradients of each micro-batch; else it waits for others
    worked = micro * longest + parts["pp_comm"] + parts["offload"]
    each = np.where(reduced_each(work.layout, work.stack.network), np.maximum(pipeline.busiest - worked, 0.0), 0.0)
    # gathers before the pipeline and reductions behind it run while a busy card still carries what stages send
    around = parts["grad_comm"] + parts["param_comm"]
    parts["grad_comm"] = parts["grad_comm"] + each
    parts["bubble"] = np.maximum(pipeline.end - worked - each, 0.0)
    # a strategy replaces sums of gradients, not what an optimizer gathers
    behind = shared_seconds if sync is None else exchanged_seconds
    parts["grad_comm"] = parts["grad_comm"] + sharded.runs.rows(behind(sharded.work, sharded.machine))
    uneven = slow_boundaries(machine, wire, given)
    card = busiest_seconds(work, machine, wire, parts, hidden, longest)
    carried = np.where(uneven > 0.0, np.maximum(card, pipeline.end + uneven), card)
    parts["pp_comm"] = parts["pp_comm"] + np.maximum(carried - pipeline.end - around, 0.0)
    sent = sent_seconds(machine, parts, hidden, card, reduce[rows, slowest] + gather[rows, slowest])
    done = sum(parts.values(), start=0.0 * longest)
    parts["grad_comm"] = parts["grad_comm"] + np.maximum(sent - done, 0.0)
    updated = finer(sharded, work, machine, UPDATED)
    parts["optimizer"] = updated.runs.rows(update_seconds(updated.work, updated.machine, cluster))
    parts["other"], together = 0.0 * longest, layout.dp * layout.tp * layout.pp * layout.cp
    if sync is not None:
        _strategy(sync, seconds_of(sync, work, machine), work, machine, parts, hidden,
                  (longest, longest - given.forward_at(rows, slowest)))  # fmt: skip
        if not sync.strategy.waits():
            # only those of one worker wait for each other
            together = np.maximum(together / workers_of(layout).count, 1.0)
    busy = sum(parts.values(), start=0.0 * longest)
    parts["other"] = busy * lost_share(together, machine.stack) + machine.stack.host.step_overhead_s
    step = busy + parts["other"]
    return Times(
        step_s=step, parts=parts, hidden=hidden, stage_s=stage.total, slowest=slowest, micro_batch=given,
        transfer_s=given.transfers.seconds, stopped_share=given.transfers.exposed, reduce_s=largest(reduce)[0],
        gather_s=largest(gather)[0],
        bubble_share=parts["bubble"] / step, carried_s=carried, sent_s=sent,
    )  # fmt: skip


def _between_replicas(
    sharded: OnceEach, *, strategy: bool, alike: bool = False
) -> tuple[SyncRates, StagePaces, Grid, Grid]:
    """Rates and paces of what replicas send each other, and seconds on each evaluated stage to reduce and to gather. A
    strategy has messages of its own."""
    work, machine, runs = sharded.work, sharded.machine, sharded.runs
    rates = (inner_rates if strategy else sync_rates)(work, machine)
    paces = all_alike(len(work.layout.pp)) if strategy or alike else stage_paces(work, machine)
    reduce, gather = rates.on(paces.on(work.parameters, work.stages.index))
    return rates.spread(runs), paces.spread(runs), runs.rows(reduce), runs.rows(gather)


def _micro_batch(
    paced: OnceEach, frames: OnceEach, gathers: ShardGathers | None, transfers: Transfers,
    synced: tuple[Reductions, GatherTimes], reduce: Grid, cluster: Cluster,
) -> MicroBatch:  # fmt: skip
    """Of one policy of each run; what replicas and stages send is told for all policies."""
    work, machine = paced.work, paced.machine
    # what is done with gradients in a micro-batch hangs on the stage of ZeRO
    handled = machine.stack.kernels.grad_accumulation_bytes or machine.stack.network.bucket_copy_bytes
    fields = (*REPEATED, "zero", "shard_group") if handled else REPEATED
    repeated = finer(OnceEach(frames.work, frames.machine, work.runs), work, machine, fields)
    units = _units(work, frames.machine, repeated, gathers)
    first: Ints | slice = slice(None) if paced.runs.of is None else paced.runs.first
    own = synced[0].take(first), synced[1].take(first)
    return micro_batch_of(work, units, transfers.take(first), own, reduce[first], _copy_seconds(work, cluster))


def _transfers(work: Work, frames: OnceEach, wire: Hops) -> Transfers:
    """`wire`: of the frames."""
    beside, rows = work.layout.policies.overlap_pp > 0, work.runs.rows
    exposed = np.where(beside, 1.0 - work.stack.overlap.hidden_share, 1.0)
    # a sender waits for messages that leave at the same moment together
    seconds, at_once = transfer_seconds(frames.work, frames.machine, wire), sent_at_once(frames.work, wire)
    return Transfers(rows(seconds), exposed / rows(at_once), rows(gradients_meet_outputs(frames.work, wire, at_once)))


def _reductions(work: Work, machine: Machine, rates: SyncRates, paces: StagePaces) -> Reductions:
    """Where ZeRO-2 reduces in each micro-batch, a sharded buffer must be free again before the next one adds to it."""
    policies, overlap = work.layout.policies, machine.stack.overlap
    each = reduced_each(work.layout, work.stack.network)
    share = np.where(each, 1.0 / passing(work.layout), 1.0)
    dense, expert = (rate * share for rate in rates.reduce)
    hidden = np.where(policies.overlap_grad > 0, overlap.hidden_share, 0.0)
    return Reductions((dense, expert), each, hidden, overlap.overlap_slowdown, paces)


def _gathers(work: Work, machine: Machine, rates: SyncRates) -> GatherTimes:
    under = machine.stack.overlap.hidden_share
    return GatherTimes(rates.gather, np.where(work.layout.policies.overlap_param > 0, under, 0.0))


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


def _units(work: Work, frames: Machine, repeated: OnceEach, gathers: ShardGathers | None) -> list[Unit]:
    """Every kind of layer, then the embedding and the head. `frames`: the machine of each frame; `repeated`: for runs
    of policies that recompute the same and overlap it with the same; `gathers`: ZeRO 3's, where there is some."""
    once, machine, counts = repeated.work, repeated.machine, work.counts
    policies, full, none = work.layout.policies, fully_repeated(work), np.zeros_like(work.layout.tp)

    def seconds(part: LayerWork, operations: float) -> LayerSeconds:
        return layer_seconds(part, work.frames, frames, operations).spread(once.runs)

    def complete(unit: Unit, part: LayerWork, its: Counts, repeats: Numbers) -> Unit:
        found = unit.spread(repeated.runs)
        if gathers is None:
            return found
        return gathers.added(found, its, repeats, policies, forward_only=part.forward_only)

    def end(part: LayerWork, its: Counts, operations: float, again: Numbers | float = 0.0) -> Unit:
        return complete(end_unit(seconds(part, operations), its, once, machine, again), part, its, none)

    host, kinds = machine.stack.host, []
    for part, its in zip(work.kinds, counts.kinds, strict=True):
        layer = layer_unit(seconds(part, host.ops_per_layer * part.ops_share), its, once, machine)
        kinds.append(complete(layer, part, its, none if part.forward_only else full))
    embedding = end(work.embedding, counts.embedding, host.ops_per_end)
    head = end(work.head, counts.head_alone, host.ops_per_end, once.runs.spread(work.head.repeated))
    if work.mtp is not None:
        project = end(work.mtp, NOTHING, 1.0)
        head = with_mtp(head, [kinds[kind] for kind in work.model.mtp_kinds], project, work.model.mtp_layers)
    return [*kinds, embedding, head]


def _steady(few: MicroBatch, slowest: Ints, runs: Runs) -> tuple[Parts, Parts]:
    """All micro-batches on the slowest stage, by part; `few`: one policy of each run."""
    micro, rows = few.work.layout.micro_batches, np.arange(len(slowest))
    exposed: Parts = {}
    hidden: Parts = {}
    for unit, count in zip(few.units, stage_counts(few.work), strict=True):
        times = micro * count[rows, slowest]
        for found, seconds in ((exposed, unit.parts), (hidden, unit.hidden)):
            for name, value in seconds.items():
                found[name] = times * value + found[name] if name in found else times * value
    none = np.zeros(len(rows) if runs.of is None else len(runs.of))
    parts = {name: runs.rows(exposed[name]) if name in exposed else none for name in PARTS}
    return parts, {name: runs.rows(seconds) for name, seconds in hidden.items()}


def _overlapped_sync(
    given: MicroBatch, machine: Machine, parts: Parts, hidden: Parts, pipeline: Pipeline, sync: tuple[Grid, Grid]
) -> None:
    """Gradients are reduced under the last backward, parameters gathered under the next forward; a stage that starts
    late or ends early has that time too, and the last to be done counts.

    A chunk of an interleaved stage hides its share under its own compute; the other chunks' run while the pipeline
    works on what is between: pp micro-batches, or all of them where they are more.
    """
    work, stack = given.work, machine.stack
    layout, policies = work.layout, work.layout.policies
    rows, own = np.arange(len(layout.pp)), 1.0 / layout.vpp[:, None]
    between = np.where(piles_up(work), np.maximum(layout.in_pass, layout.pp), layout.pp)[:, None]
    # the last backward goes up through all stages, each slowed by its own reduction beside it
    others = np.where(layout.vpp == 1, layout.pp - 1.0, 0.0)[:, None] - (layout.vpp == 1)[:, None] * work.stages.index
    chunked = np.flatnonzero((layout.vpp > 1) & (policies.overlap_param > 0) & np.isnan(pipeline.gathered))
    if len(chunked):
        pipeline.gathered[chunked] = gathered_before_chunks(given, sync[1], pipeline.starts, chunked)
    forward = given.forward(rows)
    for name, seconds, window, overlap, spare, followed, slowed in (
        ("grad", sync[0], given.last_back(forward), policies.overlap_grad > 0, pipeline.ends, pipeline.reduced, others),
        ("param", sync[1], forward, policies.overlap_param > 0, pipeline.starts, pipeline.gathered, 0.0),
    ):
        alone, beside = np.minimum(seconds, window), np.minimum(seconds, window * between)
        under = np.where(overlap[:, None], stack.overlap.hidden_share * (own * alone + (1.0 - own) * beside), 0.0)
        exposed = seconds - (1.0 - stack.overlap.overlap_slowdown * (1.0 + slowed)) * under - spare
        exposed, last = largest(exposed)
        found = np.where(np.isnan(followed), np.maximum(exposed, 0.0), followed)
        parts[f"{name}_comm"], hidden[name] = found, np.maximum(seconds[rows, last] - found, 0.0)
    parts["grad_comm"] = np.where(reduced_each(work.layout, work.stack.network), 0.0, parts["grad_comm"])


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


def _copy_seconds(work: Work, cluster: Cluster) -> list[Numbers]:
    """Activations of one layer of each kind in one micro-batch, to the host and back; nothing where none go there."""
    policies = work.layout.policies
    away = policies.offload >= 2
    if not away.any():
        return []
    again, share = recompute_share(work), policies.offload_share / SHARES
    each = [saved - again * (saved - left) for saved, left in (saved_and_left(work, kind) for kind in work.kinds)]
    return [np.where(away, 2.0 * share * kept / copy_rate(cluster), 0.0) for kept in each]
