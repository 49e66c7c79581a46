"""`plan`: the policy to take and its reason, the fastest ones, why others lose, what was assumed, the next commands."""

import shlex
from collections.abc import Iterator, Sequence

from msgspec import UNSET, Struct, UnsetType

from shardwise.answers._assumed import BATCH, OF_BATCH, Assumption, assumptions_of
from shardwise.answers._estimate_parts import host_words
from shardwise.answers._frontier import FrontierRow, frontier_table
from shardwise.answers._plan_notes import plan_details, plan_notes, stack_line
from shardwise.answers._plan_rows import DAY, LoserRow, PlanColumn, PlanRow, loser_row, plan_columns, plan_row
from shardwise.answers._planned import Planned
from shardwise.answers._strategies import StrategyRow, strategies_table, strategy_rows
from shardwise.answers._together import JointOutcome, MeasureOutcome
from shardwise.answers._why_not import WhyNotRow, differences_of, waterfall_part
from shardwise.answers.answer import Answer, Cell, FactList, Figure, Notes, Part, Table, table
from shardwise.plan.choice import ALIKE, FAR, mechanisms
from shardwise.plan.constraints import words_of
from shardwise.question.command import WRITE_ADAPTERS, command_of, overlap_words, target_of
from shardwise.question.studies.tuning import tuning_facts
from shardwise.question.studies.why import Difference
from shardwise.report.report import TuningFacts
from shardwise.report.terminal import dollars_range, policy_code
from shardwise.report.tier import CLOSED_FORM
from shardwise.spec.policy import Policy
from shardwise.step.estimate.chance import chance_text
from shardwise.units import gib

LOSERS = 3
"""kinds that lose, listed without --verbose"""
USUAL, FEW, WIDE = 5, 3, 29
"""policies listed unless asked otherwise; where the code of one takes two lines, the first so many are enough"""
NARROW = ("risk", "bottleneck")
"""columns that a terminal has no room for"""


