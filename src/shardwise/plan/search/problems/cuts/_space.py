"""Cuts as `shardwise search` asks for them: one block of a model's layer, one place, one way for x and y to lie."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.search.problems._contract import Problem
from shardwise.plan.search.problems._kind import PointTable, ProblemKind, SearchInput, SearchSpace
from shardwise.plan.search.problems.cuts._blocks import BLOCKS, block_of, chain
from shardwise.plan.search.problems.cuts._graph import ENDS
from shardwise.plan.search.problems.cuts._price import machine_at
from shardwise.plan.search.problems.cuts._problem import CutProblem
from shardwise.registry import closest
from shardwise.spec.arch import model_of
from shardwise.spec.job import precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.machine import Machine
from shardwise.units import bytes_of


@dataclass(frozen=True, kw_only=True)
class CutOptions:
    block: Annotated[str, "attention, mlp, moe or layer."] = "layer"
    ends: Annotated[str, "how x and y lie: replicated, tokens or features."] = "replicated"
    across_nodes: Annotated[bool, "one rank in each node, not all in one."] = False
    accumulate: Annotated[int, "micro-batches per sum of weight gradients."] = 1
    weights: Annotated[str | None, "most weights a rank may hold, as '200 MiB'."] = None


def _space(given: SearchInput, options: CutOptions) -> SearchSpace:
    case, ranks = given.case, given.policy.tp
    stride = case.cluster.node_size if options.across_nodes else 1
    _check(given, options, stride)
    precision = case.job.precision
    graph = block_of(case.model, options.block, ranks, given.policy.micro_batch, case.job.seq, precision)
    machine = Machine(
        curve=case.curve, network=case.network, stack=case.stack, precision=precision,
        sizes={"tp": np.asarray(ranks)}, strides={"tp": np.asarray(stride)},
    )  # fmt: skip
    limit = np.inf if options.weights is None else bytes_of(options.weights, "weights")
    problem = CutProblem(graph.with_ends(options.ends), machine, options.accumulate, limit)
    where = "one in each node" if options.across_nodes else "side by side"
    return SearchSpace(
        problem=problem, clusters=case.cluster.name, objective="block", default="nothing cut",
        title=f"{graph.name} on {case.cluster.name}, tp {ranks}",
        notes=[*graph.notes, f"ranks {where}; x and y lie {options.ends}",
               "forward and backward of one micro-batch, nothing overlapped",
               "shardwise search cuts also shows the cuts that have a name, and the next best"],
        facts={"ends": options.ends, "ranks": ranks, "stride": stride, "most_weight_bytes": limit},
        table=lambda point: _table(problem, point), best=lambda point: _json(problem, point),
    )  # fmt: skip


def _check(given: SearchInput, options: CutOptions, stride: int) -> None:
    if options.block not in BLOCKS:
        raise ValueError(f"block: {options.block!r} is unknown; {closest(options.block, list(BLOCKS))}")
    if options.ends not in ENDS:
        raise ValueError(f"ends: {options.ends!r} is unknown; {closest(options.ends, list(ENDS))}")
    if given.policy.tp < 2:
        raise ValueError(f"tp: {given.policy.tp} rank has all of every matrix; write --tp 2 or more")
    if given.policy.cp > 1:
        raise ValueError(f"cp: {given.policy.cp} ranks share a sequence, and cuts are of whole ones; write --cp 1")
    if given.policy.tp * stride > given.case.cluster.gpus:
        raise ValueError(f"tp: {given.policy.tp} ranks, {stride} GPUs apart, need {given.policy.tp * stride:,} and "
                         f"{given.case.cluster.name} has {given.case.cluster.gpus:,}; write fewer")  # fmt: skip
    if not 1 <= options.accumulate <= 10**6:
        raise ValueError(f"accumulate: {options.accumulate} is out of range; write a whole number from 1 to 1,000,000")


def _table(problem: CutProblem, point: Ints) -> PointTable:
    cuts = problem.names(tuple(point.tolist()))
    return PointTable(["matrix", "cut"], list(cuts.items()), 2)


def _json(problem: CutProblem, point: Ints) -> dict[str, Any]:
    price = problem.detail(tuple(point.tolist()))
    return {"cuts": problem.names(price.assignment), "compute_s": price.compute_s, "sent_bytes": price.sent_bytes,
            "weight_bytes": price.weight_bytes}  # fmt: skip


def _examples() -> dict[str, Problem]:
    """A chain with a limit of weights, and a block whose tensors have several readers."""
    precision, model = precision_of("bf16"), model_of("llama-3-8b")
    machine = machine_at(cluster_of("dgx-h100:64"), stack_of("megatron-core"), precision, 8, 1)
    row = chain([4096, 16384, 4096, 4096], 8, 8192, precision).with_ends("replicated")
    return {
        "chain": CutProblem(row, machine, most_bytes=60e6),
        "mlp": CutProblem(block_of(model, "mlp", 8, 1, 8192, precision).with_ends("tokens"), machine),
    }


PROBLEM = ProblemKind(
    name="cuts", summary="the tensor-parallel cut of every matrix of a block", options=CutOptions,
    methods=("dp", "ip", "exhaustive", "zeroth"), space=_space, examples=_examples,
)  # fmt: skip
