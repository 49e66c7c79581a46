"""What Python asks: the answers of `estimate`, `plan` and `posttrain` by the command line's rules, defaults and notes,
and policies as a table."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from shardwise.answers._planned import Planned
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.answers.estimate import EstimateAnswer, estimate_answer
from shardwise.answers.plan import PlanAnswer, plan_answer
from shardwise.answers.posttrain import PosttrainAnswer, posttrain_answer
from shardwise.plan import scan
from shardwise.question import Question, open_question_of, options_of, question_of
from shardwise.question.command import further_words
from shardwise.question.legal import legal_of
from shardwise.question.policy import stated_policy
from shardwise.question.posttrain import posttrain_question
from shardwise.question.words import policy_from
from shardwise.registry import closest
from shardwise.report.terminal import policy_code
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.parameters import PosttrainOptions, posttrain_parameters
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate

ModelLike = str | Model | Mapping[str, Any]
ClusterLike = str | Cluster | Mapping[str, Any]


def estimate_of(model: ModelLike, on: ClusterLike, **options: Any) -> EstimateAnswer | CannotRunAnswer:
    """`shardwise estimate MODEL --on CLUSTER`, its flags as options: `estimate_of("llama-3-8b", on="8xh100", tp=2)`."""
    return estimate_answer(question_of(model, on, **options), model=_named(model), on=_named(on))


def plan_of(model: ModelLike, on: ClusterLike, *, top: int = 5, **options: Any) -> PlanAnswer:
    """`shardwise plan MODEL --on CLUSTER --top TOP`."""
    given = options_of(options)
    if given.sync is not None:
        raise ValueError(f"sync: {given.sync!r}, but plan_of plans the mean gradient; write `shardwise plan --sync`")
    question = open_question_of(model, on, given)
    if question.lengths is not None:
        from shardwise.plan.by_lengths import scan_by_lengths  # most answers are of full sequences

        ranked = scan_by_lengths(question.case, question.lengths, top=top, **question.bounds)
    else:
        ranked = scan(question.case, top=top, extremes=True, **question.bounds)
    planned = Planned(question, question.cluster, ranked, top)
    return plan_answer(planned, model=_named(model), on=_named(on), further=further_words(given))


def posttrain_of(model: ModelLike, on: ClusterLike, **options: Any) -> PosttrainAnswer:
    """`shardwise posttrain MODEL --on CLUSTER`, its flags as options: `posttrain_of("qwen3-32b", on="dgx-h100:64")`."""
    known = posttrain_parameters()
    for name in options:
        if name not in known:
            raise ValueError(f"{name}: is no option of posttrain; {closest(name, list(known))}")
    ask = posttrain_question(
        model if isinstance(model, Model) else model_of(model), on if isinstance(on, Cluster) else cluster_of(on),
        PosttrainOptions(**options),
    )  # fmt: skip
    return posttrain_answer(ask, model=_named(model), on=_named(on))


def table_of(question: Question, policies: Iterable[Policy | str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each policy, as a DataFrame takes them: `DataFrame(table_of(question, ["tp=2", {"tp": 4, "pp": 2}]))`.

    Words and options state a policy as flags do: what is left out is as the command line has it. A policy that cannot
    run has the rule and no numbers."""
    case, found = question.case, [_policy(question, each) for each in policies]
    verdicts = [legal_of(case, policy, cure=False) for policy in found]
    legal = [policy for policy, verdict in zip(found, verdicts, strict=True) if verdict.legal]
    priced = iter(_numbers(question, legal))
    return [
        {"code": policy_code(policy), **asdict(policy), "legal": verdict.legal, "rule": verdict.rule,
         "why": verdict.why, **(next(priced) if verdict.legal else dict.fromkeys(NUMBERS))}
        for policy, verdict in zip(found, verdicts, strict=True)
    ]  # fmt: skip


NUMBERS = ("fits", "host_fits", "step_s", "tokens_per_s_per_gpu", "peak_bytes", "host_bytes")


def _numbers(question: Question, policies: list[Policy]) -> list[dict[str, Any]]:
    if not policies:
        return []
    case = question.case
    found = estimate(case, Policies.of(policies), sync=question.sync)
    held = found.memory.host_bytes <= case.cluster.host_bytes_per_gpu
    columns = (found.fits, held, found.times.step_s, found.tokens_per_s_per_gpu, found.memory.peak,
               found.memory.host_bytes)  # fmt: skip
    return [dict(zip(NUMBERS, (each.item() for each in row), strict=True)) for row in zip(*columns, strict=True)]


def _policy(question: Question, given: Policy | str | Mapping[str, Any]) -> Policy:
    if isinstance(given, Policy):
        return given
    if isinstance(given, str):
        found = policy_from(given, question, question.cluster)
        if found is None:
            raise ValueError(f"policy: nothing fits inside {given!r}; write a policy, such as tp=8,pp=4")
        return found
    case = question.case
    return stated_policy(options_of(given), case.model, case.cluster, case.job, case.stack)[0]


def _named(given: object) -> str:
    """As a command line names it; empty: it cannot."""
    return given if isinstance(given, str) else ""