class PlanAnswer(Answer, frozen=True, kw_only=True):
    notes_among_parts = True
    tier: str
    model: str
    cluster: str
    gpus: int
    stack: str
    seq_tokens: int
    global_sequences: int
    precision: str
    optimizer: str
    uneven: bool
    pipeline_passes: int
    lengths: str | UnsetType = UNSET
    """of the data"""
    packing: str | UnsetType = UNSET
    step_tokens: int
    tokens: float | None
    error_band: float
    error_range: tuple[float, float] | None
    error_basis: str | None
    limit_bytes: float
    points: int
    """legal policies"""
    evaluated: int
    fitting: int
    finished: bool
    tuning: TuningFacts | UnsetType = UNSET
    risk: float
    recommended: PlanRow | None
    reason: str | None
    """for the recommended policy"""
    fastest: PlanRow | None
    """if every prediction holds, whatever the risk"""
    safest: PlanRow | None
    columns: Sequence[PlanColumn]
    """of `best`, as people read them"""
    best: Sequence[PlanRow]
    """by step time"""
    losers: Sequence[LoserRow]
    smallest: PlanRow | None
    """where nothing fits: what needs the least memory"""
    strategies: Sequence[StrategyRow] | UnsetType = UNSET
    constraints: str | None
    pareto: Sequence[FrontierRow] | None
    waterfall: Sequence[Difference] | None
    """from the first step to the second's"""
    why_not: Sequence[WhyNotRow]
    joint: JointOutcome | None
    measure: MeasureOutcome | None
    assumed: Sequence[Assumption]
    """what moves the step by more than 5 % and was not stated"""
    next: Sequence[str]
    """commands for the recommended policy"""
    details: Sequence[str]

    @property
    def exit_code(self) -> int:
        """1: nothing fits."""
        return 0 if self.best or (self.joint is not None and self.joint.fits) else 1

    def parts(self) -> Iterator[Part]:
        title = f"{self.model} on {self.cluster}"
        yield FactList(title if self.best else f"{title}: no policy fits", list(self._facts()))
        if self.best:
            yield Figure(self._figure)
            yield self._table()
            yield self._losers(LOSERS)
        if not isinstance(self.strategies, UnsetType):
            yield strategies_table(self.strategies)
        yield from self._asked()
        yield Notes(self._to_know(), "assumed, and to know")
        yield Notes(self._next(), "next")

    def more(self) -> Iterator[Part]:
        if len(self.losers) > LOSERS or self._wide:
            yield self._losers(len(self.losers) + 1)
        yield Notes(self.details, "details")

    def _facts(self) -> Iterator[tuple[str, Cell]]:
        if (take := self.recommended) is None:
            return
        yield "take", f"{policy_code(take.policy)}: {_words(take)}; {self.reason}"
        for name, other in (("fastest", self.fastest), ("safest", self.safest)):
            if other is not None:
                yield name, "= take" if other.policy == take.policy else _against(other, take)
        far = "; extrapolated: farther than usual" if take.doublings_from_it >= FAR else ""
        yield "nearest", f"measured run: {take.nearest_run}{far}"
        yield "error", self.error_basis and self.error_basis.partition(":")[0]
        if take.host_bytes:
            yield "host", host_words(take.host_bytes, take.host_limit_bytes)

    def _table(self) -> Table:
        """With the recommended policy among them, whatever its rank."""
        rows, take = list(self.best), self.recommended
        rows = rows[:FEW] if self._wide else rows
        if take is not None and not any(row.taken for row in rows):
            rows = [*rows[: max(len(rows) - 1, 1)], take]
        without = ["usd", "days"] if self.tokens is None else ["tokens_per_s_per_gpu", "billion_tokens"]
        if any(row.extra is not UNSET or row.waiting is not UNSET for row in rows):
            without.append("mfu_causal_half")
        title = "by step time" if self.lengths is UNSET else "by step time over the data"
        return table(title, rows, words=2, breaks=1, sparse=True, without=(*without, *NARROW))

    @property
    def _wide(self) -> bool:
        """Whether codes take so much room that less of the rest is shown."""
        return len(self.best) <= USUAL and any(len(policy_code(row.policy)) > WIDE for row in self.best)

    def _losers(self, most: int) -> Notes:
        few = self._wide and most == LOSERS
        codes = ["" if few else f" ({policy_code(each.policy)})" for each in self.losers]
        shown = zip(self.losers[: most - few], codes, strict=False)
        lines = [f"{each.kind}: {each.why}{code}" for each, code in shown]
        return Notes(lines, "why others lose (the best of their kind)")

    def _asked(self) -> Iterator[Part]:
        if self.waterfall is not None:
            first, second = ((row.policy, row.step_s) for row in self.best[:2])
            yield from waterfall_part(self.waterfall, first, second)
        yield from (row.facts for row in self.why_not)
        if self.pareto is not None:
            yield frontier_table(self.pareto)

    def _to_know(self) -> list[str]:
        """The notes, where an assumption says no more than one of them."""
        batch = any(each.name == BATCH for each in self.assumed)
        return [*map(str, self.assumed), *(note for note in self.notes if not (batch and note.startswith(OF_BATCH)))]

    def _next(self) -> list[str]:
        """The first command, and the others as far as they differ from it."""
        words = [shlex.split(command) for command in self.next]
        more = [shlex.join(each[1:2] + each[-2:] * ("--to" in each)) for each in words[1:]]
        return [*self.next[:1], *([f"with the same options: {', '.join(more)}"] if more else [])]

    def _figure(self) -> str:
        from shardwise.report.charts import chart_svg  # most answers are not drawn
        from shardwise.report.plan_figure import plan_chart

        taken = None if self.recommended is None else policy_code(self.recommended.policy)
        points = [(policy_code(row.policy), row.tokens_per_s_per_gpu, row.peak_bytes) for row in self.best]
        name = f"{self.model} on {self.cluster}: the fastest policies"
        return chart_svg(plan_chart(name, points, self.limit_bytes, taken))


class OverBudget(Struct, frozen=True, kw_only=True):
    """A size of the cluster, and what it takes more of than the budget has."""

    gpus: int
    cluster: str
    fits: bool
    policy: Policy | None
    step_s: float | None
    seconds: float | None
    """of the whole run"""
    usd: tuple[float, float] | None
    misses: Sequence[str]

    @property
    def text(self) -> str:
        takes = {"time": f"time ({(self.seconds or 0) / DAY:.3g} d)", "dollars": f"dollars ({dollars_range(self.usd)})"
                 if self.usd else "dollars (no published rent)"}  # fmt: skip
        over = " and ".join(takes.get(name, name) for name in self.misses)
        return f"{self.cluster}: {'over in ' + over if self.fits else 'no policy fits'}"


class OverBudgetAnswer(Answer, frozen=True, kw_only=True):
    """No size is inside the budget."""

    cluster: str
    best: tuple[()]
    over_budget: Sequence[OverBudget]

    @property
    def exit_code(self) -> int:
        return 1

    def parts(self) -> Iterator[Part]:
        lines = [each.text for each in self.over_budget]
        yield Notes(lines, f"nothing up to {self.cluster} is inside the budget")


ANSWERS = (PlanAnswer, OverBudgetAnswer)


