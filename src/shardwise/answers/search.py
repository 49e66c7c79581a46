"""`search`: the best point of a problem, by one method or by several side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Struct

from shardwise.answers.answer import Answer, FactList, Figure, Part, Table
from shardwise.plan.search.methods import Comparison, Solution
from shardwise.plan.search.problems import ProblemKind, SearchSpace
from shardwise.question import PolicyQuestion
from shardwise.report.charts import Chart, chart_svg
from shardwise.report.search_figure import SearchCourse, search_chart
from shardwise.units import time_text


class DefaultPoint(Struct, frozen=True, kw_only=True):
    """Without a search."""

    objective_s: float
    fits: bool


class MethodRow(Struct, frozen=True, kw_only=True):
    objective: float | None
    objective_s: float | None
    """the same; none where nothing was found"""
    gap: float | None
    """above the optimum, or above the best bound, as a share of it"""
    own_gap: float | None
    """above the method's own bound"""
    bound_s: float | None
    evaluations: int
    seconds: float
    proven: bool
    trace: Sequence[tuple[int, float]]
    """(evaluations, objective) at each improvement"""
    trace_s: Sequence[float]


class SearchAnswer(Answer, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("title", "without", "table", "facts")

    model: str
    clusters: str
    problem: str
    objective: str
    fits: bool
    points: int | float
    default: DefaultPoint
    optimum_s: float | None
    bound_s: float | None
    methods: Mapping[str, MethodRow]
    best: Mapping[str, Any] | None
    """as its problem describes a point"""
    policy_origin: str
    title: Any = UNSET
    without: Any = UNSET
    """name of the default"""
    table: Any = UNSET
    """a PointTable of the best, if there is one"""
    facts: Any = UNSET
    """of the problem itself; keys beside those above in the JSON"""

    def data(self) -> dict[str, Any]:
        return {**self.facts, **super().data()}

    @property
    def exit_code(self) -> int:
        return 0 if self.fits else 1

    def parts(self) -> Iterator[Part]:
        yield Figure(lambda: chart_svg(self.chart))
        known = "no method proved one" if self.optimum_s is None else f"{time_text(self.optimum_s)}, proven"
        if self.optimum_s is None and self.bound_s is not None:
            known = f"not proven; nothing is below {time_text(self.bound_s)}"
        usual = time_text(self.default.objective_s) + ("" if self.default.fits else ", does not fit")
        yield FactList(self.title, [(self.without, usual), ("optimum", known)])
        rows = [
            (name, "none fits" if row.objective_s is None else time_text(row.objective_s),
             None if row.gap is None else f"{row.gap:.2%}", row.evaluations, f"{row.seconds:.3g}",
             "yes" if row.proven else "no")
            for name, row in self.methods.items()
        ]  # fmt: skip
        against = "above optimum" if self.optimum_s is not None else "above bound"
        yield Table("methods", ["method", self.objective, against, "evaluations", "seconds", "proven"], rows)
        if self.best is not None:
            yield Table("the best found", self.table.heads, self.table.rows, words=self.table.words)

    @property
    def chart(self) -> Chart:
        courses = [
            SearchCourse(name, row.objective_s or 0.0, row.evaluations, row.seconds, row.proven,
                         [(many, after, cost) for (many, cost), after in zip(row.trace, row.trace_s, strict=True)])
            for name, row in self.methods.items()
        ]  # fmt: skip
        return search_chart(courses, self.title, base_s=self.bound_s, proven=self.optimum_s is not None)


ANSWERS = (SearchAnswer,)


def search_answer(
    ask: PolicyQuestion, kind: ProblemKind, space: SearchSpace, found: Comparison, notes: Sequence[str]
) -> SearchAnswer:
    problem, best = space.problem, min(found.solutions.values(), key=lambda solution: solution.objective_s)
    priced = problem.price(problem.default[None])
    return SearchAnswer(
        model=ask.model.name, clusters=space.clusters, problem=kind.name, objective=space.objective,
        fits=best.point is not None, facts=space.facts,
        points=problem.points if problem.points < 2**63 else float(min(problem.points, 10**300)),
        default=DefaultPoint(objective_s=float(priced.seconds[0]), fits=bool(priced.over[0] == 0)),
        optimum_s=found.optimum_s, bound_s=found.bound_s,
        methods={name: _row(solution, found.gap(name)) for name, solution in found.solutions.items()},
        best=None if best.point is None else {space.price_key: best.objective_s, **space.best(best.point)},
        policy_origin=ask.origin, title=space.title, without=space.default,
        table=UNSET if best.point is None else space.table(best.point), notes=notes,
    )  # fmt: skip


def _row(found: Solution, gap: float | None) -> MethodRow:
    objective = None if found.point is None else found.objective_s
    return MethodRow(
        objective=objective, objective_s=objective, gap=gap, own_gap=found.gap, bound_s=found.bound_s,
        evaluations=found.evaluations, seconds=found.seconds, proven=found.proven,
        trace=[(evaluations, objective_s) for evaluations, _, objective_s in found.trace],
        trace_s=[seconds for _, seconds, _ in found.trace],
    )  # fmt: skip
