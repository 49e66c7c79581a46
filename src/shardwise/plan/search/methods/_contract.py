"""What every method states about itself, and what it hands back."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from shardwise.arrays import Ints
from shardwise.plan.search.methods._meter import Meter, Progress
from shardwise.plan.search.problems._contract import Problem

BUDGET = 20_000
"""points a method may price unless told otherwise"""


@dataclass(frozen=True)
class Solution:
    point: Ints | None
    """the best that may be used; nothing when none was found"""
    objective_s: float
    """infinite when nothing was found"""
    evaluations: int
    """whole points priced; for integer programming the nodes of its tree are counted too"""
    seconds: float
    bound_s: float | None
    """no point costs less than this, where the method knows"""
    proven: bool
    """the point is the best there is, and the further answers the next best; or there is none"""
    trace: tuple[tuple[int, float, float], ...]
    """(evaluations, seconds, objective) at each improvement"""
    ranked: tuple[Ints, ...]
    """the best different answers, as many as were asked for, best first"""
    finished: bool = True
    """false after Ctrl-C"""

    @property
    def gap(self) -> float | None:
        """How far the objective is above the method's own bound, as a share of the bound."""
        return None if self.bound_s is None or self.point is None else max(self.objective_s / self.bound_s - 1.0, 0.0)


def applies(_problem: Problem, _budget: int) -> str:
    return ""


def refusal(name: str, why: str) -> ValueError:
    return ValueError(f"method: {name} does not work on this problem: {why}; write another method")


def points_text(points: int) -> str:
    return f"{points:,}" if points < 10**7 else f"{points:.1e}" if points < 10**300 else "more than 1e300"


class Method(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    summary: str
    exact: bool
    """given time, it ends with a proof"""
    look: Callable[[Meter, int], None]
    """(meter, seed): prices points through the meter until done or nothing is left of its budget; sets the meter's
    bound and `proven` where it can"""
    why_not: Callable[[Problem, int], str] = applies
    """(problem, budget): why the method cannot work, or prove anything, there; empty where it can. Where the problem
    lacks the form it needs, `solve` raises a ValueError that says so"""

    def solve(
        self,
        problem: Problem,
        *,
        budget_evaluations: int = BUDGET,
        seed: int = 0,
        progress: Progress | None = None,
        count: int = 1,
    ) -> Solution:
        """`count`: different answers asked for, the best first. Ctrl-C ends the search with the best so far."""
        if budget_evaluations < 1:
            raise ValueError(f"budget: {budget_evaluations} is out of range; write a whole number of 1 or more")
        if seed < 0:
            raise ValueError(f"seed: {seed} is out of range; write a whole number of 0 or more")
        if count < 1:
            raise ValueError(f"count: {count} is out of range; write a whole number of 1 or more")
        meter = Meter(problem, budget_evaluations, progress, count)
        finished = True
        try:
            self.look(meter, seed)
        except KeyboardInterrupt:
            if meter.point is None:
                raise
            meter.proven = finished = False
        return Solution(
            point=meter.point, objective_s=meter.best, evaluations=meter.evaluations, seconds=meter.seconds,
            bound_s=meter.best if meter.proven and meter.point is not None else meter.bound, proven=meter.proven,
            trace=tuple(meter.trace), ranked=tuple(point for _, point in meter.ranked),
            finished=finished,
        )  # fmt: skip