def plan_answer(
    planned: Planned, *, model: str = "", on: str = "", further: Sequence[str] = (), also: Sequence[Policy] = (),
    differences: bool = False, why_not: Sequence[WhyNotRow] = (), pareto: Sequence[FrontierRow] | None = None,
    joint: JointOutcome | None = None, measure: MeasureOutcome | None = None, notes: Sequence[str] = (),
    part: bool = False,
) -> PlanAnswer:  # fmt: skip
    """`model`, `on`, `further`: as a command line names them. `also`: policies that are shown besides; `part`: of
    what is trained on or of the cluster that was named, so that no command says the same."""
    question, ranked, cluster, job = planned.question, planned.ranked, planned.cluster, planned.question.job
    best = [plan_row(planned, found, place) for place, found in enumerate(planned.listed)]
    take, fastest, safest = (
        None if found is None else plan_row(planned, found)
        for found in (ranked.recommended, ranked.fastest, ranked.safest)
    )
    strategies, tuning = strategy_rows(planned), tuning_facts(planned.case)
    return PlanAnswer(
        tier=CLOSED_FORM, model=question.model.name, cluster=cluster.name, gpus=cluster.gpus, stack=question.stack.name,
        seq_tokens=job.seq, global_sequences=job.global_batch, precision=job.precision.name,
        optimizer=job.optimizer.name, uneven=job.uneven, pipeline_passes=job.pipeline_passes,
        lengths=question.lengths.lengths.name if question.lengths else UNSET,
        packing=question.lengths.packing if question.lengths else UNSET,
        step_tokens=job.step_tokens, tokens=job.tokens or None, error_band=planned.band,
        error_range=planned.first.error_range if planned.first else None,
        error_basis=planned.first.error_basis if planned.first else None, limit_bytes=ranked.limit_bytes,
        points=ranked.points, evaluated=ranked.evaluated, fitting=ranked.fitting, finished=ranked.finished,
        tuning=tuning or UNSET, risk=ranked.risk, recommended=take,
        reason=None if take is None else _reason(planned, take),
        fastest=fastest, safest=safest, columns=plan_columns(best), best=best,
        losers=list(map(loser_row, ranked.losers)),
        smallest=None if ranked.smallest is None else plan_row(planned, ranked.smallest),
        strategies=strategies or UNSET, constraints=words_of(question.only) or None, pareto=pareto,
        waterfall=differences_of(planned) if differences else None, why_not=why_not, joint=joint, measure=measure,
        assumed=[] if take is None or part else assumptions_of(
            question, planned.case, take.policy, advise=question.lengths is None and not planned.strategies),
        next=[] if take is None or part else _commands(planned, take.policy, model, on, further),
        details=[stack_line(planned)] if part and joint else plan_details(planned, strategies, also),
        notes=[*(question.notes if part and joint else plan_notes(planned)), *notes],
    )  # fmt: skip


def _commands(planned: Planned, policy: Policy, model: str, on: str, further: Sequence[str]) -> list[str]:
    """What to do with the recommended policy: look closer, write it for its program, run it here."""
    question, job = planned.question, planned.question.job
    more = [*further, *overlap_words(policy, question.stack)]
    names = model or question.model.name, on or planned.cluster.name
    verbs = {"estimate": more}
    target = target_of(question.stack.name)
    if not policy.sync and (job.tuning is None or target in WRITE_ADAPTERS):
        verbs["export"] = [*more, "--to", target]
    plain = not job.uneven and job.pipeline_passes == 1 and question.lengths is None
    if plain and not policy.sync and job.tuning is None:
        verbs["run"] = more
    commands = {verb: command_of(*names, job, policy, question.stack.name, verb) for verb in verbs}
    return [shlex.join([*shlex.split(commands[verb]), *words]) for verb, words in verbs.items()]


def _words(row: PlanRow) -> str:
    return f"{row.step_s:.4g} s, {gib(row.free_bytes)} GiB free, {chance_text(row.risk)} risk of running out of memory"


def _against(other: PlanRow, take: PlanRow) -> str:
    apart = other.step_s / take.step_s - 1.0
    alone = ", no run like it was measured" if other.doublings_from_it >= FAR > take.doublings_from_it else ""
    free = f"{gib(other.free_bytes)} GiB free"
    return f"{policy_code(other.policy)}: step {apart:+.1%}, {free}, {chance_text(other.risk)} risk{alone}"


def _reason(planned: Planned, take: PlanRow) -> str:
    ranked, first = planned.ranked, planned.ranked.best[0]
    if take.risk > ranked.risk:
        return f"no policy that fits keeps the risk below {ranked.risk:.0%}"
    if take.policy == first.policy:
        return f"the fastest with a risk below {ranked.risk:.0%}"
    apart, gain = take.step_s / first.step_s - 1.0, []
    if mechanisms(take.policy) < mechanisms(first.policy):
        gain.append("simpler")
    if take.peak_bytes < first.peak_bytes:
        gain.append("more memory free")
    if apart > ALIKE:
        return f"{apart:.1%} slower than the fastest listed, but closer to measured runs"
    close = "closer than predictions can tell apart"
    return f"{apart:.1%} slower than the fastest listed: {close}; {', '.join(gain) or 'as simple'}"
