"""`shardwise plan --joint`: what is asked of the search, and its answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise.plan import Candidate, Ranking
from shardwise.plan.search.joint_parts import known_lines
from shardwise.plan.search.joint_placement import placement_matters, without_uplinks
from shardwise.plan.search.joint_study import (
    ExpertMap,
    JointResult,
    expert_cases,
    problem_of,
    problem_of_parts,
    solved,
    timeline_s,
)
from shardwise.plan.search.methods import Method, method_of, methods
from shardwise.plan.search.problems import sample_of
from shardwise.plan.search.problems.joint import ClusterPart, LineRequest, PartLink
from shardwise.programs.formats import formats
from shardwise.question import Question
from shardwise.question.command import command_of
from shardwise.show.cli._joint_flags import COMPARE, JointFlags
from shardwise.show.cli._progress import bar
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of, price_of
from shardwise.spec.policy import Policies
from shardwise.step.estimate.chance import most_bytes
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.synced import choices_of
from shardwise.units import rate_of
from shardwise.work.case import Case

BUDGET = 20_000
MOST_RENT = 10_000.0


@dataclass(frozen=True)
class JointAnswer:
    result: JointResult
    objective: str
    """s or usd, of a step"""
    experts: ExpertMap | None
    timeline_s: tuple[float, float] | None
    """what is planned without this search, and the answer, both simulated"""
    notes: list[str]
    clusters: tuple[str, ...]
    """the parts"""
    command: str = ""
    """writes the answer for a program that trains; empty where none is known"""


def joint_answer(
    asked: JointFlags, model: str, on: str, case: Question, cluster: Cluster, ranked: Ranking, sync: str | None
) -> JointAnswer:  # fmt: skip
    """After the plan of one cluster: the same question with everything open at once."""
    rents = _rents(asked, [cluster, *map(cluster_of, asked.mixed or ())])
    chosen = list(methods().values()) if asked.methods == COMPARE else [method_of(asked.methods or "dp")]
    if asked.mixed:
        if sync is not None:
            raise ValueError(
                "sync: --mixed joins its clusters into one pipeline, priced with the mean gradient; leave --sync or "
                "--mixed out"
            )
        return _of_parts(asked, case, cluster, rents, chosen)
    whole = case.on(cluster)
    choices = [None] if sync is None else choices_of(sync, case.job.optimizer.name)
    map_of: Callable[[int], ExpertMap] | None = None
    placed = placement_matters(cluster)
    base: dict[str, Any] = {}
    planned: Sequence[Candidate] = ranked.best
    if asked.routing is not None:
        sample = sample_of(asked.routing)
        case_of_ep, map_of = expert_cases(whole, sample)
        base["case_of_ep"] = case_of_ep
        planned = _under(whole, map_of, planned)
        whole = whole.changed(expert_imbalance=1.0, free_router=False)
    if placed:
        base["open_case"] = without_uplinks(whole)
    requests = [
        LineRequest(whole, ranked.limit_bytes, case.limits, case.only, choice, planned=bool(planned), **base)
        for choice in choices
    ]
    problem = problem_of(planned, requests, rents[0])
    with bar("policies with stages") as told:
        result = solved(problem, chosen, budget=BUDGET, progress=lambda done, _: told(done, 0),
                        placed_on=whole if placed else None)  # fmt: skip
    notes = _notes(asked, result, placed)
    fits = result.best.point is not None
    experts = map_of(result.line.policy.ep) if fits and map_of is not None else None
    simulated = timeline_s(case.on(cluster), result) if fits and map_of is None else None
    return JointAnswer(
        result, "usd" if asked.per_dollar else "s", experts, simulated, notes, (cluster.name,),
        _command(model, on, case, result),
    )  # fmt: skip


def _command(model: str, on: str, case: Question, result: JointResult) -> str:
    """Empty where stages are as planned, or no program is known that takes what they hold."""
    held = None if result.best.point is None else result.problem.assignment(result.point)
    target = next((name for name, each in formats().items() if each.stack == case.stack.name), "")
    policy = result.line.policy if held is not None and not result.line.unlike else None
    if held is None or policy is None or not target or len(held.layers) < 2 or policy.sync or any(held.recomputed):
        return ""
    if any(count % policy.vpp for count in held.layers):
        return ""
    words = command_of(model, on, case.job, policy, case.stack.name, verb="export")
    chunks = [count // policy.vpp for _ in range(policy.vpp) for count in held.layers]
    return f"{words} --layers {','.join(map(str, chunks))} --to {target}"


def _under(whole: Case, map_of: Callable[[int], ExpertMap], planned: Sequence[Candidate]) -> list[Candidate]:
    """The plans as they are with experts in order, by the tokens that were measured."""
    found = []
    for each in planned:
        skewed = whole.changed(expert_imbalance=map_of(each.policy.ep).in_order, free_router=False)
        step = float(estimate(skewed, Policies.of([each.policy])).times.step_s[0])
        found.append(replace(each, step_s=step))
    return sorted(found, key=lambda each: each.step_s)


def _of_parts(
    asked: JointFlags, case: Question, first: Cluster, rents: Sequence[float], chosen: Sequence[Method]
) -> JointAnswer:  # fmt: skip
    if case.profile is not None:
        raise ValueError("profile: it was measured on one kind of GPU; leave it out with --mixed")
    clusters = [first, *map(cluster_of, asked.mixed or ())]
    cases = [case.on(each) for each in clusters]
    link = PartLink(rate_of(asked.link or "", "link"))
    parts = [ClusterPart(each, _limit(case, each), rent) for each, rent in zip(cases, rents, strict=True)]
    given = {"headroom": case.headroom, "risk": case.risk, "limits": case.limits, "only": case.only}
    with bar("parts of the cluster") as told:
        told(0, 0)
        known = known_lines(parts, link, case.stack, given)
        problem = problem_of_parts(known, parts, link)
        result = solved(problem, chosen, budget=BUDGET, progress=lambda done, _: told(done, 0))
    return JointAnswer(
        result, "usd" if asked.per_dollar else "s", None, None, _notes(asked, result, False),
        tuple(each.name for each in clusters),
    )  # fmt: skip


def _limit(case: Question, whole: Case) -> float:
    memory = whole.cluster.gpu.memory_bytes
    return min(case.headroom * memory, memory - whole.stack.memory.reserve_bytes, most_bytes(whole, case.risk))


def _rents(asked: JointFlags, clusters: Sequence[Cluster]) -> list[float]:
    """Dollars a second of all GPUs of each cluster; 0 where money is not asked for."""
    if not asked.per_dollar:
        return [0.0] * len(clusters)
    if asked.rent is None:
        hourly = [price_of(cluster.gpu.name).on_demand[0] for cluster in clusters]
    else:
        try:
            hourly = [float(word) for word in asked.rent.split(",")]
        except ValueError:
            hourly = []
        if len(hourly) != len(clusters) or not all(0 < each <= MOST_RENT for each in hourly):
            raise ValueError(f"rent: {asked.rent[:40]!r} is not a list of {len(clusters)} prices; write USD an hour "
                             f"of each cluster, as {','.join(['2.5'] * len(clusters))}")  # fmt: skip
    return [cluster.gpus * rent / 3600.0 for cluster, rent in zip(clusters, hourly, strict=True)]


def _notes(asked: JointFlags, result: JointResult, placed: bool) -> list[str]:
    notes = ["stages are priced as `shardwise search stages` does: (m - k) x slowest + k x all + one-time costs"]
    if asked.mixed:
        notes.append("pipelines through two parts or more: 1F1B, the stages of a part side by side; between stages of "
                     "unlike tp only the link is priced, and recompute is of whole layers")  # fmt: skip
    if placed:
        notes.append("nodes were placed for the policies that could gain most: exposed communication shrinks as its "
                     "time on the network does; the bound is a network with all nodes under one leaf")  # fmt: skip
    if not result.best.finished:
        notes.append("interrupted: the best so far")
    return notes
