"""What `shardwise plan --joint` shows."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from shardwise.answers._together import (
    ExpertPlacement,
    JointMethod,
    JointOutcome,
    NodePlacement,
    PlannedLine,
    TimelineSteps,
)
from shardwise.answers.answer import Cell, FactList, Figure, Notes, Part, Table
from shardwise.plan.search.joint_study import JointResult
from shardwise.plan.search.methods import points_text
from shardwise.plan.search.problems.joint._space import stage_table, told
from shardwise.report.terminal import policy_code
from shardwise.show.cli._joint import JointAnswer
from shardwise.units import time_text

SHOWN_TIMES = 4
"""powers of ten, in seconds, at which the methods are compared"""


def joint_parts(answer: JointAnswer, title: str) -> Iterator[Part]:
    result = answer.result
    if result.best.point is None:
        yield Notes(["nothing fits, however the stages are filled"], f"{title}: everything at once")
        return
    yield FactList(f"{title}: everything at once", list(_facts(answer, result)))
    if result.problem.assignment(result.point) is not None:
        table = stage_table(result.problem, result.point)
        yield Table("stages", table.heads, table.rows, words=table.words)
    if result.line.parts:
        yield _ways(answer)
    if len(result.found.solutions) > 1:
        yield Figure(lambda: _drawn(answer, title))
        yield _methods(answer)


def _facts(answer: JointAnswer, result: JointResult) -> Iterator[tuple[str, Cell]]:
    yield "take", f"{_words(result)}: {_price(answer, result, result.objective)}"
    yield "plan", _against_plan(answer)
    yield "proof", _proof(answer)
    if answer.timeline_s is not None:
        before, after = answer.timeline_s
        yield "timeline", f"event by event {before:.4g} s as planned, {after:.4g} s now"
    if result.placement is not None and result.placement.nodes:
        saved = time_text(result.placement.saved_s)
        yield "nodes", f"placed unlike in order, which saves {saved} of the step; --json names the place of each"
    if answer.experts is not None and answer.experts.rank_of:
        fullest, in_order = answer.experts.imbalance, answer.experts.in_order
        yield "experts", f"fullest rank {fullest:.2f} x the mean, {in_order:.2f} in order; --json has the map"
    if answer.command:
        yield "write it", answer.command


def joint_notes(answer: JointAnswer) -> list[str]:
    problem = answer.result.problem
    if answer.result.best.point is None:
        return []
    left = ("one plan was" if problem.points == 1
            else f"{points_text(problem.points)} plans of {len(problem.lines):,} policies were")  # fmt: skip
    return [f"everything at once: {left} left by bounds", *answer.notes]


def _words(result: JointResult) -> str:
    """The answer, with layers where stages are not as the stack deals them out."""
    held, line = result.problem.assignment(result.point), result.line
    told = line.what or policy_code(line.policy)
    if line.unlike:
        told = f"{policy_code(line.policy)} in the first stage, {line.what},"
    if held is None and len(line.parts) == 1:
        return f"{told} with {policy_code(line.policy)}"
    if held is None or line.parts or len(held.layers) < 2:
        return told
    return f"{told} with {layers_text(held.layers)} layers"


def layers_text(layers: Sequence[int]) -> str:
    """17 + 3 x 15"""
    runs = [(count, len(list(each))) for count, each in groupby(layers)]
    return " + ".join(f"{times} x {count}" if times > 1 else str(count) for count, times in runs)


def _price(answer: JointAnswer, result: JointResult, value: float, weight: float | None = None) -> str:
    if answer.objective == "s":
        return f"{value:.4g} s"
    return f"{value:.4g} USD a step ({value / (weight or result.line.weight):.4g} s)"


def _against_plan(answer: JointAnswer) -> str:
    result, first = answer.result, answer.result.problem.lines[0]
    if not np.isfinite(result.plain):
        return "nothing fits with even stages"
    gain = result.gain or 0.0
    if gain <= 1e-9:
        return "nothing is better than plans without this search"
    more = f"{gain:.1%} more training in the same time" if answer.objective == "s" else f"{gain:.1%} more for the money"
    planned = first.what or policy_code(first.policy)
    return f"{planned}: {_price(answer, result, result.plain, first.weight)}; the answer does {more}"


def _proof(answer: JointAnswer) -> str:
    result = answer.result
    cheap = "cheaper" if answer.objective == "usd" else "faster"
    if result.gap <= 1e-9:
        return f"nothing of what is searched is {cheap}"
    if result.bound <= 0:
        return "none: no bound is known"
    unit = "USD a step" if answer.objective == "usd" else "s"
    return f"not proven: nothing is below {result.bound:.4g} {unit}, and the answer is {result.gap:.1%} above that"


def _ways(answer: JointAnswer) -> Table:
    """What else the parts can do, the best first."""
    result, money = answer.result, answer.objective == "usd"
    known = [line for line in result.problem.lines if line.build is None]
    rows: list[list[Cell]] = [
        [line.what, f"{line.step_s:.4g}", *([f"{line.weight * line.step_s:.4g}"] if money else []),
         f"{line.weight * line.step_s / result.objective - 1:+.1%}"]
        for line in known
    ]  # fmt: skip
    heads = ["way", "step s", *(["USD a step"] if money else []), "against it"]
    return Table("without one pipeline through them", heads, rows, breaks=0)


def _methods(answer: JointAnswer) -> Table:
    """The best that each method had after some time, as a share above the bound."""
    result = answer.result
    bound, solutions = result.bound or result.best.objective_s, result.found.solutions
    longest = max(found.seconds for found in solutions.values())
    last = int(np.floor(np.log10(max(longest, 1e-3))))
    times = [10.0**power for power in range(last - SHOWN_TIMES + 1, last + 1)]
    rows: list[list[Cell]] = []
    for name, found in solutions.items():
        at = [min((value for _, seconds, value in found.trace if seconds <= limit), default=None) for limit in times]
        ended = found.objective_s if found.point is not None else None
        rows.append([name, *("-" if value is None else f"{value / bound - 1:.2%}" for value in (*at, ended)),
                     found.evaluations, f"{found.seconds:.3g}", "yes" if found.proven else "no"])  # fmt: skip
    heads = ["method", *(f"{limit:g} s" for limit in times), "at its end", "points", "seconds", "proven"]
    return Table("best so far of each method, above the bound", heads, rows)


def _drawn(answer: JointAnswer, title: str) -> str:
    from shardwise.report.charts import chart_svg
    from shardwise.report.search_figure import SearchCourse, search_chart

    result = answer.result
    courses = [SearchCourse(name, found.objective_s, found.evaluations, found.seconds, found.proven, found.trace)
               for name, found in result.found.solutions.items()]  # fmt: skip
    unit = "s" if answer.objective == "s" else "USD a step"
    return chart_svg(search_chart(courses, f"{title}: methods on one problem", base_s=result.bound or None,
                                  proven=result.gap <= 1e-9, text=lambda value: f"{value:.4g} {unit}"))  # fmt: skip


def joint_outcome(answer: JointAnswer) -> JointOutcome:
    result, placement, experts = answer.result, answer.result.placement, answer.experts
    fits = result.best.point is not None
    first = next(iter(result.problem.lines), None)
    placed = placement is not None and placement.nodes
    return JointOutcome(
        objective=answer.objective, fits=fits, best_objective=result.objective if fits else None,
        step_s=result.step_s if fits else None,
        planned_objective=result.plain if np.isfinite(result.plain) else None,
        planned=None if first is None else PlannedLine(policy=first.policy, what=first.what),
        gain=result.gain if fits else None, bound=result.bound if np.isfinite(result.bound) else None,
        gap=result.gap if fits and np.isfinite(result.gap) else None, proven=bool(fits and result.gap <= 1e-9),
        lines=len(result.problem.lines), points=float(min(result.problem.points, 10**300)),
        best=told(result.problem, result.point) if fits else None,
        timeline=None if answer.timeline_s is None else
        TimelineSteps(planned_s=answer.timeline_s[0], best_s=answer.timeline_s[1]),
        placement=None if placement is None or not placed else
        NodePlacement(node_box=placement.nodes, saved_s=placement.saved_s, network_before_s=placement.before_s,
                      network_after_s=placement.after_s),
        experts=None if experts is None or not experts.rank_of else
        ExpertPlacement(rank_of_expert=experts.rank_of, imbalance=experts.imbalance,
                        in_order_imbalance=experts.in_order),
        methods={
            name: JointMethod(
                objective=found.objective_s if found.point is not None else None, bound=found.bound_s,
                evaluations=found.evaluations, seconds=found.seconds, proven=found.proven,
                trace=[(evaluations, value) for evaluations, _, value in found.trace],
                trace_s=[seconds for _, seconds, _ in found.trace],
            )
            for name, found in result.found.solutions.items()
        },
        command=answer.command or None, notes=answer.notes,
    )  # fmt: skip
