"""`shardwise plan`: the best policies for a model on a cluster, and why the others lose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from msgspec import Struct

from shardwise.answers._budget import Budget, budget_of
from shardwise.answers._frontier import FrontierRow, frontier_rows, unbeaten
from shardwise.answers._plan_rows import plan_columns, ranked_policy
from shardwise.answers._planned import Planned
from shardwise.answers._sizes import SizePoint, counts_of, over_budget, point_at
from shardwise.answers._why_not import WhyNotRow, questions_of, why_not_row
from shardwise.answers.answer import Notes, Part
from shardwise.answers.plan import OverBudgetAnswer, PlanAnswer, plan_answer
from shardwise.cost.calibrate.overlay import what_it_changes
from shardwise.plan import scan
from shardwise.plan.candidate import Candidate
from shardwise.plugins.engines._cores import cores
from shardwise.question import Question
from shardwise.question.command import further_words
from shardwise.question.words import check_policy
from shardwise.show.cli._flags import DOES_NOT_FIT, Flags, asked_openly, on_of
from shardwise.show.cli._groups import OUTPUT, QUESTION
from shardwise.show.cli._joint_flags import NO_JOINT, JointFlags, check_joint
from shardwise.show.cli._left import best_left
from shardwise.show.cli._measure_flags import CANDIDATES, NO_TRIALS, TrialFlags, check_measure
from shardwise.show.cli._options import Json, ModelName, Verbose, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import answers, bar, left_out, shown_so_far
from shardwise.spec.load import cluster_of
from shardwise.spec.sizes import sizes_of
from shardwise.step.estimate.synced import choices_of

if TYPE_CHECKING:
    from shardwise.show.cli._joint import JointAnswer
    from shardwise.show.cli._measure import MeasureAnswer

MOST_SHOWN = 1000
SO_FAR = 5
"""policies that are shown while the search goes on"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlanQuestions:
    """What else is asked about the plan."""

    budget: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            group=QUESTION,
            help="At most '500k USD', '30 d', '64 GPUs', '400 kW': tries smaller sizes; may repeat.",
        ),
    ] = None
    pareto: Annotated[
        bool, Parameter(group=QUESTION, help="Policies unbeaten in time, memory, cost and GPUs, over sizes.")
    ] = False
    why: Annotated[bool, Parameter(group=QUESTION, help="The winner against the runner-up, part by part.")] = False
    why_not: Annotated[
        list[str] | None,
        Parameter(
            negative=(), group=QUESTION, help="A policy ('tp=8,pp=1', fsdp) or 'rules' (of thumb): why it loses."
        ),
    ] = None


def plan(
    model: ModelName,
    /,
    flags: Flags,
    *,
    top: Annotated[int, Parameter(group=OUTPUT, help="Policies to list."), within(1, MOST_SHOWN)] = 5,
    questions: PlanQuestions = PlanQuestions(),
    joint: JointFlags = NO_JOINT,
    trials: TrialFlags = NO_TRIALS,
    verbose: Verbose = False,
    json: Json = False,
) -> int:
    """The best policies, why they win, why the others do not, how long and how much."""
    case = asked_openly(model, flags.on, flags)
    shape, cluster, job, on = case.model, case.cluster, case.job, on_of(flags)
    notes = list(case.notes)
    for _, text in questions_of(questions.why_not or (), shape):
        check_policy(text)
    check_joint(joint)
    check_measure(trials, flags.sync, case.stack.name, cluster)
    if case.lengths is not None:
        _check_alone(flags.sync, questions, joint, trials)
    if flags.sync is not None:
        if questions.budget or questions.pareto:
            raise ValueError("sync: sizes of a --budget or a --pareto front are planned with the mean gradient only; "
                             "write --sync without them")  # fmt: skip
        choices_of(flags.sync, job.optimizer.name)  # bad names fail before anything long
    limit, largest = budget_of(questions.budget or ()), on
    if questions.budget:
        chosen = _inside(case, on, limit)
        if isinstance(chosen, list):
            return answered(_over_budget(chosen, on, notes), json, verbose)
        on, cluster = chosen.name, chosen.cluster
        notes.append(f"inside the budget the fastest size is {cluster.name}")
    listed = max(top, 2 if questions.why else 1, CANDIDATES if trials.measure else 1)
    given: dict[str, Any] = {"top": listed, "processes": cores(), **case.bounds}
    if case.lengths is not None:
        from shardwise.plan.by_lengths import scan_by_lengths  # most answers are of full sequences

        with bar("policies over the data") as progress:
            ranked = scan_by_lengths(case.on(cluster), case.lengths, told=progress, **given)
        planned = Planned(case, cluster, ranked, top)
    elif flags.sync is None:
        with bar("frames of policies") as progress:
            ranked = scan(case.on(cluster), progress=progress, so_far=shown_so_far(_so_far), extremes=True, **given)
            left = None if ranked.points or case.only else best_left(case, sizes_of(on), cluster)
            if left is not None:
                case, cluster, on, largest = left.case, left.cluster, left.name, left.name
                notes.append(left.why)
                ranked = scan(case.on(cluster), progress=progress, extremes=True, **given)
        planned = Planned(case, cluster, ranked, top)
    else:
        from shardwise.plan.synced import scan_over  # most answers are of the mean gradient

        with bar("strategies") as progress:
            choices = choices_of(flags.sync, job.optimizer.name)
            ranked, each = scan_over(choices, case.on(cluster), told=progress, **given)
        planned = Planned(case, cluster, ranked, top, tuple(each))
    if not ranked.finished and not ranked.best:
        raise KeyboardInterrupt  # that nothing fits would be said of what was never looked at
    whole = tried = None
    if joint.joint:
        from shardwise.show.cli._joint import joint_answer  # it takes longer to import than most plans

        whole = joint_answer(joint, model, on, case, cluster, ranked, flags.sync)
    if trials.measure is not None and ranked.best:
        from shardwise.show.cli._measure import measured_answer

        tried = measured_answer(trials, model, on, case, case.on(cluster), ranked)
    case = replace(case, notes=tuple(notes))
    answer = _answer(replace(planned, question=case), model, on, largest, flags, questions, whole, tried)
    code = answered(answer, json, parts=_parts(answer, whole, tried, top, verbose))
    return DOES_NOT_FIT if tried is not None and not tried.belief.measured else code


