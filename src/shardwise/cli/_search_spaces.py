"""What `shardwise search` looks through: a problem with the words, tables and JSON that belong to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.cli._flags import Flags, PolicyRequest, asked
from shardwise.cli._output import Cell
from shardwise.registry import closest
from shardwise.search.problems import (
    Drawn,
    ExpertProblem,
    Group,
    Ints,
    Problem,
    RankProblem,
    StageProblem,
    expert_problem,
    rank_problem,
    sample_of,
    stage_problem,
)
from shardwise.spec.load import cluster_of
from shardwise.spec.rules import verdict_of
from shardwise.units import gib

MOST_NODES = 100_000


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SpaceFlags:
    problem: Annotated[str, Parameter(help="stages, ranks (nodes on the fabric) or experts.")] = "stages"
    mixed: Annotated[str | None, Parameter(help="stages: a second cluster that takes part of them.")] = None
    stages_on: Annotated[str | None, Parameter(help="stages: how many on each, as 8,8; default: by GPUs.")] = None
    stage_tp: Annotated[str | None, Parameter(help="stages: TP one may choose, as 2,4,8; default: --tp.")] = None
    headroom: Annotated[float, Parameter(help="stages: share of a GPU's memory one may fill.")] = 1.0
    free_nodes: Annotated[str | None, Parameter(help="ranks: nodes to use, as 0-15,40-63; default: the first.")] = None
    slow_nodes: Annotated[str | None, Parameter(help="ranks: nodes with slower cards, as 8-15.")] = None
    slow_speed: Annotated[float, Parameter(help="ranks: speed of those, as a share.")] = 0.5
    routing: Annotated[Path | None, Parameter(help="experts: a measured sample, one token's experts a line.")] = None
    skew: Annotated[float, Parameter(help="experts: of a drawn sample, popularity as 1 / rank^skew.")] = Drawn.skew
    sample: Annotated[int, Parameter(help="experts: tokens of a drawn sample.")] = Drawn.tokens
    sample_seed: Annotated[int, Parameter(help="experts: seed of a drawn sample.")] = Drawn.seed
    replicas: Annotated[int, Parameter(help="experts: further copies of the hottest ones.")] = 0


@dataclass(frozen=True)
class Table:
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int


@dataclass(frozen=True)
class SearchSpace:
    ask: PolicyRequest
    kind: str
    clusters: str
    problem: Problem
    title: str
    objective: str
    """what a point is priced by"""
    default: str
    """what one has without a search"""
    notes: list[str]
    facts: dict[str, Any]
    """JSON about the problem"""
    table: Callable[[Ints], Table]
    best: Callable[[Ints], dict[str, Any]]
    """JSON about a point"""


def space_of(model: str, flags: Flags, chosen: SpaceFlags) -> SearchSpace:
    kinds = {"stages": _stages, "ranks": _ranks, "experts": _experts}
    if chosen.problem not in kinds:
        raise ValueError(f"problem: {chosen.problem!r} is unknown; {closest(chosen.problem, list(kinds))}")
    _check_flags(chosen)
    return kinds[chosen.problem](asked(model, flags), flags, chosen)


OWN = {
    "stages": ("mixed", "stages_on", "stage_tp", "headroom"),
    "ranks": ("free_nodes", "slow_nodes", "slow_speed"),
    "experts": ("routing", "skew", "sample", "sample_seed", "replicas"),
}


def _check_flags(chosen: SpaceFlags) -> None:
    """A flag of another problem is a mistake, not a wish."""
    plain = SpaceFlags()
    for kind, names in OWN.items():
        for name in names:
            if kind != chosen.problem and getattr(chosen, name) != getattr(plain, name):
                raise ValueError(f"{name.replace('_', '-')}: belongs to --problem {kind}, not {chosen.problem}; "
                                 "leave it out")  # fmt: skip


def _stages(ask: PolicyRequest, flags: Flags, chosen: SpaceFlags) -> SearchSpace:
    if not ask.model.layers:
        raise ValueError(f"model: {ask.model.name} has no layers to deal out; write a model with some")
    clusters = [ask.cluster] if chosen.mixed is None else [ask.cluster, cluster_of(chosen.mixed)]
    if chosen.mixed is not None and ask.profile is not None:
        raise ValueError("profile: it was measured on one kind of GPU; leave it out with --mixed")
    counts = _stages_on(ask, [cluster.gpus for cluster in clusters], chosen)
    policy = ask.policy
    per_stage = clusters[0].gpus / max(counts[0], 1)
    if flags.dp is None and chosen.mixed is not None:
        policy = replace(policy, dp=max(int(per_stage) // (policy.tp * policy.cp), 1))
    if chosen.mixed is None and policy.gpus != ask.cluster.gpus:
        raise ValueError(f"dp: {policy.gpus} GPUs are used of {ask.cluster.gpus}; write degrees whose product is all")
    if ask.job.global_batch % (policy.dp * policy.micro_batch):
        raise ValueError(f"global-batch: {ask.job.global_batch} does not divide by dp {policy.dp} x micro "
                         f"{policy.micro_batch}; write another")  # fmt: skip
    groups = [Group(cluster, stages) for cluster, stages in zip(clusters, counts, strict=True)]
    degrees = () if chosen.stage_tp is None else _numbers(chosen.stage_tp, "stage-tp")
    problem = stage_problem(ask.model, groups, ask.job, policy, ask.stack, stage_tp=degrees, headroom=chosen.headroom,
                            profile=ask.profile)  # fmt: skip
    notes = [*ask.notes, "every stage recomputes as many layers as it must, no more",
             "step in closed form: (m - k) x slowest stage + k x all stages + what happens once"]  # fmt: skip
    if len(problem.options) > 1:
        notes.append("stages of different kinds hand over as stages of one kind do: re-sharding and slower links "
                     "between them are not priced")  # fmt: skip
    names = " + ".join(cluster.name for cluster in clusters)
    return SearchSpace(
        ask=ask, kind="stages", clusters=names, problem=problem, notes=notes, objective="step", default="even split",
        title=f"{ask.model.name} on {names}: {problem.stages} stages",
        facts={"stages": problem.stages, "micro_batches": problem.micro_batches},
        table=lambda point: _stage_table(problem, point), best=lambda point: _stage_json(problem, point),
    )  # fmt: skip


def _stages_on(ask: PolicyRequest, gpus: list[int], chosen: SpaceFlags) -> list[int]:
    if chosen.stages_on is not None:
        counts = _numbers(chosen.stages_on, "stages-on")
        if len(counts) != len(gpus):
            raise ValueError(f"stages-on: {chosen.stages_on!r} has {len(counts)} numbers; write {len(gpus)}, one a "
                             "cluster")  # fmt: skip
        return counts
    if chosen.mixed is None:
        return [ask.policy.pp]
    first = ask.policy.pp * gpus[0] / sum(gpus)
    if first != int(first) or ask.policy.pp < 2:
        raise ValueError(f"pp: {ask.policy.pp} stages cannot be shared as {gpus[0]}:{gpus[1]} GPUs; "
                         "write another --pp, or --stages-on 8,8")  # fmt: skip
    return [int(first), ask.policy.pp - int(first)]


def _stage_table(problem: StageProblem, point: Ints) -> Table:
    held, rows = problem.assignment(point), []
    for stage, option in enumerate(held.options):
        own, seconds = problem.options[option], held.stage_s[stage]
        rows.append((str(stage), own.cluster, own.policy.tp, own.policy.dp, own.policy.micro_batch, held.layers[stage],
                     held.recomputed[stage], f"{seconds * 1e3:,.1f}", gib(held.peak_bytes[stage])))  # fmt: skip
    return Table(["stage", "on", "tp", "dp", "micro", "layers", "recompute", "ms", "GiB"], rows, 2)


def _stage_json(problem: StageProblem, point: Ints) -> dict[str, Any]:
    held = problem.assignment(point)
    return {
        "layers": held.layers, "recomputed_layers": held.recomputed, "stage_s": held.stage_s,
        "peak_bytes": held.peak_bytes,
        "stages": [{"on": o.cluster, "tp": o.policy.tp, "dp": o.policy.dp, "micro_batch": o.policy.micro_batch,
                    "limit_bytes": o.limit_bytes} for o in (problem.options[i] for i in held.options)],
    }  # fmt: skip


def _legal(ask: PolicyRequest) -> None:
    verdict = verdict_of(ask.model, ask.cluster, ask.job, ask.policy)
    if not verdict.legal:
        raise ValueError(f"{verdict.rule}: {verdict.why}; write other degrees")


def _ranks(ask: PolicyRequest, flags: Flags, chosen: SpaceFlags) -> SearchSpace:  # noqa: ARG001
    _legal(ask)
    problem = rank_problem(
        ask.model, ask.cluster, ask.job, ask.policy, ask.stack, free=_ranges(chosen.free_nodes, "free-nodes"),
        slow=_ranges(chosen.slow_nodes, "slow-nodes"), slow_speed=chosen.slow_speed, profile=ask.profile,
    )  # fmt: skip
    notes = [*ask.notes, "seconds of the network in a step, before any overlap with compute",
             "rings for gradients and parameters, in the order of the ranks; pairwise all-to-all; uplinks are shared "
             "by all groups at once"]  # fmt: skip
    return SearchSpace(
        ask=ask, kind="ranks", clusters=ask.cluster.name, problem=problem, notes=notes, objective="network",
        default="ranks in order", title=f"{ask.model.name} on {ask.cluster.name}: {problem.nodes} nodes",
        facts={"nodes": problem.nodes, "boxes": dict(zip(problem.box_names, problem.room, strict=True))},
        table=lambda point: _rank_table(problem, point), best=lambda point: _rank_json(problem, point),
    )  # fmt: skip


def _rank_table(problem: RankProblem, point: Ints) -> Table:
    before, after = problem.parts_s(problem.default), problem.parts_s(point)
    rows = [(name, f"{before[name] * 1e3:,.2f}", f"{after[name] * 1e3:,.2f}") for name in before]
    return Table(["collective", "in order, ms", "best, ms"], rows, 1)


def _rank_json(problem: RankProblem, point: Ints) -> dict[str, Any]:
    return {"node_box": [problem.box_names[box] for box in point[: problem.nodes]], "parts_s": problem.parts_s(point),
            "default_parts_s": problem.parts_s(problem.default)}  # fmt: skip


def _experts(ask: PolicyRequest, flags: Flags, chosen: SpaceFlags) -> SearchSpace:  # noqa: ARG001
    _legal(ask)
    drawn = Drawn(skew=chosen.skew, seed=chosen.sample_seed, tokens=chosen.sample)
    problem = expert_problem(
        ask.model, ask.cluster, ask.job, ask.policy, ask.stack, replicas=chosen.replicas, profile=ask.profile,
        sample=drawn if chosen.routing is None else sample_of(chosen.routing),
    )  # fmt: skip
    told = f"drawn, skew {chosen.skew:g}, seed {chosen.sample_seed}" if chosen.routing is None else str(chosen.routing)
    notes = [*ask.notes, f"{len(problem.tokens):,} tokens routed: {told}",
             "expert products of the fullest rank and four exchanges, one layer, one micro-batch",
             "a token crosses to each node once and is handed on inside it"]  # fmt: skip
    title = f"{ask.model.name} on {ask.cluster.name}: {problem.positions} experts on {problem.ranks} ranks"
    return SearchSpace(
        ask=ask, kind="experts", clusters=ask.cluster.name, problem=problem, notes=notes, objective="expert layer",
        default="experts in order", title=title, facts={"experts": problem.positions, "ranks": problem.ranks},
        table=lambda point: _expert_table(problem, point), best=lambda point: _expert_json(problem, point),
    )  # fmt: skip


def _expert_table(problem: ExpertProblem, point: Ints) -> Table:
    before, after = (problem.told(p) for p in (problem.default, point))
    words = {
        "imbalance": "fullest rank / mean", "visits_per_token": "nodes a token visits",
        "busiest_node": "busiest node / mean", "products_s": "products, ms", "exchange_s": "exchanges, ms",
    }  # fmt: skip
    rows = []
    for name, shown in words.items():
        factor = 1e3 if name.endswith("_s") else 1.0
        rows.append((shown, f"{before[name] * factor:.3f}", f"{after[name] * factor:.3f}"))
    return Table(["", "in order", "best"], rows, 1)


def _expert_json(problem: ExpertProblem, point: Ints) -> dict[str, Any]:
    held = [[expert for expert, rank in enumerate(point.tolist()) if rank == own] for own in range(problem.ranks)]
    return {"rank_experts": held, **problem.told(point), "in_order": problem.told(problem.default)}


def _numbers(text: str, field: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < len(word) < 8 and int(word) > 0 for word in words):
        raise ValueError(f"{field}: {text[:40]!r} is no list of whole numbers above 0; write for example 2,4,8")
    return [int(word) for word in words]


def _ranges(text: str | None, field: str) -> list[int]:
    found: list[int] = []
    for word in text.split(",") if text is not None else []:
        ends = [end.strip() for end in word.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) < 7 for end in ends):
            raise ValueError(f"{field}: {word[:40]!r} is no node or range of nodes; write for example 0-15,40-63")
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last < MOST_NODES:
            raise ValueError(f"{field}: {word[:40]!r} goes backwards or is past {MOST_NODES:,}; write 0-15")
        found += range(first, last + 1)
    return list(dict.fromkeys(found))
