"""What network cards allow: no step is over before they have carried its messages, whatever hides under what."""

import numpy as np

from shardwise.cost.hops import Hops
from shardwise.step.estimate.exposure import Parts
from shardwise.step.estimate.machine import Machine
from shardwise.step.estimate.pipeline.laws import halves
from shardwise.step.estimate.pipeline.micro_batch import MicroBatch, piles_up
from shardwise.step.estimate.transfers import leaving_seconds, transfer_wait_s
from shardwise.work.layout import Numbers


def slow_boundaries(machine: Machine, wire: Hops, given: MicroBatch) -> Numbers:
    """What a pipeline whose forwards all come before its backwards takes longer because some of its boundaries are slow
    than if all were alike. It is a row of machines: the first micro-batch passes them all, the others follow at the
    pace of the slowest, a stage that waits for what it sends or a boundary; a chunk begins again when its stage has
    sent all micro-batches on, or the first is round. Nothing for other pipelines."""
    layout, transfers, longer = given.work.layout, given.transfers, np.zeros_like(given.transfers.seconds)
    rows = np.flatnonzero(piles_up(given.work) & (layout.pp > 1.0))
    if not len(rows):
        return longer
    pp, vpp, micro = (x[rows] for x in (layout.pp, layout.vpp, layout.in_pass))
    mean, late = transfers.seconds[rows], transfers.under_way[rows]
    slowest = np.maximum((wire.slowest + (wire.outside > 0.0) * transfer_wait_s(machine))[rows], mean)
    waits = (slowest - mean) * transfers.exposed[rows]
    for alike, each in zip(halves(given, rows), halves(given, rows, waits), strict=True):
        chunk, pace = alike / vpp, np.maximum(each / vpp, slowest)
        way = pp * (chunk + late)
        rounds = np.maximum(micro * pace, way) - np.maximum(micro * chunk, way)
        longer[rows] += layout.passes[rows] * ((vpp - 1.0) * rounds + (micro - 1.0) * (pace - chunk))
    return longer


def sent_seconds(machine: Machine, parts: Parts, hidden: Parts, card: Numbers, once: Numbers) -> Numbers:
    """All that a GPU of the slowest stage sends to other nodes in a step, one after another: what its `card` has to
    carry for the pipeline, and `once` its gradients and parameters. Nothing where ways above the cards are slower than
    they: there messages wait at different places."""
    cluster = machine.network.cluster
    if len(cluster.levels) < 2 or min(cluster.wires[1:]) < cluster.wires[1]:
        return np.zeros_like(once)
    layers = leaving_seconds(machine, parts, hidden)
    return np.where(machine.leaves_node("dp_cp"), np.maximum(layers, card) + once, 0.0)
