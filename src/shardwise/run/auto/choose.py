"""Which split of a user's model is fastest on a cluster: the planner's answer, among those that can be made of it."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace
from torch import nn

from shardwise.plan import Limits, Ranking, scan
from shardwise.plan.constraints import constraints_of
from shardwise.plugins.pipeline import usual_schedule
from shardwise.run.auto.as_model import traced_model
from shardwise.run.auto.blocks import until_backward
from shardwise.run.auto.picture_ends import NotRecognised
from shardwise.run.auto.plan import AutoPlan, Degrees
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.proof import SplitPrediction
from shardwise.run.auto.prove import plan_of, refused
from shardwise.run.auto.refusals import RefusedSplit, parts_of
from shardwise.run.auto.wide import comparable
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import Case, case_of

STACK = "torchtitan"
"""FSDP2 and torch's own kernels: what the split is run with"""
MADE_HERE = "zero=3,recompute!=selective,recompute_layers=-1,offload!=optimizer,offload!=both"
"""what `parallelize` does of all that a policy may say"""
NARROWER = ("", "ep=1", "ep=1,sp=off")
"""where none of the fastest can be made: without experts that are shared out, then without shared tokens"""
LOOKED_AT = 400


class Choice(Struct, frozen=True, kw_only=True):
    """The split to make."""

    plan: AutoPlan
    prediction: SplitPrediction
    model: Model | None = None
    policy: Policy | None = None


def chosen(
    program: UserProgram, cluster: Cluster, fix: Sequence[str] = (), refusals: Sequence[RefusedSplit] = ()
) -> Choice:
    """`refusals`: of proofs that were made before."""
    samples = program.samples
    plain = plan_of(program, Degrees())
    try:
        model = traced_model(*_run(program), "traced")
    except NotRecognised as error:
        return _sharded_only(program, cluster, samples, str(error), fix)
    job = Job(seq=max(plain.tokens, 1), global_batch=samples)
    case = case_of(model, cluster, job, stack_of(STACK))
    maker = _Maker(program, samples, plain, refusals)
    points = 0
    for narrower in NARROWER:
        ranked = _ranked(case, samples, (narrower, *fix))
        points = max(points, ranked.points)
        for candidate in ranked.best:
            plan = maker.made(candidate.policy)
            if plan is not None:
                told = SplitPrediction(
                    step_s=candidate.step_s, peak_bytes=candidate.peak_bytes, passed_over=tuple(maker.passed.values())
                )
                return Choice(plan=plan, prediction=told, model=model, policy=candidate.policy)
    why = "none of the fastest can be made" if maker.passed else f"none of {points:,} policies fits"
    found = _sharded_only(program, cluster, samples, why, fix)
    told = replace(found.prediction, fits=False, passed_over=tuple(maker.passed.values()))
    return replace(found, model=model, prediction=told)


def _ranked(case: Case, samples: int, fix: Sequence[str]) -> Ranking:
    limits = Limits(micro_batch=max(samples, 1), least_local_seq=1, some_layers=False)
    # one by one: a split narrowed to sp=off beside the user's sp=on has no policy, which is no mistake of the user
    only = tuple(bound for text in (MADE_HERE, *filter(None, fix)) for bound in constraints_of([text]))
    return scan(case, top=LOOKED_AT, risk=1.0, limits=limits, only=only, losers=False)


class _Maker:
    """Plans of policies; why some are not made, each reason once."""

    def __init__(
        self, program: UserProgram, samples: int, plain: AutoPlan, refusals: Sequence[RefusedSplit] = ()
    ) -> None:
        self.program, self.samples, self.refusals = program, samples, refusals
        self.plans = {(1, 1, False, 1): plain}
        self.passed: dict[str, str] = {}

    def made(self, policy: Policy) -> AutoPlan | None:
        degrees = _degrees(policy, self.samples)
        if degrees is None:
            return None
        parts = set(parts_of(degrees))
        known = next((each for each in self.refusals if parts.issuperset(each.parts)), None)
        if known is not None:
            self.passed.setdefault(known.why, f"{degrees.text}: its proof did not hold: {known.why}")
            return None
        key = (degrees.tp, degrees.ep, degrees.sp, degrees.cp)
        if key not in self.plans:
            self.plans[key] = plan_of(self.program, degrees)
        plan = replace(self.plans[key], degrees=degrees)
        why = self.program.cannot(degrees) or refused(plan)
        joined = next((name for kind in plan.kinds for name in kind.joins if degrees.cp > 1), "")
        if joined and not why:
            why = f"every rank runs {joined} on whole sequences, where the planner counts a share (`verify` runs it)"
        if why:
            self.passed.setdefault(why, f"{degrees.text}: {why}")
        return None if why else plan


def _run(program: UserProgram) -> tuple[nn.Module, Callable[[], None]]:
    own = program.copy()

    def run() -> None:
        with comparable(wide=own.dtype == "float64"), until_backward():
            own.step(*own.parts, own.batches[0])

    return own.model, run


def _degrees(policy: Policy, samples: int) -> Degrees | None:
    """Without stages a rank's samples run at once; a policy that cuts them into micro-batches is not this one."""
    each = samples // (policy.dp * policy.micro_batch)
    if policy.pp == 1 and each > 1:
        return None
    group = policy.shard_group or policy.dp * policy.cp
    if group != policy.dp * policy.cp and (policy.cp > 1 or policy.dp % group):
        return None
    return Degrees(dp=policy.dp, tp=policy.tp, pp=policy.pp, cp=policy.cp, ep=policy.ep, micro_batches=each,
                   sp=policy.sp and policy.tp > 1, recompute=policy.recompute == "full", vpp=policy.vpp,
                   offload=policy.offload,
                   schedule="" if policy.schedule == usual_schedule(policy.vpp) else policy.schedule,
                   replicas=policy.dp * policy.cp // group)  # fmt: skip


def _sharded_only(program: UserProgram, cluster: Cluster, samples: int, why: str, fix: Sequence[str]) -> Choice:
    """FSDP2 needs nothing but blocks that repeat."""
    degrees = Degrees(dp=next(size for size in _divisors(cluster.gpus) if samples % size == 0))
    policy = Policies.of([Policy(dp=degrees.dp, zero=3, sp=False)])
    missed = [each.text for each in constraints_of(fix) if not each.holds(policy).all()]
    if missed:
        why += f"; so {', '.join(missed)} is not held to (name the split to `prove`)"
    return Choice(plan=plan_of(program, degrees), prediction=SplitPrediction(unknown=why, fits=not missed))


def _divisors(number: int) -> Iterator[int]:
    return (size for size in range(number, 0, -1) if number % size == 0)
