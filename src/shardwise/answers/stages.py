"""`search stages`: layers of each pipeline stage, the even split against the best, with the layers that recompute."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import Struct

from shardwise.answers._that_fit import FitsNear, fits_near
from shardwise.answers.answer import Cell, FactList, Part, Table
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.arrays import Ints
from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems import GpuGroup, StageProblem, stage_problem
from shardwise.question import PolicyQuestion
from shardwise.report.terminal import policy_text
from shardwise.spec.policy import Policy
from shardwise.step.simulate.split import simulate_split
from shardwise.units import gib, time_text
from shardwise.work.case import Case

MOST_PATHS = 10**6


class StageSplit(Struct, frozen=True, kw_only=True):
    fits: bool
    layers: Sequence[int]
    recomputed_layers: Sequence[int]
    stage_s: Sequence[float]
    """one micro-batch of each stage"""
    peak_bytes: Sequence[float]
    slowest_s: float
    step_s: float
    """simulated"""
    closed_form_step_s: float


class StagesAnswer(FitsNear, frozen=True, kw_only=True):
    origin_first: ClassVar[bool] = True

    legal: bool
    fits: bool
    proven: bool
    model: str
    cluster: str
    stack: str
    seq_tokens: int
    global_sequences: int
    precision: str
    optimizer: str
    policy: Policy
    policy_origin: str
    limit_bytes: float
    even: StageSplit
    best: StageSplit | None
    """none where no split fits"""

    @property
    def exit_code(self) -> int:
        return 0 if self.fits else 1

    def parts(self) -> Iterator[Part]:
        facts: list[tuple[str, Cell]] = [("policy", policy_text(self.policy)), ("even", _words(self.even))]
        if self.best is None:
            facts.append(("best", f"no split fits in {gib(self.limit_bytes)} GiB, even with every layer recomputed"))
        else:
            gain = self.even.step_s / self.best.step_s - 1.0
            facts += [("best", _words(self.best)), ("gain", f"{gain:+.1%} throughput over the even split")]
        yield FactList(f"{self.model} on {self.cluster}: layers of {self.policy.pp} stages", facts)
        heads = ["stage", "even", "best", "recomputed", "even ms", "best ms", "even GiB", "best GiB"]
        even, best = self.even, self.best or self.even
        rows = [
            (str(i), even.layers[i], best.layers[i], best.recomputed_layers[i], f"{even.stage_s[i] * 1e3:,.1f}",
             f"{best.stage_s[i] * 1e3:,.1f}", gib(even.peak_bytes[i]), gib(best.peak_bytes[i]))
            for i in range(self.policy.pp)
        ]  # fmt: skip
        title = "layers, one micro-batch and peak memory of each stage"
        yield Table(title, heads, rows, bars=("even ms", "best ms"))
        yield from self.near(self.policy)

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [
            *notes,
            "--recompute is not used here: each stage recomputes as many whole layers as it must to fit, no more",
            f"limit {gib(self.limit_bytes)} GiB; the split is {'exact' if self.proven else 'the best found'} for "
            "(m - k) x slowest + k x all, steps are simulated",
        ]


ANSWERS = (StagesAnswer, CannotRunAnswer)


def stages_answer(ask: PolicyQuestion, headroom: float) -> StagesAnswer:
    """The policy must be legal; `headroom`: share of a GPU's memory that may be filled."""
    case, policy = ask.case, ask.policy
    problem = stage_problem([GpuGroup(case, policy.pp)], policy, headroom=headroom)
    found = method_of("dp").solve(problem, budget_evaluations=MOST_PATHS)
    even = _split(case, policy, problem, problem.default)
    best = None if found.point is None else _split(case, policy, problem, found.point)
    return StagesAnswer(
        legal=True, fits=best is not None, proven=found.proven, model=ask.model.name, cluster=ask.cluster.name,
        stack=ask.stack.name, seq_tokens=ask.job.seq, global_sequences=ask.job.global_batch,
        precision=ask.job.precision.name, optimizer=ask.job.optimizer.name, policy=policy, policy_origin=ask.origin,
        limit_bytes=problem.options[0].limit_bytes, even=even, best=best,
        notes=ask.notes, **fits_near(case, policy, even.closed_form_step_s, fits=best is not None),
    )  # fmt: skip


def _split(case: Case, policy: Policy, problem: StageProblem, point: Ints) -> StageSplit:
    held, priced = problem.assignment(point), problem.price(point[None])
    step = simulate_split(case, policy, held.layers, held.recomputed)
    return StageSplit(
        fits=bool(priced.over[0] == 0), layers=held.layers, recomputed_layers=held.recomputed, stage_s=held.stage_s,
        peak_bytes=held.peak_bytes, slowest_s=max(held.stage_s), step_s=step.step_s,
        closed_form_step_s=float(priced.seconds[0]),
    )  # fmt: skip


def _words(split: StageSplit) -> str:
    fits = "" if split.fits else ", does not fit"
    return f"step {time_text(split.step_s)}, slowest stage {time_text(split.slowest_s)}{fits}"
