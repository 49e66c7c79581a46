"""Bytes an average GPU sends into each network level in one step, by the axis that sends them."""

from functools import cached_property

import numpy as np

from shardwise.arrays import Floats
from shardwise.cost.network import Network
from shardwise.cost.placement import Placement, level_members
from shardwise.fabric.calls import STAGE_PAIRS, PlacedMessage, calls_of
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.tree_build import tree_of
from shardwise.spec.policy import AXES, Policy
from shardwise.step.estimate.synced import SyncChoice
from shardwise.step.estimate.synced.price import workers_of
from shardwise.work import Work
from shardwise.work.case import Case
from shardwise.work.parameter_messages import worker_messages


def traffic_of(case: Case, work: Work, sync: SyncChoice | None = None) -> dict[str, dict[str, float]]:
    """axis -> level -> bytes, for the one policy `work` was made for (with every stage)."""
    network, levels = case.network, [level.name for level in case.cluster.levels]
    sent = {axis: np.zeros(len(levels)) for axis in AXES}
    levels_of = _Levels(network, work.layout.policies[0])
    for call in calls_of(work):
        if sync is None or not _replaced(call):
            sent[call.axis] += call.count * levels_of(call)
    if sync is not None:
        sent["dp"] += _of_strategy(sync, work, network)
    return {axis: dict(zip(levels, map(float, each), strict=True)) for axis, each in sent.items()}


class _Levels:
    """Bytes of one call into each level, of an average GPU of the job: in closed form where groups fill blocks evenly,
    else counted message by message, as between stages that share a node with one neighbour and not with the other."""

    def __init__(self, network: Network, policy: Policy) -> None:
        self.network, self.policy = network, policy
        self._known: dict[tuple[object, ...], Floats] = {}

    def __call__(self, call: PlacedMessage) -> Floats:
        cluster = self.network.cluster
        between = call.target >= 0 or call.group in STAGE_PAIRS
        even = level_members(cluster, call.ranks, call.stride).out is None and cluster.gpus % cluster.node_size == 0
        if even and not between and self._lies_alike(call):
            # the library's choice is made for the fullest rank; a call is of the GPUs of one stage
            sent = self.network.traffic(call.op, call.bytes * call.skew, call.ranks, call.stride)
            return np.asarray(sent / call.skew / self.policy.pp)
        name = self.prices.algorithm(call)
        key = (name, call.op, call.group, call.part, call.ranks, call.stage, call.target)
        if key not in self._known:
            messages = self.prices.messages(call, name)[0]
            if call.target < 0 and self.policy.pp > 1:
                messages = messages.of_stage(self.prices.seats.stage, call.stage)
            self._known[key] = messages.into_levels(cluster, self.prices.fabric.rail) / self.policy.gpus
        return self._known[key] * call.bytes

    def _lies_alike(self, call: PlacedMessage) -> bool:
        """Whether the groups of every stage begin where those of the first do. A ring that passes on from rail to rail
        goes through its nodes on the way, which only its messages tell."""
        policy, cluster = self.policy, self.network.cluster
        if call.op == "send" and any(level.rails > 1 for level in cluster.levels):
            return False
        if policy.pp == 1:
            return True
        if not policy.order.endswith("pp"):
            return call.group not in ("ep", "etp", "edp")
        stage = policy.gpus // policy.pp
        return stage % cluster.node_size == 0 or cluster.node_size % stage == 0

    @cached_property
    def prices(self) -> Prices:
        tree = tree_of(self.network.cluster)
        return Prices(tree, self.network, seats_of(self.policy, tree))


def _replaced(call: PlacedMessage) -> bool:
    """What a strategy does instead: the all-reduce between replicas."""
    return call.axis == "dp" and call.op == "all_reduce"


def _of_strategy(sync: SyncChoice, work: Work, network: Network) -> Floats:
    """Of an average GPU: its strategy's messages, and first the sum over the context-parallel ranks of a worker."""
    from shardwise.step.estimate.synced.traffic import traffic_of as strategy_traffic

    total = np.zeros(len(network.cluster.levels))
    policies = work.layout.policies
    inside = [m for m in worker_messages(work.job, work.stack, work.layout) if m.group == "cp"]
    for grid, expert in zip(work.parameters, (False, True), strict=True):
        row, who = float(grid.mean()), workers_of(work.layout, expert=expert)
        if not row:
            continue
        for message in inside:
            stride = int(Placement().strides(policies)[message.group][0])
            total += network.traffic(message.op, row * message.bytes, int(message.ranks[0]), stride)
        row *= float(who.share[0])
        traffic = strategy_traffic(sync.strategy, int(who.count[0]), work.model, int(policies.tp[0]))
        for event, bytes_, times in traffic.exchanges:
            stride = event.stride * int(who.stride[0])
            plain = event.op in ("mix", "push", "pull") or event.algorithm == "server"
            ops = ["all_to_all", "all_gather"] if event.algorithm == "sharded" else ["send" if plain else event.op]
            often = sum(event.sent) / event.size / event.bytes if plain else 1.0
            total += sum(times * often * network.traffic(op, bytes_ * row, event.size, stride) for op in ops)
    return total