def _so_far(found: Sequence[Candidate]) -> dict[str, Sequence[Struct]]:
    """For whoever looks on: the first of those that are known."""
    rows = [ranked_policy(each) for each in found[:SO_FAR]]
    return {"columns": plan_columns(rows), "best": rows}


def _check_alone(sync: str | None, asked: PlanQuestions, joint: JointFlags, trials: TrialFlags) -> None:
    """What is answered of steps over full sequences only."""
    stated = {"sync": sync, "budget": asked.budget, "pareto": asked.pareto, "why": asked.why,
              "why-not": asked.why_not, "joint": joint.joint, "measure": trials.measure}  # fmt: skip
    for name, value in stated.items():
        if value:
            raise ValueError(f"lengths: --{name} is answered for sequences that are all as long as --seq; leave one of "
                             f"--lengths and --{name} out")  # fmt: skip


def _inside(case: Question, on: str, limit: Budget) -> SizePoint | list[SizePoint]:
    """The fastest size up to the one named that stays inside the budget; all of them where none does."""
    if limit.needs_tokens and not case.job.tokens:
        raise ValueError("budget: dollars and time need the tokens of the whole run; write for example --tokens 1T")
    sizes = sizes_of(on)
    counts = counts_of(sizes, cluster_of(on).gpus)
    tokens = case.job.tokens or 1e9
    points = answers(counts, "cluster sizes", lambda gpus: point_at(case, sizes, gpus, tokens, limit, None))
    if left_out(points, counts, "cluster sizes"):
        raise KeyboardInterrupt  # the fastest of some sizes is no answer
    inside = [p for p in points if p.meets]
    return min(inside, key=lambda p: p.report.step_s if p.report else 0.0) if inside else points


def _over_budget(points: Sequence[SizePoint], on: str, notes: Sequence[str]) -> OverBudgetAnswer:
    return OverBudgetAnswer(cluster=on, best=(), over_budget=list(map(over_budget, points)), notes=notes)


def _answer(
    planned: Planned, model: str, on: str, largest: str, flags: Flags, asked: PlanQuestions,
    joint: "JointAnswer | None", tried: "MeasureAnswer | None",
) -> PlanAnswer:  # fmt: skip
    refusals, points, notes = _further(planned, largest, asked)
    measured, mixed = planned.question.profile, joint is not None and len(joint.clusters) > 1
    if measured is not None:
        notes = [measured.words, *what_it_changes(measured, planned.question.stack), *notes]
    searched = tests = None
    if joint is not None:
        from shardwise.show.cli._joint_page import joint_outcome

        searched = joint_outcome(joint)
    if tried is not None:
        from shardwise.show.cli._measure_page import measure_outcome

        tests = measure_outcome(tried)
    further = [joint.result.line.policy] if joint is not None and joint.result.best.point is not None else []
    return plan_answer(
        planned, model=model, on=on, further=further_words(flags), also=further, differences=asked.why,
        why_not=refusals, pareto=points, joint=searched, measure=tests, notes=notes,
        part=mixed or cluster_of(on).gpus != planned.cluster.gpus,
    )  # fmt: skip


def _further(
    planned: Planned, largest: str, asked: PlanQuestions
) -> tuple[list[WhyNotRow], list[FrontierRow] | None, list[str]]:
    """Of --why-not and --pareto, with a note: Ctrl-C, now or in the scan before, leaves the plan and what is there."""
    question, refusals, points = planned.question, list[WhyNotRow](), list[FrontierRow]()
    notes: list[str] = []
    try:
        if not planned.ranked.finished:
            raise KeyboardInterrupt
        for text, words in questions_of(asked.why_not or (), question.model):
            refusals.append(why_not_row(text, words, planned))
        if asked.pareto:
            sizes = sizes_of(largest)
            counts = counts_of(sizes, cluster_of(largest).gpus)
            each = answers(counts, "cluster sizes", lambda gpus: frontier_rows(question, sizes.at(gpus)))
            points, notes = unbeaten([row for rows in each for row in rows]), left_out(each, counts, "cluster sizes")
    except KeyboardInterrupt:
        if asked.why_not or asked.pareto:
            notes.append("interrupted: --why-not and --pareto are not answered, or not all of them")
    return refusals, points if asked.pareto else None, notes


def _parts(
    answer: PlanAnswer, joint: "JointAnswer | None", tried: "MeasureAnswer | None", top: int, verbose: bool
) -> Iterator[Part]:
    mixed = joint is not None and len(joint.clusters) > 1
    if joint is not None:
        from shardwise.show.cli._joint_page import joint_notes, joint_parts

        yield from joint_parts(joint, f"{answer.model} on {' + '.join(joint.clusters)}")
        yield Notes(joint_notes(joint))
    # of parts that are joined, the plan of the first alone would be one more answer to another question
    yield from [Notes(answer.notes)] if mixed else answer.parts()
    if tried is not None:
        from shardwise.show.cli._measure_page import measure_parts

        yield from measure_parts(tried, top)
    if verbose or mixed:
        yield from answer.more()
