"""Which rank sits where: node, GPU, network card, and the groups it is in."""

import csv
import io
from typing import Any

import msgspec
import numpy as np

from shardwise.fabric.place import Seats
from shardwise.programs.formats._contract import Launch
from shardwise.programs.formats._scripts import host_gpus
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import GRID

AXES = (*GRID, "ep", "etp", "edp")


def rank_groups(launch: Launch) -> dict[str, list[list[int]]]:
    """The groups of every axis that is split, as ranks in their order."""
    policy = launch.policy
    ranks = np.arange(policy.gpus)
    seats = Seats(policy, tuple(policy.order.split("-")), ranks, "rank", ranks)
    experts = any(kind.experts for kind in launch.case.model.kinds)
    found = {}
    for axis in AXES if experts else GRID:
        groups = seats.groups(axis)
        if groups.shape[1] > 1:
            found[axis] = groups[np.argsort(groups[:, 0])].tolist()
    return found


def rank_table(launch: Launch) -> str:
    """CSV: one row a rank; of each axis the number of its group and its place in it."""
    cluster, groups = launch.case.cluster, rank_groups(launch)
    each = host_gpus(cluster)
    where = {
        axis: {rank: (number, place) for number, group in enumerate(found) for place, rank in enumerate(group)}
        for axis, found in groups.items()
    }
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["rank", "node", "gpu", "nic", *[f"{axis}_{what}" for axis in groups for what in ("group", "rank")]])
    for rank in range(launch.policy.gpus):
        node, gpu = divmod(rank, each)
        places = [value for axis in groups for value in where[axis][rank]]
        table.writerow([rank, node, gpu, _card(cluster, gpu, launch.cards.names), *places])
    return text.getvalue()


def _card(cluster: Cluster, gpu: int, names: tuple[str, ...]) -> int | str:
    """The card of a node that a GPU sends through; nothing where the job stays inside one domain."""
    if len(cluster.levels) == 1:
        return ""
    return names[gpu % len(names)] if names else gpu % cluster.rails


def group_file(launch: Launch) -> str:
    data: dict[str, Any] = {"order": launch.policy.order, "ranks": launch.policy.gpus, "groups": rank_groups(launch)}
    return msgspec.json.encode(data).decode() + "\n"
