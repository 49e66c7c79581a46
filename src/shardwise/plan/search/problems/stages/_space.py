"""Stages as `shardwise search` asks for them: on one kind of GPU or on two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec.structs import replace

from shardwise.arrays import Ints
from shardwise.plan.search.problems._contract import Problem
from shardwise.plan.search.problems._kind import PointTable, ProblemKind, SearchInput, SearchSpace, numbers_of
from shardwise.plan.search.problems.stages._build import GpuGroup, stage_policies, stage_problem
from shardwise.plan.search.problems.stages._problem import StageProblem
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.units import gib
from shardwise.work.case import Case, case_of


@dataclass(frozen=True, kw_only=True)
class StageOptions:
    mixed: Annotated[str | None, "a second cluster that takes part of them."] = None
    stages_on: Annotated[str | None, "how many on each, as 8,8; default: by GPUs."] = None
    stage_tp: Annotated[str | None, "TP one may choose, as 2,4,8; default: --tp."] = None
    headroom: Annotated[float, "share of a GPU's memory one may fill."] = 1.0


def _space(given: SearchInput, options: StageOptions) -> SearchSpace:
    case, policy, job = given.case, given.policy, given.case.job
    cases = [case] if options.mixed is None else [case, given.on_cluster(cluster_of(options.mixed))]
    if options.mixed is not None and case.profile is not None:
        raise ValueError("profile: it was measured on one kind of GPU; leave it out with --mixed")
    if options.mixed is None and policy.gpus != case.cluster.gpus:
        raise ValueError(f"dp: {policy.gpus} GPUs are used of {case.cluster.gpus}; leave --dp out, or write degrees "
                         "whose product is all")  # fmt: skip
    degrees = () if options.stage_tp is None else tuple(numbers_of(options.stage_tp, "stage-tp"))
    shares = _Shares(given, cases, degrees)
    groups = shares.stated(options.stages_on)
    policy = shares.policy(groups)
    at_once = policy.dp * policy.micro_batch
    if job.global_batch % at_once:
        near = max(round(job.global_batch / at_once), 1) * at_once
        raise ValueError(f"global-batch: {job.global_batch} does not divide by dp {policy.dp} x micro "
                         f"{policy.micro_batch}; write --global-batch {near}")  # fmt: skip
    problem = stage_problem(groups, policy, stage_tp=degrees, headroom=options.headroom)
    return _told(case.model.name, " + ".join(each.cluster.name for each in cases), problem)


def _told(model: str, clusters: str, problem: StageProblem) -> SearchSpace:
    notes = ["every stage recomputes as many layers as it must, no more",
             "step in closed form: (m - k) x slowest stage + k x all stages + one-time costs"]  # fmt: skip
    if len(problem.options) > 1:
        notes.append("stages of different kinds hand over as stages of one kind do: re-sharding and slower links "
                     "between them are not priced")  # fmt: skip
    even = problem.price(problem.default[None])
    return SearchSpace(
        problem=problem, clusters=clusters, notes=notes, objective="step", default="even split", price_key="step_s",
        title=f"{model} on {clusters}: {problem.stages} stages",
        facts={"stages": problem.stages, "micro_batches": problem.micro_batches,
               "even": {"step_s": float(even.seconds[0]), "fits": bool(even.over[0] == 0)}},
        table=lambda point: _table(problem, point), best=lambda point: _json(problem, point),
    )  # fmt: skip


@dataclass(frozen=True)
class _Shares:
    """How many stages each cluster takes: as stated, else in proportion to its GPUs."""

    given: SearchInput
    cases: Sequence[Case]
    degrees: tuple[int, ...]

    @property
    def gpus(self) -> list[int]:
        return [case.cluster.gpus for case in self.cases]

    def stated(self, text: str | None) -> list[GpuGroup]:
        pp = self.given.policy.pp
        if text is None:
            counts = self._in_proportion(pp)
            if counts is None:
                told = ":".join(map(str, self.gpus))
                raise ValueError(f"pp: {pp} stages cannot be shared as {told} GPUs; write {self._advice()}")
            return self._groups(counts)
        counts = numbers_of(text, "stages-on")
        if len(counts) != len(self.cases):
            raise ValueError(f"stages-on: {text!r} has {len(counts)} numbers for {len(self.cases)} clusters; write "
                             f"{self._advice()}")  # fmt: skip
        if sum(counts) != pp:
            raise ValueError(f"stages-on: {text!r} makes {sum(counts)} stages of pp {pp}; write {self._advice()}")
        return self._groups(counts)

    def policy(self, groups: Sequence[GpuGroup]) -> Policy:
        """Without a dp of the user's own it is what the first cluster's stages leave."""
        policy = replace(self.given.policy, pp=sum(group.stages for group in groups))
        if self.given.dp_given or len(groups) == 1:
            return policy
        per_stage = groups[0].gpus // groups[0].stages
        return replace(policy, dp=max(per_stage // (policy.tp * policy.cp), 1))

    def _groups(self, counts: Sequence[int]) -> list[GpuGroup]:
        return [GpuGroup(case, stages) for case, stages in zip(self.cases, counts, strict=True)]

    def _in_proportion(self, pp: int) -> list[int] | None:
        if len(self.cases) == 1:
            return [pp]
        share, rest = divmod(pp * self.gpus[0], sum(self.gpus))
        return None if rest or not 0 < share < pp else [share, pp - share]

    def _advice(self) -> str:
        """Flags that work: another split of the same stages, or another number of them."""
        pp = self.given.policy.pp
        if len(self.cases) == 1:
            return f"--stages-on {pp}"
        even = pp * self.gpus[0] / sum(self.gpus)
        for first in sorted(range(1, pp), key=lambda stages: abs(stages - even)):
            if self._works([first, pp - first]):
                return f"--stages-on {first},{pp - first}"
        for other in sorted(range(2, 2 * pp + 3), key=lambda stages: abs(stages - pp)):
            if (counts := self._in_proportion(other)) is not None and self._works(counts):
                return f"--pp {other}"
        return "another cluster"

    def _works(self, counts: Sequence[int]) -> bool:
        groups = self._groups(counts)
        policy, case = self.policy(groups), self.given.case
        if policy.pp > case.model.layers or case.job.global_batch % (policy.dp * policy.micro_batch):
            return False
        if any(group.gpus % group.stages for group in groups):
            return False
        try:
            for group in groups:
                stage_policies(group, policy, self.degrees or (policy.tp,))
        except ValueError:
            return False
        return True


def _table(problem: StageProblem, point: Ints) -> PointTable:
    held, rows = problem.assignment(point), []
    for stage, option in enumerate(held.options):
        own, seconds = problem.options[option], held.stage_s[stage]
        rows.append((str(stage), own.cluster, own.policy.tp, own.policy.dp, own.policy.micro_batch, held.layers[stage],
                     held.recomputed[stage], f"{seconds * 1e3:,.1f}", gib(held.peak_bytes[stage])))  # fmt: skip
    return PointTable(["stage", "on", "tp", "dp", "micro", "layers", "recompute", "ms", "GiB"], rows, 2)


def _json(problem: StageProblem, point: Ints) -> dict[str, Any]:
    held = problem.assignment(point)
    return {
        "layers": held.layers, "recomputed_layers": held.recomputed, "stage_s": held.stage_s,
        "peak_bytes": held.peak_bytes,
        "stages": [{"on": o.cluster, "tp": o.policy.tp, "dp": o.policy.dp, "micro_batch": o.policy.micro_batch,
                    "limit_bytes": o.limit_bytes} for o in (problem.options[i] for i in held.options)],
    }  # fmt: skip


def _examples() -> dict[str, Problem]:
    """One kind of GPU with little memory, so that some stages recompute; and two kinds with a choice of tp."""
    model, stack, job = model_of("llama-3-8b"), stack_of("megatron-core"), Job(seq=8192, global_batch=64)
    h100, a100 = (case_of(model, cluster_of(name), job, stack) for name in ("8xh100", "8xa100-80"))
    both = [GpuGroup(h100, 1), GpuGroup(a100, 1)]
    return {
        "little memory": stage_problem([GpuGroup(h100, 4)], Policy(pp=4, dp=2), headroom=0.65),
        "two kinds of GPU": stage_problem(both, Policy(pp=2, tp=4, dp=2), stage_tp=(4, 8)),
    }


PROBLEM = ProblemKind(
    name="stages", summary="layers, recompute, GPUs and TP of each pipeline stage", options=StageOptions,
    methods=("dp",), space=_space, examples=_examples,
)  # fmt: skip
