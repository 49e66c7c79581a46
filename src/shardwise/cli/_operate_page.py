"""What `shardwise operate` shows: the run with its spread, where the time goes, other ways, what would help."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from shardwise.cli._html import draw
from shardwise.cli._output import Cell, print_facts, print_gap, print_notes, print_table
from shardwise.estimate.state import saved_state
from shardwise.operate.failures import published
from shardwise.operate.goodput import PARTS, Goodput, Saves
from shardwise.operate.intervals import best_s, daly_s, young_s
from shardwise.operate.published import published_times
from shardwise.operate.run import Operation, slow_node, ways, worth
from shardwise.operate.sampled import SampledRuns, Sampling
from shardwise.report.report import Money
from shardwise.report.terminal import days_text, dollars_text, legend_of, mwh_text, policy_code, usd_text
from shardwise.report.tier import CLOSED_FORM, SAMPLED
from shardwise.spec.policy import Policy
from shardwise.studies.money import money_of, price_line
from shardwise.units import share_text, time_text

MOST_STOPS = 1000
"""of one run that are told"""
TOLD = {
    "work": "steps that are kept", "saves": "waiting for saves", "lost work": "steps repeated after failures",
    "detect": "until a failure is noticed", "schedule": "until machines are there", "start": "groups and first steps",
    "load": "reading the checkpoint", "planned": "planned restarts", "waiting": "waiting for a node",
}  # fmt: skip


@dataclass(frozen=True)
class OperateAnswer:
    run: Operation
    tokens: float
    policy: Policy | None
    """None where a measured step was given and nothing fits"""
    measured_step: bool
    sampling: Sampling
    rent: float | None
    left: float | None
    """of the speed, with the nodes away that are on average"""

    @cached_property
    def goodput(self) -> Goodput:
        return self.run.goodput()

    @cached_property
    def drawn(self) -> SampledRuns:
        return self.run.sampled(self.sampling)

    @property
    def seconds(self) -> float:
        """Of the mean run: by the closed form, unless spares can run out or failures cluster."""
        return float(self.drawn.seconds.mean()) if self.needs_draws else self.run.work_s / self.goodput.share

    @property
    def needs_draws(self) -> bool:
        return self.sampling.spares is not None or self.sampling.shape != 1.0

    def money(self, seconds: float) -> Money:
        return money_of(self.run.cluster, self.tokens, self.tokens / seconds, self.rent)

    def shares(self) -> dict[str, float]:
        """Of all time, by what it goes for."""
        waiting = float(self.drawn.waiting_s.mean()) / self.seconds
        rest = (1.0 - waiting) / sum(self.goodput.parts.values())
        return {part: self.goodput.parts[part] * rest for part in PARTS} | {"waiting": waiting}


def show_operation(answer: OperateAnswer, notes: list[str]) -> None:
    run, found = answer.run, answer.goodput
    low, _, high = answer.drawn.spread()
    money = answer.money(answer.seconds)
    failures, planned = found.failures_per_s * answer.seconds, run.rates.planned * answer.seconds
    saves, restart = run.saves, run.restart
    facts: list[tuple[str, Cell]] = [
        ("run", f"{answer.seconds / 86400:,.4g} days, 80% of runs within {low / 86400:,.4g} .. {high / 86400:,.4g}; "
                f"{run.work_s / 86400:,.4g} if nothing ever failed"),
        ("useful", f"{share_text(run.work_s / answer.seconds)} of the time (ETTR)"),
        ("stops", f"failures: {failures:,.3g}, one every {time_text(run.between_s)} of running, and {planned:,.0f} "
                  "planned restarts" if failures else "none: nothing fails"),
        ("step", f"{time_text(run.step_s)}" + (", as given" if answer.measured_step else
         f", {policy_code(answer.policy)}" if answer.policy is not None else "")),
        ("saves", f"{saves.kind}, every {time_text(found.interval_s)}: {saves.bytes / 1e9:,.4g} GB, the run waits "
                  f"{time_text(saves.stall_s)}{_lands(saves)}"),
        ("restart", f"{time_text(restart.down_s + restart.recovery_s)}: noticed {time_text(restart.detect_s)}, "
                    f"machines {time_text(restart.schedule_s)}, groups and first steps {time_text(restart.start_s)}, "
                    f"load {time_text(restart.load_s)}"),
        ("price", f"{usd_text(money)} USD rent, of which {usd_text(_beyond(answer))} for failures; "
                  f"{mwh_text(money)} MWh, {dollars_text(money.electricity_usd)} USD of electricity "
                  f"({_energy_range(money)})"),
    ]  # fmt: skip
    if not run.rates.per_gpu:
        facts = [fact for fact in facts if fact[0] not in ("saves", "restart")]
    print_facts(f"{run.model.name}, {answer.tokens:,.4g} tokens on {run.cluster.name}", facts)
    print_gap()
    _show_parts(answer)
    if run.rates.per_gpu:
        _show_intervals(answer)
        _show_ways(answer)
        _show_worth(answer)
        _show_rates(answer)
    print_notes([*_notes(answer), *notes])


def _lands(saves: Saves) -> str:
    return f", lands {time_text(saves.lands_s)} later" if saves.lands_s else ""


def _beyond(answer: OperateAnswer) -> Money:
    """What the time costs that is not work."""
    return answer.money(answer.seconds - answer.run.work_s)


def _energy_range(money: Money) -> str:
    sites = published_times().energy
    low, high = (money.energy_j / 3.6e6 * p * u for p, u in zip(sites.pue, sites.usd_per_kwh, strict=True))
    return f"{dollars_text(low)}–{dollars_text(high)} from the best site to the worst"


def _show_parts(answer: OperateAnswer) -> None:
    rows = sorted(answer.shares().items(), key=lambda each: -each[1])
    print_table(
        "where the time goes", ["part", "", "share", "days"],
        [[TOLD[part], "#" * round(30 * share), share_text(share), f"{share * answer.seconds / 86400:,.3g}"]
         for part, share in rows if share > 5e-4], words=2, bars=("share",),
    )  # fmt: skip
    print_gap()


def _show_intervals(answer: OperateAnswer) -> None:
    run = answer.run
    if run.kind == "memory":
        return
    rows = []
    for name, law in (("Young", young_s), ("Daly", daly_s), ("exact", best_s)):
        work = max(law(run.saves.stall_s, run.between_s), run.saves.lands_s)
        share = replace(run, interval_s=work).goodput().share
        rows.append([name, time_text(law(run.saves.stall_s, run.between_s)), time_text(work), share_text(share)])
    draw(lambda: _intervals_svg(run, answer.goodput.interval_s))
    print_table("work between two saves", ["law", "best", "once saves land", "useful"], rows)
    print_gap()


def _interval_curve(run: Operation, chosen_s: float) -> list[tuple[float, float]]:
    """Other intervals around the one that is taken, each with its share of useful time, in closed form; none is shorter
    than a save takes to land."""
    if run.kind == "memory" or not run.rates.per_gpu:
        return []
    around = [chosen_s * 2 ** (step / 2) for step in range(-10, 11)]
    places = [place for place in around if place >= run.saves.lands_s]
    return [(place, replace(run, interval_s=place).goodput().share) for place in places]


def _intervals_svg(run: Operation, chosen_s: float) -> str:
    from shardwise.charts import chart_svg
    from shardwise.report.course_figure import against_chart

    shares = [(place / 60, 100 * share) for place, share in _interval_curve(run, chosen_s)]
    return chart_svg(
        against_chart("goodput against the work between two saves", shares, "minutes between saves", "useful, %",
                      (chosen_s / 60, f"taken: {time_text(chosen_s)}"))
    )  # fmt: skip


def _show_ways(answer: OperateAnswer) -> None:
    found = ways(answer.run, answer.left)
    print_table("other ways to keep it running", ["method", "needs", "useful", "days"],
                [[way.name, way.needs, share_text(way.share), days_text(answer.run.work_s / way.share)]
                 for way in found], words=2, breaks=1)  # fmt: skip
    print_gap()


def _show_worth(answer: OperateAnswer) -> None:
    rows = []
    for each in worth(answer.run, answer.sampling):
        saved = each.seconds / 86400
        usd = usd_text(answer.money(each.seconds)) if each.seconds > 0 else "-"
        rows.append([each.what, f"{saved:,.3g}", usd])
    print_table("improvements", ["change", "days saved", "USD saved"], rows, bars=("days saved",))
    print_gap()


def _show_rates(answer: OperateAnswer) -> None:
    rows = []
    for rates in published():
        other = replace(answer.run, rates=rates, interval_s=None)
        rows.append([rates.name, f"{rates.per_thousand_node_days:.2f}", time_text(other.between_s),
                     share_text(other.goodput().share), days_text(other.seconds)])  # fmt: skip
    print_table("at published rates of failure", ["rate", "per 1,000 node-days", "one every", "useful", "days"], rows,
                bars=("per 1,000 node-days",))  # fmt: skip
    print_gap()


def _notes(answer: OperateAnswer) -> list[str]:
    run = answer.run
    how = "the mean of runs drawn, since spares run out or failures cluster" if answer.needs_draws else "closed form"
    lines = [f"days: {how}; spread of {answer.sampling.runs:,} runs drawn with seed {answer.sampling.seed}"]
    if answer.policy is not None:
        lines.append(legend_of([answer.policy]))
    if run.rates.per_gpu:
        slow = slow_node(run)
        lines += [
            f"failures as {run.rates.name}: {run.rates.source}; rates differ threefold between clusters, and small "
            "jobs fail more often than these say, of software and users: --failures takes your own count",
            f"spares: {run.spares_needed():,} nodes so that one is at hand in 99 of 100 moments, with "
            f"{run.repair_s / 3600:,.4g} h until a failed node is back",
            f"a slow node: {share_text(slow.chance)} probability of one {slow.factor - 1:.0%} slower, which costs "
            f"{slow.lost_per_day_s / 3600:.2g} h of the job a day; take it out after "
            f"{time_text(slow.replace_after_s)}: by then waiting cost as much as a restart",
        ]  # fmt: skip
    state = saved_state(run.model, run.job)
    lines.append(f"a checkpoint holds {state.each:.4g} bytes of each trained parameter: {state.counted}")
    return [*lines, price_line(run.cluster)]


def _first_run(drawn: SampledRuns) -> dict[str, Any]:
    """One of the runs drawn, to be looked at: when it failed and when it went on."""
    stops = drawn.stops_s[:MOST_STOPS]
    return {"seconds": float(drawn.seconds[0]), "failed_s": stops[:, 0].tolist(), "back_s": stops[:, 1].tolist()}


def data_of(answer: OperateAnswer) -> dict[str, Any]:
    run, found = answer.run, answer.goodput
    low, middle, high = answer.drawn.spread()
    money, slow = answer.money(answer.seconds), slow_node(run)
    return {
        "model": run.model.name, "cluster": run.cluster.name, "gpus": run.cluster.gpus, "tokens": answer.tokens,
        "tier": SAMPLED if answer.needs_draws else CLOSED_FORM, "step_s": run.step_s, "ideal_s": run.work_s,
        "seconds": answer.seconds, "seconds_p10": low, "seconds_p50": middle, "seconds_p90": high,
        "sampled_mean_s": float(answer.drawn.seconds.mean()), "sampled_runs": answer.sampling.runs,
        "sampled_run": _first_run(answer.drawn),
        "goodput": run.work_s / answer.seconds, "failures": found.failures_per_s * answer.seconds,
        "planned_restarts": run.rates.planned * answer.seconds,
        "between_failures_s": run.between_s, "failure_rates": run.rates.name, "failure_source": run.rates.source,
        "failures_per_thousand_node_days": run.rates.per_thousand_node_days,
        "checkpoint_bytes": run.saves.bytes, "save": run.saves.kind, "save_stall_s": run.saves.stall_s,
        "save_lands_s": run.saves.lands_s, "interval_s": found.interval_s,
        "interval_curve": [{"interval_s": place, "goodput": share}
                           for place, share in _interval_curve(run, found.interval_s)],
        "interval_young_s": young_s(run.saves.stall_s, run.between_s) if run.rates.per_gpu else None,
        "interval_daly_s": daly_s(run.saves.stall_s, run.between_s) if run.rates.per_gpu else None,
        "interval_exact_s": best_s(run.saves.stall_s, run.between_s) if run.rates.per_gpu else None,
        "detect_s": run.restart.detect_s, "schedule_s": run.restart.schedule_s, "start_s": run.restart.start_s,
        "load_s": run.restart.load_s, "shares": answer.shares(),
        "ways": [{"way": w.name, "goodput": w.share, "needs": w.needs} for w in ways(run, answer.left)]
        if run.rates.per_gpu else [],
        "worth": [{"what": w.what, "seconds": w.seconds} for w in worth(run, answer.sampling)]
        if run.rates.per_gpu else [],
        "spares_needed": run.spares_needed(),
        "slow_node": {"chance": slow.chance, "factor": slow.factor, "replace_after_s": slow.replace_after_s},
        "energy_j": money.energy_j, "electricity_usd": money.electricity_usd, "usd": money.usd,
    }  # fmt: skip
