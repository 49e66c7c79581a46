"""What network cards allow: no step is over before they have carried its messages, whatever hides under what."""

import numpy as np

from shardwise.cost.hops import Hops
from shardwise.step.estimate.exposure import Parts
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.pipeline.micro_batch import Transfers, piles_up
from shardwise.step.estimate.transfers import leaving_seconds, transfer_wait_s
from shardwise.work import Work
from shardwise.work.layout import Numbers


def slow_boundaries(work: Work, machine: Machine, wire: Hops, longest: Numbers, transfers: Transfers) -> Numbers:
    """What a pipeline whose forwards all come before its backwards takes longer because some of its boundaries are slow
    than if all were alike. It is a row of machines: the first micro-batch passes them all, the others follow at the
    pace of the slowest, a stage that waits for what it sends or a card; a chunk begins again when its stage has sent
    all micro-batches on, or the first is round. Nothing for other pipelines. `longest`: a micro-batch on the slowest
    stage."""
    layout, chunk = work.layout, longest / work.layout.vpp

    def seconds(transfer: Numbers) -> Numbers:
        pace = np.maximum(chunk + 2.0 * transfers.exposed * transfer, 2.0 * transfer)
        way = layout.pp * (chunk + 2.0 * transfers.seconds)
        rounds = np.maximum(layout.in_pass * pace, way)
        return np.asarray(layout.passes * ((layout.vpp - 1.0) * rounds + (layout.in_pass - 1.0) * pace))

    slowest = wire.slowest + (wire.outside > 0.0) * transfer_wait_s(machine)
    longer = seconds(np.maximum(slowest, transfers.seconds)) - seconds(transfers.seconds)
    return np.where(piles_up(work) & (layout.pp > 1.0), longer, 0.0)


def sent_seconds(machine: Machine, parts: Parts, hidden: Parts, card: Numbers, once: Numbers) -> Numbers:
    """All that a GPU of the slowest stage sends to other nodes in a step, one after another: what its `card` has to
    carry for the pipeline, and `once` its gradients and parameters. Nothing where ways above the cards are slower than
    they: there messages wait at different places."""
    cluster = machine.network.cluster
    if len(cluster.levels) < 2 or min(cluster.wires[1:]) < cluster.wires[1]:
        return np.zeros_like(once)
    layers = leaving_seconds(machine, parts, hidden)
    return np.where(machine.leaves_node("dp_cp"), np.maximum(layers, card) + once, 0.0)
