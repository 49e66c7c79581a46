"""`shardwise plan`: the best policies for a model on a cluster, and why the others lose."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from shardwise.calibrate.overlay import what_it_changes
from shardwise.cli._budget import Budget, budget_of
from shardwise.cli._choice import check_policy
from shardwise.cli._flags import DOES_NOT_FIT, Flags, asked_openly, on_of
from shardwise.cli._frontier import Corner, frontier_data, frontier_of, show_frontier
from shardwise.cli._groups import OUTPUT, QUESTION
from shardwise.cli._joint_flags import NO_JOINT, JointFlags, check_joint
from shardwise.cli._left import best_left
from shardwise.cli._measure_flags import CANDIDATES, NO_TRIALS, TrialFlags, check_measure
from shardwise.cli._options import Json, ModelName, within
from shardwise.cli._output import print_gap, print_json, print_notes
from shardwise.cli._plan_page import PlanResult, notes_of, nothing_fits, plan_data, program_note, show_plan
from shardwise.cli._points import SizePoint, counts_of, point_at, point_data
from shardwise.cli._progress import answers, bar, left_out, shown_so_far
from shardwise.cli._why import WhyNotAnswer, questions_of, show_waterfall, show_why_not, waterfall_data, why_not_of
from shardwise.engines._cores import cores
from shardwise.estimate.synced import choices_of
from shardwise.plan import scan
from shardwise.plan.candidate import Candidate
from shardwise.plan.constraints import words_of
from shardwise.question import Question
from shardwise.question.command import command_of, further_words, overlap_words
from shardwise.spec.load import cluster_of
from shardwise.spec.sizes import sizes_of

if TYPE_CHECKING:
    from shardwise.cli._joint import JointAnswer
    from shardwise.cli._measure import MeasureAnswer

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
    top: Annotated[int, Parameter(group=OUTPUT, help="Policies to list."), within(1, MOST_SHOWN)] = 10,
    questions: PlanQuestions = PlanQuestions(),
    joint: JointFlags = NO_JOINT,
    trials: TrialFlags = NO_TRIALS,
    json: Json = False,
) -> int:
    """The best policies, why they win, why the others do not, how long and how much."""
    case = asked_openly(model, flags.on, flags)
    shape, cluster, job, measured, on = case.model, case.cluster, case.job, case.profile, on_of(flags)
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
            _over_budget(chosen, on, notes, json=json)
            return DOES_NOT_FIT
        on, cluster = chosen.name, chosen.cluster
        notes.append(f"inside the budget the fastest size is {cluster.name}")
    listed = max(top, 2 if questions.why else 1, CANDIDATES if trials.measure else 1)
    given: dict[str, Any] = {"top": listed, "processes": cores(), **case.bounds}
    if case.lengths is not None:
        from shardwise.plan.by_lengths import scan_by_lengths  # most answers are of full sequences

        with bar("policies over the data") as progress:
            ranked = scan_by_lengths(case.on(cluster), case.lengths, told=progress, **given)
        planned = PlanResult(case, cluster, ranked, top)
    elif flags.sync is None:
        with bar("frames of policies") as progress:
            ranked = scan(case.on(cluster), progress=progress, so_far=shown_so_far(_so_far), extremes=True, **given)
            left = None if ranked.points or case.only else best_left(case, sizes_of(on), cluster)
            if left is not None:
                case, cluster, on, largest = left.case, left.cluster, left.name, left.name
                notes.append(left.why)
                ranked = scan(case.on(cluster), progress=progress, extremes=True, **given)
        planned = PlanResult(case, cluster, ranked, top)
    else:
        from shardwise.plan.synced import scan_over  # most answers are of the mean gradient

        with bar("strategies") as progress:
            choices = choices_of(flags.sync, job.optimizer.name)
            ranked, each = scan_over(choices, case.on(cluster), told=progress, **given)
        planned = PlanResult(case, cluster, ranked, top, tuple(each))
    if not ranked.finished and not ranked.best:
        raise KeyboardInterrupt  # that nothing fits would be said of what was never looked at
    whole = tried = None
    if joint.joint:
        from shardwise.cli._joint import joint_answer  # it takes longer to import than most plans

        whole = joint_answer(joint, model, on, case, cluster, ranked, flags.sync, case.host_bytes)
    also = [whole.result.line.policy] if whole is not None and whole.result.best.point is not None else []
    notes += [program_note(planned)] if joint.mixed else notes_of(planned, also)
    if measured is not None:
        notes += [measured.words, *what_it_changes(measured, case.stack)]
    if ranked.recommended is not None and cluster_of(on).gpus == cluster.gpus and not joint.mixed:
        taken = ranked.recommended.policy
        command = command_of(model, on, case.job, taken, case.stack.name)
        further = [*further_words(flags), *overlap_words(taken, case.stack)]
        notes.append("run: " + shlex.join([*shlex.split(command), *further]))
    if trials.measure is not None and ranked.best:
        from shardwise.cli._measure import measured_answer

        tried = measured_answer(trials, model, on, case, case.on(cluster), ranked)
    _answer(planned, largest, questions, notes, whole, tried, json=json)
    if tried is not None and not tried.belief.measured:
        return DOES_NOT_FIT
    return 0 if ranked.best or (whole is not None and whole.result.best.point is not None) else DOES_NOT_FIT


def _so_far(found: Sequence[Candidate]) -> list[dict[str, Any]]:
    """For whoever looks on: the first of those that are known."""
    return [
        {"policy": each.policy, "step_s": each.step_s, "tokens_per_s_per_gpu": each.tokens_per_s_per_gpu,
         "peak_bytes": each.peak_bytes}
        for each in found[:SO_FAR]
    ]  # fmt: skip


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


def _over_budget(points: list[SizePoint], on: str, notes: list[str], *, json: bool) -> None:
    if json:
        print_json({"best": [], "plans": [], "over_budget": [point_data(p) for p in points], "notes": notes})
        return
    lines = [
        f"{p.cluster.name}: {'over in ' + ' and '.join(p.misses) if p.report else 'no policy fits'}" for p in points
    ]
    print_notes(lines, title=f"nothing up to {on} is inside the budget")
    print_notes(notes)


def _further(
    planned: PlanResult, largest: str, asked: PlanQuestions, notes: list[str]
) -> tuple[list[WhyNotAnswer], list[Corner]]:
    """What is asked beside the plan. Ctrl-C, now or in the scan before, leaves the plan and what is there."""
    case, refusals, points = planned.case, list[WhyNotAnswer](), list[Corner]()
    try:
        if not planned.ranked.finished:
            raise KeyboardInterrupt
        for text, words in questions_of(asked.why_not or (), case.model):
            refusals.append(why_not_of(text, words, planned))
        if asked.pareto:
            points, missing = frontier_of(case, sizes_of(largest), cluster_of(largest).gpus)
            notes += missing
    except KeyboardInterrupt:
        if asked.why_not or asked.pareto:
            notes.append("interrupted: --why-not and --pareto are not answered, or not all of them")
    return refusals, points


def _show_even(planned: PlanResult) -> None:
    if planned.ranked.best:
        show_plan(planned)
    else:
        title = f"{planned.case.model.name} on {planned.cluster.name}: no policy fits"
        print_notes(nothing_fits(planned), title=title)


def _answer(
    planned: PlanResult, largest: str, asked: PlanQuestions, notes: list[str], joint: "JointAnswer | None",
    tried: "MeasureAnswer | None", *, json: bool,
) -> None:  # fmt: skip
    case = planned.case
    refusals, points = _further(planned, largest, asked, notes)
    if json:
        extra: dict[str, Any] = {
            "constraints": words_of(case.only) or None,
            "pareto": frontier_data(case, points) if asked.pareto else None,
            "waterfall": waterfall_data(planned) if asked.why else None,
            "why_not": [found.data for found in refusals],
            "joint": None,
            "measure": None,
        }
        if joint is not None:
            from shardwise.cli._joint_page import joint_data

            extra["joint"] = joint_data(joint)
        if tried is not None:
            from shardwise.cli._measure_page import measure_data

            extra["measure"] = measure_data(tried)
        print_json(plan_data(planned) | extra | {"notes": notes})
        return
    if joint is not None:
        from shardwise.cli._joint_page import joint_notes, show_joint

        show_joint(joint, f"{case.model.name} on {' + '.join(joint.clusters)}", joint.command)
        notes = [*joint_notes(joint), *notes]
    # of parts that are joined, the plan of the first alone would be one more answer to another question
    if joint is None or len(joint.clusters) == 1:
        if joint is not None and planned.ranked.best:
            print_gap()
        _show_even(planned)
    if asked.why:
        show_waterfall(planned)
    show_why_not(refusals)
    if asked.pareto:
        show_frontier(case, points)
    if tried is not None:
        from shardwise.cli._measure_page import show_measure

        show_measure(tried, planned.top)
    print_notes(notes)
