"""What `shardwise plan` says: the table of policies, why the others lose, notes; the same as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from shardwise.case import Case
from shardwise.cli._choice import refusal_of
from shardwise.cli._html import draw
from shardwise.cli._lengths import HOW
from shardwise.cli._output import Cell, print_notes, print_table
from shardwise.cli._plan_choice import advice_of, choice_data, show_choice
from shardwise.cli._plan_sync import candidate_data, extra_text, show_strategies, strategies_data, strategy_notes
from shardwise.estimate.band import tuned_band
from shardwise.estimate.memory import free_bytes
from shardwise.estimate.mfu import HEADLINE, Convention, conventions
from shardwise.estimate.releases import release_lines
from shardwise.plan import Candidate, Ranking
from shardwise.plan.constraints import words_of
from shardwise.plan.synced import Best
from shardwise.question import Question
from shardwise.report.report import Money
from shardwise.report.terminal import days_text, legend_of, policy_code, policy_text, usd_text
from shardwise.report.tier import CLOSED_FORM
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy
from shardwise.studies.money import BILLION, failures_line, money_of, price_line, run_money
from shardwise.studies.nearly_full import nearly_full
from shardwise.studies.parts import StepParts, parts_of
from shardwise.studies.tuning import tuning_facts
from shardwise.studies.why import why_slower
from shardwise.units import gib, share_text, size_unit

DAY = 86400.0
MOST_EXPLAINED = 20
"""plans whose parts are compared with the winner's"""


@dataclass(frozen=True)
class PlanResult:
    case: Question
    cluster: Cluster
    ranked: Ranking
    top: int
    strategies: tuple[Best, ...] = ()
    """where asked for: each strategy of data parallelism with its best policy"""

    @property
    def shown(self) -> tuple[Candidate, ...]:
        return self.ranked.best[: self.top]

    @cached_property
    def parts(self) -> list[StepParts]:
        best = [found.policy for found in self.ranked.best[:MOST_EXPLAINED]]
        return parts_of(self.whole, best)

    @cached_property
    def whole(self) -> Case:
        return self.case.on(self.cluster)

    @property
    def winner(self) -> StepParts | None:
        return self.parts[0] if self.parts else None

    @cached_property
    def taken(self) -> StepParts | None:
        """What is recommended."""
        chosen = self.ranked.recommended
        return None if chosen is None else next(iter(parts_of(self.whole, [chosen.policy])))

    @cached_property
    def conventions(self) -> dict[str, Convention]:
        shown = self.shown[0].data if self.shown else None
        attended = self.case.job.seq if shown is None else max(round(shown.attended_tokens), 1)
        return {c.key: c for c in conventions(self.whole.model, attended)}

    def mfu(self, found: Candidate, convention: str = HEADLINE) -> float:
        peak = self.cluster.gpu.peak(self.case.job.precision.compute)
        return self.conventions[convention].utilization(found.tokens_per_s_per_gpu, peak)

    def money(self, found: Candidate, tokens: float) -> Money:
        """To go as far as so many tokens of the mean gradient do, without failures."""
        return money_of(self.cluster, tokens, self._tokens_per_s(found))

    def run_money(self, found: Candidate) -> Money:
        return run_money(self.whole, found.to_loss_s, self.case.job.tokens, self._tokens_per_s(found))

    def _tokens_per_s(self, found: Candidate) -> float:
        """Of the data, so far as they count towards the loss."""
        return found.tokens_per_s_per_gpu * self.cluster.gpus * found.step_s / found.to_loss_s

    def free_bytes(self, found: Candidate) -> float:
        return free_bytes(found.peak_bytes, self.cluster.gpu, self.case.stack)


def bottleneck_of(report: StepParts) -> str:
    """The part other than forward and backward that costs most; compute itself where nothing else does."""
    waiting = {part: s for part, s in report.time_s.items() if part not in ("forward", "backward") and s > 0}
    return max(waiting, key=lambda part: waiting[part]) if waiting else "compute"


