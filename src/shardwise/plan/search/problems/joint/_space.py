"""The joint problem as `shardwise search` asks for it: every policy of the cluster with every way to fill its
stages."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.constraints import constraints_of
from shardwise.plan.search.problems._contract import Problem
from shardwise.plan.search.problems._kind import PointTable, ProblemKind, SearchInput, SearchSpace
from shardwise.plan.search.problems.joint._lines import LineRequest, lines_below
from shardwise.plan.search.problems.joint._parts import ClusterPart, PartLines, PartLink
from shardwise.plan.search.problems.joint._problem import JointProblem, Line
from shardwise.plan.space import Limits
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.units import gib
from shardwise.work.case import Case, case_of


@dataclass(frozen=True, kw_only=True)
class JointOptions:
    lines: Annotated[int, "policies to look at, those with the least bounds."] = 100


def _space(given: SearchInput, options: JointOptions) -> SearchSpace:
    given.check_legal()
    if not 1 <= options.lines <= 1000:
        raise ValueError(f"lines: {options.lines} is out of range; write 1 to 1000")
    case = given.case
    problem = problem_on(case, given.policy, case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes, options)
    return SearchSpace(
        problem=problem, clusters=case.cluster.name, objective="step", default="as stated", price_key="step_s",
        title=f"{case.model.name} on {case.cluster.name}: policy and stages",
        notes=[f"{len(problem.lines) - 1} policies whose bound is below the stated policy's step",
               "every stage recomputes as many layers as it must, no more"],
        facts={"lines": len(problem.lines)}, table=lambda point: stage_table(problem, point),
        best=lambda point: told(problem, point),
    )  # fmt: skip


def problem_on(case: Case, policy: Policy, limit: float, options: JointOptions, only: tuple[str, ...] = (),
               limits: Limits | None = None) -> JointProblem:  # fmt: skip
    """`policy`: what one has without a search; where it does not fit, everything is looked at."""
    found = estimate(case, Policies.of([policy]))
    fits = float(found.memory.peak[0]) <= limit
    step = float(found.times.step_s[0]) if fits else np.inf
    more = lines_below([LineRequest(case, limit, limits, constraints_of(list(only)))], step, options.lines)
    known = [Line(policy, step, None, step_s=step)] if fits else []
    if not known and not more.lines:
        raise ValueError(f"policy: nothing fits {case.model.name} on {case.cluster.name}; write more GPUs")
    return JointProblem((*known, *more.lines), more.rest_s)


def stage_table(problem: JointProblem, point: Ints) -> PointTable:
    held, line = problem.assignment(point), problem.line_of(point)
    heads = ["stage", "on", "tp", "dp", "micro", "layers", "recompute", "ms", "GiB"]
    if held is None:
        whole = line.policy
        rows = [("all", "as planned", whole.tp, whole.dp, whole.micro_batch, None, whole.recompute, None, None)]
        return PointTable(heads, rows, 2)
    told_rows = []
    for stage, option in enumerate(held.options):
        own, again = line.stages.options[option], held.recomputed[stage]
        low, high = held.mixes[stage]
        how = f"{again} {high}" if again else low
        told_rows.append((str(stage), own.cluster, own.policy.tp, own.policy.dp, own.policy.micro_batch,
                          held.layers[stage], how, f"{held.stage_s[stage] * 1e3:,.1f}",
                          gib(held.peak_bytes[stage])))  # fmt: skip
    return PointTable(heads, told_rows, 2)


def told(problem: JointProblem, point: Ints) -> dict[str, Any]:
    """JSON about a point."""
    held, line = problem.assignment(point), problem.line_of(point)
    found: dict[str, Any] = {"policy": line.policy, "as_planned": held is None, "parts": line.parts, "what": line.what}
    if held is None:
        return found | {"layers": None, "recomputed_layers": None, "recompute_mixes": None, "stage_s": None,
                        "peak_bytes": None, "stages": None}  # fmt: skip
    own = [line.stages.options[i] for i in held.options]
    return found | {
        "layers": held.layers, "recomputed_layers": held.recomputed, "recompute_mixes": held.mixes,
        "stage_s": held.stage_s, "peak_bytes": held.peak_bytes,
        "stages": [{"on": o.cluster, "tp": o.policy.tp, "dp": o.policy.dp, "micro_batch": o.policy.micro_batch,
                    "limit_bytes": o.limit_bytes} for o in own],
    }  # fmt: skip


def _examples() -> dict[str, Problem]:
    """A few policies of two to four stages with little memory; and three kinds of GPU in a row."""
    model, stack, job = model_of("llama-3-8b"), stack_of("megatron-core"), Job(seq=8192, global_batch=64)
    case = case_of(model, cluster_of("8xh100"), job, stack)
    limit = 0.6 * case.cluster.gpu.memory_bytes
    only = ("vpp=1", "micro_batch=1", "cp=1", "zero=1", "pp<=3", "offload=none")
    cases = [case_of(model, cluster_of(name), job, stack) for name in ("2xh100", "2xa100-80", "2xh200")]
    parts = PartLines(tuple(ClusterPart(c, 0.9 * c.cluster.gpu.memory_bytes) for c in cases), PartLink(12.5e9))
    lines, _ = parts.below(np.inf, 600)
    return {
        "little memory": problem_on(case, Policy(tp=8), limit, JointOptions(lines=6), only),
        "three kinds of GPU": JointProblem(tuple([line for line in lines if line.pp == 3][:6]), np.inf),
    }


PROBLEM = ProblemKind(
    name="joint", summary="the policy together with its stages and what recomputes", options=JointOptions,
    methods=("dp",), space=_space, examples=_examples,
)  # fmt: skip
