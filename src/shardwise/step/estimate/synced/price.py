"""A strategy on the data-parallel axis of many policies: seconds of its messages and of compressing, bytes it holds.

Without ZeRO a worker is one replica of the model, its context-parallel ranks summed up first. With ZeRO a worker is one
shard group; each of its ranks takes its own share of the row across the groups.

What knows strategies is imported where one is priced: every estimate imports this file, few have a strategy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.cost.gpu import memory_seconds
from shardwise.cost.placement import Placement
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.synced.choice import SyncChoice
from shardwise.step.estimate.synced.rules import workers_refusal
from shardwise.work import Work
from shardwise.work.layout import Layout, Numbers
from shardwise.work.stages import Grid, largest

if TYPE_CHECKING:
    from shardwise.step.estimate.synced.traffic import StrategyTraffic


@dataclass(frozen=True)
class Workers:
    """Who takes part in the strategy: one column per policy."""

    count: Ints
    stride: Ints
    share: Numbers
    """of the parameters of a rank that it sends itself"""


@dataclass(frozen=True)
class Seconds:
    messages: Numbers
    """where nobody waits: of the server's busier direction"""
    work: Numbers
    """compressing, decompressing and keeping state: not hidden by anything"""
    own: Numbers
    """where nobody waits: one worker's message to the server or back; else 0"""

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.messages + other.messages, self.work + other.work, self.own + other.own)


def workers_of(layout: Layout, *, expert: bool = False) -> Workers:
    policies, placement = layout.policies, Placement()
    strides = placement.strides(policies)
    sharded = policies.zero > 0
    count = np.where(sharded, np.rint(layout.grad_ranks / layout.shard), policies.dp)
    stride = np.where(sharded, strides["dp_cp"] * layout.shard, strides["dp"])
    if expert:
        # experts that are spread over replicas have groups of their own
        apart = policies.ep > 1
        count = np.where(apart, placement.sizes(policies)["edp"], count)
        stride = np.where(apart, strides["edp"], stride)
    share = np.where(sharded, 1.0 / layout.shard, 1.0)
    return Workers(count.astype(np.int64), stride.astype(np.int64), share)


def seconds_of(choice: SyncChoice, work: Work, machine: Machine) -> Seconds:
    """Of one step, on the stage with the most parameters."""
    total = Seconds(*np.zeros((3, len(work.layout.tp))))
    for grid, expert in zip(work.parameters, (False, True), strict=True):
        held = largest(grid)[0]
        if held.any():
            who = workers_of(work.layout, expert=expert)
            total += _seconds(choice, work, machine, who, held * who.share)
    return total


def _seconds(choice: SyncChoice, work: Work, machine: Machine, who: Workers, row: Numbers) -> Seconds:
    from shardwise.plugins.sync._cost import message_seconds, priced
    from shardwise.step.estimate.synced.compress import decode_slower, encode_bytes, factor_bytes

    messages, own, moved, kernels = np.zeros((4, len(row)))
    for rows, traffic in _alike(choice, work, who):
        mine, waits = row[rows], choice.strategy.waits()
        for event, bytes_, times in traffic.exchanges:
            stride = event.stride * who.stride[rows]
            if waits or event.op != "pull":
                messages[rows] += times * np.asarray(priced(machine.network, event, bytes_ * mine, stride, None))
            if not waits:
                each = message_seconds(machine.network, event, bytes_ * mine, stride)
                own[rows] = np.maximum(own[rows], each)
        touched = traffic.decoded * decode_slower() + 2.0 * traffic.state * traffic.busy
        touched += sum(number * encode_bytes(name, choice.strategy) for name, number in traffic.encoded)
        moved[rows] = mine * (touched + factor_bytes(choice.strategy) * traffic.busy)
        kernels[rows] = traffic.busy * (1.0 + len(traffic.encoded))
    busy = np.asarray(memory_seconds(machine.curve, moved, kernels=kernels))
    return Seconds(messages, np.where(moved > 0, busy, 0.0), own)


def step_beside(choice: SyncChoice, work: Work, compute: Numbers, own: Numbers) -> tuple[Numbers, Numbers]:
    """Where nobody waits: (seconds of a step, of them compute). Slow workers make both longer."""
    from shardwise.plugins.sync._asynchronous import compute_seconds, step_seconds

    who, step, alone = workers_of(work.layout).count, compute.copy(), compute.copy()
    for count in np.unique(who):
        cycles = None if workers_refusal(choice, int(count)) else choice.strategy.cycles(int(count))
        if cycles is not None:
            rows = who == count
            step[rows] = step_seconds(cycles, compute[rows], own[rows])
            alone[rows] = compute_seconds(cycles, compute[rows])
    return step, alone


def state_bytes(choice: SyncChoice, work: Work) -> Grid:
    """Held beyond everything else by one rank of each stage."""
    total = np.zeros_like(work.stages.index)
    for grid, expert in zip(work.parameters, (False, True), strict=True):
        who, per = workers_of(work.layout, expert=expert), np.zeros_like(work.layout.tp)
        for rows, traffic in _alike(choice, work, who):
            per[rows] = traffic.state
        total = total + grid * (per * who.share)[:, None]
    return total


def sent_bytes(choice: SyncChoice, work: Work) -> Numbers:
    """By one rank of the fullest stage in a step, averaged over the strategy's period."""
    total = np.zeros_like(work.layout.tp)
    for grid, expert in zip(work.parameters, (False, True), strict=True):
        who, held = workers_of(work.layout, expert=expert), largest(grid)[0]
        for rows, traffic in _alike(choice, work, who):
            total[rows] += held[rows] * who.share[rows] * traffic.sent
    return total


def _alike(choice: SyncChoice, work: Work, who: Workers) -> Iterator[tuple[NDArray[np.int64], "StrategyTraffic"]]:
    """Policies whose workers send alike, with what they send. Where there is nobody to send to, nothing is."""
    from shardwise.step.estimate.synced.traffic import traffic_of

    tp = work.layout.policies.tp if choice.strategy.needs_whole else np.ones_like(who.count)
    keys = np.stack([who.count, tp], axis=1)
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    for number, (count, cut) in enumerate(distinct):
        if not workers_refusal(choice, int(count)):
            rows = np.flatnonzero(place.reshape(-1) == number)
            yield rows, traffic_of(choice.strategy, int(count), work.model, int(cut))