def show_plan(planned: PlanResult) -> None:
    cluster, job = planned.cluster, planned.case.job
    both = bool(planned.strategies)
    of_data = planned.case.lengths is not None
    heads = ["policy", "step s", *(["extra", "to loss s"] if both else ["wait %", "data %"] if of_data else ["MFU %"])]
    unit = size_unit(max(found.peak_bytes for found in planned.shown))
    memory_heads = [unit.name, "free" if unit.name == "GiB" else "free GiB"]
    heads += [*memory_heads, "days", "USD"] if job.tokens else ["tok/s", *memory_heads, "USD/Gtok"]

    def cells(found: Candidate) -> list[Cell]:
        rate = found.tokens_per_s_per_gpu
        money = planned.run_money(found) if job.tokens else planned.money(found, BILLION)
        memory: list[Cell] = [unit.text(found.peak_bytes), gib(planned.free_bytes(found))]
        share = share_text(planned.mfu(found)).rstrip("%")
        own: list[Cell] = [extra_text(found), f"{found.to_loss_s:.4g}"] if both else [share]
        if found.data is not None:
            own = [share_text(part).rstrip("%") for part in (found.data.waiting, found.data.data)]
        row: list[Cell] = [policy_code(found.policy), f"{found.step_s:.4g}", *own]
        row += [*memory, days_text(money.seconds)] if job.tokens else [f"{rate:,.0f}", *memory]
        return [*row, usd_text(money)]

    show_choice(f"{planned.case.model.name} on {cluster.name}", planned.whole, planned.ranked)
    draw(lambda: _drawn(planned))
    title = "by step time over the data" if of_data else "by step time"
    print_table(title, heads, map(cells, planned.shown), breaks=0)
    print_notes([f"{loser.kind}: {loser.why} ({policy_code(loser.policy)})" for loser in planned.ranked.losers],
                title="why others lose (the best of their kind)")  # fmt: skip
    if both:
        show_strategies(list(planned.strategies))


def _drawn(planned: PlanResult) -> str:
    from shardwise.charts import chart_svg
    from shardwise.report.plan_figure import plan_chart

    choice = planned.ranked.recommended
    taken = None if choice is None else policy_code(choice.policy)
    points = [(policy_code(f.policy), f.tokens_per_s_per_gpu, f.peak_bytes) for f in planned.ranked.best]
    name = f"{planned.case.model.name} on {planned.cluster.name}: the fastest policies"
    return chart_svg(plan_chart(name, points, planned.ranked.limit_bytes, taken))


def nothing_fits(planned: PlanResult) -> list[str]:
    ranked = planned.ranked
    if ranked.smallest is None:
        return [refusal_of(planned.case.only, planned.case, planned.cluster)]
    small = ranked.smallest
    return [
        f"the smallest needs {gib(small.peak_bytes)} GiB of {gib(ranked.limit_bytes)} that may be filled: "
        f"{policy_text(small.policy)}",
        f"use more than {planned.cluster.gpus:,} GPUs, a shorter sequence, or an optimizer with less state",
    ]


