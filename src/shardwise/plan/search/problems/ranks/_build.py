"""A rank placement from a model, a cluster and a policy: what each group sends, from the list of a step's messages."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from msgspec.structs import replace

from shardwise.arrays import Floats, Ints
from shardwise.cost.network import Network
from shardwise.cost.placement import level_members
from shardwise.fabric.calls import STAGE_PAIRS, PlacedMessage, calls_of
from shardwise.plan.search.problems.ranks._problem import GroupTraffic, RankProblem
from shardwise.plugins.collectives import collective
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import machine_for
from shardwise.step.estimate.dispatch import once_share
from shardwise.step.estimate.machine import Machine
from shardwise.work import Work, work_of
from shardwise.work.case import Case

ALGORITHM = {"all_to_all": "pairwise", "send": "send"}
"""everything else runs as a ring"""
MOST_NODES = 4096
"""a table of every pair takes 128 MiB, and a step has several"""
PIPELINE = "pp send"
PATTERN = {"ring": "ring", "pairwise": "pairs", "send": "pass"}


def rank_problem(
    case: Case, policy: Policy, *, free: Sequence[int] = (), slow: Sequence[int] = (), slow_speed: float = 0.5
) -> RankProblem:
    """`free`: numbers of the nodes the job may use (default: the first ones, as many as it needs); `slow`: those whose
    cards reach only `slow_speed` of what the cluster states."""
    cluster = case.cluster
    _check(cluster, policy, slow_speed)
    size = cluster.levels[0].degree
    nodes = policy.gpus // size
    held = list(free) or list(range(nodes))
    most = prod(level.degree for level in cluster.levels[1:])
    if len(held) < nodes or len(set(held)) < len(held) or not all(0 <= node < most for node in [*held, *slow]):
        raise ValueError(f"nodes: {len(set(held))} different ones for a policy of {nodes} nodes; write at least that "
                         f"many, each from 0 to {most - 1}")  # fmt: skip
    speeds = np.where(np.isin(held, list(slow)), slow_speed, 1.0)
    return _placed(cluster, _step_traffic(case, policy), held, speeds, nodes)


def rank_problem_at(case: Case, policy: Policy, blocks: Ints, names: Sequence[str]) -> RankProblem:
    """On a site's own nodes. `blocks`: levels of the cluster's switches but the topmost x free nodes: which block holds
    each; `names`: of the blocks of the lowest level."""
    _check(case.cluster, policy, 1.0)
    size = case.cluster.levels[0].degree
    nodes, free = policy.gpus // size, blocks.shape[1]
    if free < nodes or free > MOST_NODES:
        raise ValueError(f"free: {free:,} nodes for a policy of {nodes:,}; write {nodes:,} to {MOST_NODES:,}")
    used, first, room = np.unique(blocks[0], return_index=True, return_counts=True)
    return RankProblem(
        nodes=nodes, node_gpus=size, room=tuple(room.tolist()),
        blocks=np.stack([np.unique(row[first], return_inverse=True)[1] for row in blocks]), speed=np.ones(len(used)),
        box_names=tuple(names[box] for box in used), traffic=tuple(_step_traffic(case, policy)),
    )  # fmt: skip


def _step_traffic(case: Case, policy: Policy) -> list[GroupTraffic]:
    columns, size = Policies.of([policy]), case.cluster.levels[0].degree
    machine, work = machine_for(case, columns), work_of(case, columns, every_stage=True)
    traffic = [
        found for call in _calls(work, machine)
        if (found := _traffic(call, machine.network, policy.gpus, size)) is not None
    ]  # fmt: skip
    if not traffic:
        raise ValueError("policy: nothing it sends leaves a node; write larger dp, pp or ep")
    return traffic


def _check(cluster: Cluster, policy: Policy, slow_speed: float) -> None:
    size = cluster.levels[0].degree
    if len(cluster.levels) < 3:
        raise ValueError(f"on: {cluster.name} has all its nodes under one switch, so every place is as good; "
                         "write a larger one, such as dgx-h100:1024, or a YAML file with leaf and spine")  # fmt: skip
    if policy.gpus % size:
        raise ValueError(f"policy: its {policy.gpus} GPUs are not whole nodes of {size}; write other degrees")
    if policy.gpus // size > MOST_NODES:
        raise ValueError(f"policy: its {policy.gpus // size:,} nodes are too many for tables of every pair of them; "
                         f"write one of at most {MOST_NODES:,}")  # fmt: skip
    if policy.zero == 3 or policy.shard_group:
        raise ValueError("zero: parameters gathered inside the layers, or sharded over part of the ranks, are not "
                         "placed; write 0, 1 or 2 and no shard group")  # fmt: skip
    if not 0 < slow_speed <= 1:
        raise ValueError(f"slow-speed: {slow_speed:g} is out of range; write a share above 0 and at most 1")


def _calls(work: Work, machine: Machine) -> Iterator[PlacedMessage]:
    """A step's messages before any overlap, of each kind those of the stage that sends most of it, alike ones together.
    Pairs of stages that add up what both hold send next to nothing."""
    by_stage: dict[str, dict[tuple[int, int], dict[tuple[int, int, float], PlacedMessage]]] = {}
    for call in calls_of(work):
        if call.group in STAGE_PAIRS:
            continue
        ranks, stride = call.ranks, call.stride
        if call.target >= 0:
            ranks, stride = int(work.layout.pp[0]), int(machine.strides["pp"][0])
        name, sent = f"{call.group} {call.op}", call.bytes * call.skew * _spared(call, machine)
        own = by_stage.setdefault(name, {}).setdefault((call.stage, call.target), {})
        before = own.get((ranks, stride, sent))
        own[ranks, stride, sent] = replace(
            call,
            name=name,
            ranks=ranks,
            stride=stride,
            bytes=sent,
            count=call.count + (before.count if before else 0.0),
        )
    for name, stages in by_stage.items():
        most = max(stages.values(), key=lambda own: sum(each.bytes * each.count for each in own.values()))
        # a boundary of stages is passed as often one way as the other
        ways = 2.0 if name == PIPELINE else 1.0
        yield from (replace(each, count=ways * each.count) for each in most.values())


def _spared(call: PlacedMessage, machine: Machine) -> float:
    """Of an exchange of tokens: what is left without the copies that the program spares."""
    if call.copies <= 1.0 or machine.stack.experts.dispatch == "copies":
        return 1.0
    size, stride = np.array([call.ranks]), np.array([call.stride])
    return float(once_share(machine.network.cluster, size, stride, call, machine.stack.experts.routing)[0])


def _traffic(call: PlacedMessage, network: Network, gpus: int, node: int) -> GroupTraffic | None:
    """The call on nodes; nothing where its groups stay on theirs."""
    if call.ranks * call.stride <= node or call.ranks < 2:
        return None
    groups, alike, members = _groups(call, gpus, node)
    found = collective(ALGORITHM.get(call.op, "ring"))
    shape = level_members(network.cluster, np.array(call.ranks), np.array(call.stride))
    load = found.load(call.op, shape)
    pattern = PATTERN[found.name]
    lowest = int(np.argmax(shape.crossed[1:])) + 1
    sent = float(load.volume[lowest] * shape.below[lowest])
    # within pairs every rank of one node sends to every rank of the other
    weights = {"pairs": members**2 / call.ranks, "ring": sent, "pass": 0.5 if call.name == PIPELINE else 1.0}
    rate = network.links.of(network.cluster, network.cluster.levels[0]).copy_bytes_per_s
    crowding = max(members / network.links.cards_per_group, 1.0) if found.pooled else 1.0
    steps = {"ring": float(load.steps.sum()) / (call.ranks - 1.0), "pairs": 1.0, "pass": 1.0}
    return GroupTraffic(
        name=call.name, pattern=pattern, groups=groups, edges=_edges(groups, pattern, call),
        weight=weights[pattern] * alike,
        bytes=call.bytes, count=call.count, node_members=members, step_factor=steps[pattern],
        inside_steps=0.0 if pattern == "pass" else float(load.steps[0]),
        inside_volume=0.0 if pattern == "pass" else float(load.volume[0]),
        copy_s=float(load.own * call.bytes / rate) if rate else 0.0, crowding=crowding,
        protocols=tuple(network.protocols(found)),
    )  # fmt: skip


def _groups(call: PlacedMessage, gpus: int, node: int) -> tuple[Ints, float, float]:
    """(groups x nodes, groups of ranks that are one group of nodes, ranks of a group on one node)."""
    block = call.ranks * call.stride
    if gpus % block or (node % call.stride and call.stride % node):
        raise ValueError(f"policy: the groups of {call.name} do not lie evenly on nodes of {node}; write other degrees")
    ranks = np.arange(gpus).reshape(-1, call.ranks, call.stride).swapaxes(1, 2).reshape(-1, call.ranks)
    members = max(node // call.stride, 1)
    if call.ranks % members:
        raise ValueError(f"policy: {call.ranks} ranks of {call.name} do not fill whole nodes of {node}; "
                         "write other degrees")  # fmt: skip
    groups, alike = np.unique(ranks[:, ::members] // node, axis=0, return_counts=True)
    return groups, float(alike[0]), float(members)


def _edges(groups: Ints, pattern: str, call: PlacedMessage) -> Ints:
    if pattern == "pairs":
        length = groups.shape[1]
        one, other = np.nonzero(~np.eye(length, dtype=np.bool_))
        return np.stack([groups[:, one].ravel(), groups[:, other].ravel()])
    ahead = np.stack([groups[:, :-1].ravel(), groups[:, 1:].ravel()])
    closing = np.stack([groups[:, -1], groups[:, 0]])
    if call.name == PIPELINE:
        # activations one way, gradients the other: each edge half of the time
        return np.concatenate([ahead, ahead[::-1]], axis=1)
    return np.concatenate([ahead, closing], axis=1)


def _placed(
    cluster: Cluster, traffic: Sequence[GroupTraffic], held: Sequence[int], speeds: Floats, nodes: int
) -> RankProblem:
    """Free nodes under one leaf with one speed are one box."""
    degrees = [level.degree for level in cluster.levels[1:]]
    leaf = np.array(held) // degrees[0]
    keys = sorted(set(zip(leaf.tolist(), speeds.tolist(), strict=True)), key=lambda key: (key[0], -key[1]))
    room = [int(((leaf == where) & (speeds == speed)).sum()) for where, speed in keys]
    blocks, size = [], 1
    leaves = np.array([where for where, _ in keys])
    for degree in [1, *degrees[1:-1]]:
        size *= degree
        blocks.append(np.unique(leaves // size, return_inverse=True)[1])
    names = tuple(
        f"{cluster.levels[1].name} {where}" + ("" if speed == 1 else f" at {speed:g}") for where, speed in keys
    )
    return RankProblem(
        nodes=nodes, node_gpus=cluster.levels[0].degree, room=tuple(room), blocks=np.array(blocks),
        speed=np.array([speed for _, speed in keys]), box_names=names, traffic=tuple(traffic),
    )  # fmt: skip
