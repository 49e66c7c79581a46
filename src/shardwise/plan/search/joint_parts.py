"""What can be planned for a mixed cluster without a joint search: each part alone, all GPUs as if they were the
weakest, and replicas of the model on every part, which share the batch by their speed."""

from collections.abc import Sequence
from dataclasses import replace as with_
from math import ceil
from typing import Any

from msgspec.structs import replace

from shardwise.plan import Ranking, scan
from shardwise.plan.search.problems.joint import ClusterPart, Line, PartLink
from shardwise.plan.search.problems.joint._parts import shares_of
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.software import Stack
from shardwise.work.case import Case, case_of

UNIT = 8
"""sequences by which shares of the batch differ, or one where the batch is no multiple"""


def known_lines(parts: Sequence[ClusterPart], link: PartLink, stack: Stack, given: dict[str, Any]) -> list[Line]:
    """`stack`: as the catalog has it. `given`: what `scan` takes. Each line is one point, with what it is in words."""
    alone = [scan(part.case, top=1, losers=False, **given) for part in parts]
    lines = [_line(found, part.usd_per_s, f"on {part.case.cluster.name} alone", (part,))
             for found, part in zip(alone, parts, strict=True)]  # fmt: skip
    rent = sum(part.usd_per_s for part in parts)
    weakest = levelled([part.case for part in parts], link, stack)
    lines.append(_line(scan(weakest, top=1, losers=False, **given), rent,
                       f"all GPUs as if they were {weakest.cluster.gpu.name}", parts))  # fmt: skip
    return [line for line in [*lines, _replicas(parts, link, alone, given)] if line is not None]


def _line(found: Ranking, rent: float, what: str, parts: Sequence[ClusterPart]) -> Line | None:
    if not found.best:
        return None
    best = found.best[0]
    weight = rent or 1.0
    names = tuple(part.case.cluster.name for part in parts)
    return Line(best.policy, weight * best.step_s, None, step_s=best.step_s, weight=weight, parts=names, what=what)


def levelled(cases: Sequence[Case], link: PartLink, stack: Stack) -> Case:
    """All GPUs as the slowest of them, with the memory of the smallest and the network of the thinnest."""
    first = cases[0]
    slowest = min((case.cluster for case in cases), key=lambda cluster: cluster.gpu.peak(first.job.precision.compute))
    node = min((case.cluster.levels[0] for case in cases), key=lambda level: (level.degree, level.bandwidth))
    most = max(case.cluster.gpus for case in cases)
    networks = [case.cluster.levels[1] for case in cases if len(case.cluster.levels) > 1]
    levels = [node]
    if most > node.degree:
        thin = min(networks, key=lambda level: level.usable_bandwidth)
        levels.append(replace(thin, degree=ceil(most / node.degree), mesh=(), torus=()))
    levels.append(Level(
        name="link", kind="network", degree=len(cases), latency_s=link.latency_s,
        bandwidth=link.bytes_per_s / min(case.cluster.gpus for case in cases),
    ))  # fmt: skip
    gpu = replace(slowest.gpu, memory_bytes=min(case.cluster.gpu.memory_bytes for case in cases))
    cluster = Cluster(name="all parts", gpu=gpu, gpus=sum(case.cluster.gpus for case in cases), levels=tuple(levels))
    return case_of(first.model, cluster, first.job, stack)


def _replicas(
    parts: Sequence[ClusterPart], link: PartLink, alone: Sequence[Ranking], given: dict[str, Any]
) -> Line | None:
    """Every part trains the whole model on its share of the batch; gradients meet on the link, under no compute."""
    if not all(found.best for found in alone):
        return None
    job = parts[0].case.job
    rates = [1.0 / found.best[0].step_s for found in alone]
    unit = UNIT if job.global_batch % UNIT == 0 and job.global_batch >= UNIT * len(parts) else 1
    split = next(shares_of(job.global_batch, rates, unit), None)
    if split is None:
        return None
    found = [
        scan(with_(part.case, job=replace(job, global_batch=share)), top=1, losers=False, **given)
        for part, share in zip(parts, split, strict=True)
    ]
    if not all(each.best for each in found):
        return None
    gradients = parameters(parts[0].case.model) * job.precision.grad_comm_bytes
    exchange = link.seconds(2.0 * (len(parts) - 1) / len(parts) * gradients)
    step = max(each.best[0].step_s for each in found) + exchange
    weight = sum(part.usd_per_s for part in parts) or 1.0
    what = "replicas: " + ", ".join(
        f"{share} sequences on {part.case.cluster.name}" for part, share in zip(parts, split, strict=True)
    )
    names = tuple(part.case.cluster.name for part in parts)
    return Line(found[0].best[0].policy, weight * step, None, step_s=step, weight=weight, parts=names, what=what)