def notes_of(planned: PlanResult, also: Sequence[Policy] = ()) -> list[str]:
    """`also`: further policies that are shown by their codes."""
    ranked, cluster, stack = planned.ranked, planned.cluster, planned.case.stack
    only = words_of(planned.case.only)
    notes = [
        *([legend_of([*(found.policy for found in planned.shown), *also])] if planned.shown or also else []),
        f"{ranked.points:,} legal policies{f' with {only}' if only else ''}: {_looked_at(ranked)}",
        f"a policy may fill {gib(ranked.limit_bytes)} of {gib(cluster.gpu.memory_bytes)} GiB (--headroom, --risk); "
        f"free: memory left on the fullest GPU after a reserve of {gib(stack.memory.reserve_bytes)} GiB for "
        "uncounted buffers",
        *_meant(planned),
        program_note(planned),
        *([str(facts)] if (facts := tuning_facts(planned.whole)) is not None else []),
        *planned.whole.notes,
        *(
            [failures_line(planned.whole, planned.run_money(found))]
            if planned.case.job.tokens and (found := ranked.recommended) is not None
            else []
        ),
        price_line(cluster),
        *([f"fabric: {cluster.assumed}"] if cluster.assumed else []),
    ]
    if planned.winner is not None:
        report = planned.winner
        notes += release_lines(planned.whole, report.policy)
        part = bottleneck_of(report)
        share = report.shares.get(part, 0.0)
        notes.append(f"bottleneck of the first besides compute: {part}, {share:.1%} of the step")
    if planned.strategies:
        notes += strategy_notes(list(planned.strategies), planned.case, cluster)
    for found in planned.shown:
        if warned := nearly_full(found.peak_bytes, cluster.gpu.memory_bytes):
            notes.append(f"{policy_code(found.policy)}, and others as full: {warned[0]}")
            break
    if not ranked.finished:
        notes.append("interrupted: the best so far, not the best of all")
    near = _between(planned)
    close = sum(c.to_loss_s <= planned.shown[0].to_loss_s * (1 + near) for c in planned.shown)
    if close > 1:
        notes.append(
            f"the first {close} lie within {near:.0%} of each other, the usual error of such comparisons: any of them "
            "may be the fastest"
        )
    return notes


def _looked_at(ranked: Ranking) -> str:
    if ranked.evaluated >= ranked.points:
        return "all estimated"
    return f"{ranked.evaluated:,} estimated, the rest shown by bounds to be slower or too large"


def program_note(planned: PlanResult) -> str:
    """The software assumed, and how far its predictions were off."""
    name = planned.case.stack.name
    return f"stack {name}; error: {planned.winner.error_basis}" if planned.winner else f"stack {name}"


def _meant(planned: PlanResult) -> list[str]:
    choice = planned.case.lengths
    if choice is None:
        return ["tok/s is per GPU; MFU counts the causal half of attention"]
    return [
        f"steps and tok/s (per GPU) are of the data: lengths {choice.lengths.name}, {HOW[choice.packing]}; memory is "
        "of sequences as long as --seq",
        "wait: extra time of the slowest rank over the mean; data: share of computed tokens that is not padding",
        "the ranking covers the fastest policies with full sequences and with as many as the data packs into, not all; "
        "predictions for such lengths were not compared with measured runs",
    ]


def _band(planned: PlanResult) -> float:
    """The larger side of the first plan's error band."""
    return (planned.winner.error_band if planned.winner else None) or 0.0


def _between(planned: PlanResult) -> float:
    """The same of policies beside each other, whoever runs them."""
    band = tuned_band(planned.whole)
    return band.half_width if band else 0.0


def plan_data(planned: PlanResult) -> dict[str, Any]:
    cluster, job, stack, ranked = planned.cluster, planned.case.job, planned.case.stack, planned.ranked
    return {
        "tier": CLOSED_FORM, "model": planned.case.model.name, "cluster": cluster.name, "gpus": cluster.gpus,
        "stack": stack.name, "seq_tokens": job.seq, "global_sequences": job.global_batch,
        "precision": job.precision.name, "optimizer": job.optimizer.name,
        "uneven": job.uneven, "pipeline_passes": job.pipeline_passes,
        **({} if planned.case.lengths is None else {
            "lengths": planned.case.lengths.lengths.name, "packing": planned.case.lengths.packing}),
        "step_tokens": job.step_tokens, "tokens": job.tokens or None, "error_band": _band(planned),
        "error_range": planned.winner.error_range if planned.winner else None,
        "error_basis": planned.winner.error_basis if planned.winner else None,
        "limit_bytes": ranked.limit_bytes, "points": ranked.points,
        "evaluated": ranked.evaluated, "fitting": ranked.fitting, "finished": ranked.finished,
        **({"tuning": msgspec.to_builtins(tuned)} if (tuned := tuning_facts(planned.whole)) is not None else {}),
        "risk": ranked.risk, **_choice(planned),
        "best": [_entry(planned, found) for found in planned.shown],
        "plans": [_plan(planned, index) for index in range(len(planned.shown))],
        "losers": [{"kind": found.kind, "why": found.why, "policy": msgspec.to_builtins(found.policy),
                    "step_s": found.step_s, "peak_bytes": found.peak_bytes, "slower": found.slower,
                    "over_bytes": found.over_bytes} for found in ranked.losers],
        "smallest": _entry(planned, ranked.smallest) if ranked.smallest else None,
        **({"strategies": strategies_data(list(planned.strategies), planned.case, cluster)}
           if planned.strategies else {}),
    }  # fmt: skip


