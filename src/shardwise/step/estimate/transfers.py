"""What pipeline stages hand to each other, in seconds: each boundary at its own pace, and what one card can carry."""

from functools import cache

import numpy as np

from shardwise.cost.hops import Hops, hops_of
from shardwise.plugins.schedules import schedules, used
from shardwise.step.estimate.exposure import Parts
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.pipeline.micro_batch import piles_up
from shardwise.work import Work
from shardwise.work.layout import Numbers

LEAVING = (("tp", "tp"), ("cp", "cp"), ("ep", "ep"), ("fsdp", "dp_cp"))
"""part of the time, group of ranks that sends it"""


def transfer_hops(work: Work, machine: Machine) -> Hops:
    """One activation (or its gradient) from a stage to the next, alone on the links, over the boundaries that there
    are: some stages share a node with their neighbour and others do not. Nothing without stages."""
    return hops_of(machine.network, work.handover.bytes, work.layout.pp, machine.strides["pp"])


def transfer_seconds(work: Work, machine: Machine, wire: Hops) -> Numbers:
    """The same for a pipeline whose boundaries were all alike. A micro-batch is back at a stage after as many others as
    there are boundaries behind it, and most of these are slow where the last block of stages begins: a round of the
    stages that are in one block and of the way to the next."""
    layout, wait = work.layout, transfer_wait_s(machine)
    chain = (layout.pp - 1.0) * wire.mean + wire.slowest
    outside = ((layout.pp - 1.0) * wire.outside + (wire.outside > 0.0)) / layout.pp
    return sent_at_once(work, wire) * chain / layout.pp + outside * wait


def transfer_wait_s(machine: Machine) -> Numbers:
    """What a transfer to another node takes besides its bytes."""
    return np.where(machine.leaves_node("pp"), machine.stack.network.transfer_overhead_s, 0.0)


def busiest_seconds(work: Work, machine: Machine, wire: Hops, parts: Parts, hidden: Parts, longest: Numbers) -> Numbers:
    """What the busiest card needs for all that its stage sends in a step. Outputs and gradients go over one card where
    both neighbours are on other nodes, and one after the other where all forwards come first; the stage's other
    messages (`parts` and `hidden`: of the slowest stage) have the card for themselves. Before the first of them there
    is something to compute, and behind the last; one more transfer brings work there or back, except over the only
    boundary of two stages, which has carried all outputs and all gradients by then. `longest`: a micro-batch on the
    slowest stage."""
    layout, piled = work.layout, piles_up(work)
    further = (layout.pp > 2.0) | (layout.vpp > 1.0)
    both = (wire.outside == 1.0) & further
    once = np.where(piled, 2.0 * wire.slowest, wire.slowest + both * wire.nearest)
    there = np.where(piled & ~further, 0.0, wire.slowest)
    total = layout.micro_batches * layout.vpp * once + there + longest / layout.vpp
    return np.where(wire.outside > 0.0, total + leaving_seconds(machine, parts, hidden), 0.0)


def leaving_seconds(machine: Machine, parts: Parts, hidden: Parts) -> Numbers:
    """What the layers of the slowest stage send to other nodes in a step, exposed or not."""
    # what compute slows by beside gathers is a part of their time and sends nothing
    alone = {"fsdp": 1.0 - machine.stack.overlap.slowed_share}
    sent = [
        np.where(machine.leaves_node(group), parts[f"{axis}_comm"] + alone.get(axis, 1.0) * hidden.get(axis, 0.0), 0.0)
        for axis, group in LEAVING
    ]
    return np.asarray(sum(sent[1:], start=sent[0]))


def sent_at_once(work: Work, wire: Hops) -> Numbers:
    """Messages that leave a stage at the same moment: a forward and a backward that run as one send both when they end,
    over the same boundary where micro-batches come from both sides, else over the same card if no neighbour is near."""
    codes, found = work.layout.policies.schedule, np.ones_like(work.layout.tp)
    for code, schedule in used(codes):
        if _joins(schedule.name):
            same_way = schedule.both_ends or schedule.chunks == "two"
            found = np.where((codes == code) & (same_way | (wire.outside == 1.0)), 2.0, found)
    return found


def gradients_meet_outputs(work: Work, wire: Hops, at_once: Numbers) -> Numbers:
    """1 where both leave by one card, and neither all before the other nor at the same moment."""
    further = (work.layout.pp > 2.0) | (work.layout.vpp > 1.0)
    return np.where((wire.outside == 1.0) & further & ~piles_up(work) & (at_once == 1.0), 1.0, 0.0)


@cache
def _joins(name: str) -> bool:
    """Does a schedule run some forwards and backwards as one."""
    schedule = schedules()[name]
    ranks = schedule.order(2, {"one": 1, "two": 2, "many": 2}[schedule.chunks], 8)
    return any(action.joined for rank in ranks for action in rank)