def _choice(planned: PlanResult) -> dict[str, Any]:
    """The policy to take, the fastest if everything is right and the safest."""
    ranked, more = planned.ranked, choice_data(planned.whole, planned.ranked)
    named = {"recommended": ranked.recommended, "fastest": ranked.fastest, "safest": ranked.safest}
    return {name: None if found is None else _entry(planned, found) | more[name] for name, found in named.items()}


def _entry(planned: PlanResult, found: Candidate) -> dict[str, Any]:
    run = planned.run_money(found) if planned.case.job.tokens else None
    return {
        "policy": msgspec.to_builtins(found.policy), "step_s": found.step_s,
        "tokens_per_s_per_gpu": found.tokens_per_s_per_gpu,
        "mfu_causal_half": planned.mfu(found), "mfu_full_square": planned.mfu(found, "full_square"),
        "peak_bytes": found.peak_bytes, "free_bytes": planned.free_bytes(found),
        **advice_of(planned.whole, found).data, "evidence": _evidence(planned),
        "run": msgspec.to_builtins(run),
        "billion_tokens": msgspec.to_builtins(planned.money(found, BILLION)),
        **(candidate_data(found) if planned.strategies else {}),
        **({} if found.data is None else {"waiting": found.data.waiting, "data_share": found.data.data}),
    }  # fmt: skip


def _evidence(planned: PlanResult) -> str | None:
    """What supports the step times, of all policies alike."""
    return planned.winner.error_basis if planned.winner else None


def _plan(planned: PlanResult, index: int) -> dict[str, Any]:
    """One plan in the short form: dollars of the run (or of 1e9 tokens), what holds it back, why it stands there."""
    found = planned.shown[index]
    entry = _entry(planned, found)
    money = entry["run"] or entry["billion_tokens"]
    report = planned.parts[index] if index < len(planned.parts) else None
    winner = planned.winner
    if index == 0:
        alone = len(planned.shown) < 2 or found.data is not None
        why = "the fastest that fits" if alone else f"the fastest that fits; next: {_next(planned)}"
    elif found.data is not None:
        why = f"the step over the data is {found.step_s / planned.shown[0].step_s - 1:.1%} longer"
    else:
        why = why_slower(winner, report) if winner is not None and report is not None else "slower"
    return {
        "policy": entry["policy"], "step_s": found.step_s, "mfu": entry["mfu_causal_half"],
        "mfu_full_square": entry["mfu_full_square"], "peak_bytes": found.peak_bytes, "free_bytes": entry["free_bytes"],
        "tokens_per_s_per_gpu": found.tokens_per_s_per_gpu, "days": money["seconds"] / DAY if entry["run"] else None,
        "usd": money["usd"], "bottleneck": None if report is None else bottleneck_of(report), "why": why,
        "inside_error_band_of_the_first": found.step_s <= planned.shown[0].step_s * (1 + _between(planned)),
        **{key: entry[key] for key in ("risk", "nearest_run", "doublings_from_it", "evidence")},
    }  # fmt: skip


def _next(planned: PlanResult) -> str:
    return why_slower(planned.parts[0], planned.parts[1])
