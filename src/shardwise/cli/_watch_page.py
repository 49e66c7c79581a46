"""What `watch` prints."""

from collections.abc import Sequence
from typing import Any

from shardwise.cli._doctor_page import cause_data
from shardwise.cli._output import Cell, print_facts, print_gap, print_notes, print_table
from shardwise.cli._watched import Look
from shardwise.diagnose.causes import CURES, Cause
from shardwise.diagnose.counters import CounterSeries
from shardwise.diagnose.health.alarms import Alarms
from shardwise.diagnose.health.status import RankStatus, RunStatus
from shardwise.report.watch_page import watch_page
from shardwise.units import memory_text, time_text

MOST_STEPS = 500
"""of a run that are told one by one"""
SHOWN = 16
"""ranks on the screen: the slowest; JSON has all"""


def line_of(look: Look) -> str:
    """One line for a terminal while watching."""
    status = look.status
    step = "no step yet" if status.step_s is None else _step(status)
    return f"step {status.last_step:,}, {status.state}: {step}"[:150]


def raised_line(cause: Cause) -> str:
    since = f" since step {cause.since:,}" if cause.since is not None else ""
    where = f" ({cause.where}{since})" if cause.where else since
    return f"alarm: {cause.what}{where}: {cause.evidence}; {CURES[cause.code]}"


def show(look: Look, alarms: Alarms) -> None:
    print_facts(f"{look.run.name}: step {look.status.last_step:,}, {look.status.state}", facts_of(look.status))
    up = alarms.up
    if up:
        print_notes([raised_line(cause).removeprefix("alarm: ") for cause in up], title="alarms")
    print_notes([f"{cause.what}: {cause.evidence}" for cause in look.health.remarks], title="outside the run itself")
    ranks = sorted(look.status.ranks, key=lambda rank: -(rank.own_s or 0.0))[:SHOWN]
    if len(look.status.ranks) > 1:
        print_gap()
        heads = ["rank", "step", "own ms", "messages ms", "data ms", "save ms", "held"]
        print_table("ranks, means of the last steps", heads, [_row(rank) for rank in ranks])


def facts_of(status: RunStatus) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [("step", "none yet" if status.step_s is None else _step(status))]
    if status.spread is not None:
        facts.append(("spread", f"{status.spread:.1%} around the median, p99 {status.p99_over_p50 or 0:.2f} times p50"))
    if status.slowest_rank is not None:
        facts.append(
            (
                "slowest",
                f"rank {status.slowest_rank}, {status.slowest_over_middle or 1:.2f} times the middle one's own work",
            )
        )
    if status.exposed_share is not None:
        hidden = f", {status.overlap_share:.0%} of messages hidden" if status.overlap_share is not None else ""
        facts.append(("messages", f"{status.exposed_share:.1%} of a step exposed{hidden}"))
    if status.all_to_all_s is not None:
        facts.append(("all-to-all", time_text(status.all_to_all_s)))
    if status.expert_load is not None:
        facts.append(("experts", f"the fullest has {status.expert_load:.2f} times an even share, the fullest rank "
                                 f"{status.expert_rank_load or 1:.2f}"))  # fmt: skip
    facts.append(("data", _share(status.data_share)))
    facts.append(("saving", _share(status.save_share)))
    if status.peak_bytes:
        beside = f", predicted {memory_text(status.predicted_peak_bytes)}" if status.predicted_peak_bytes else ""
        facts.append(("memory", f"{memory_text(status.peak_bytes)} at the peak{beside}"))
    if status.goodput_share is not None:
        facts.append(("goodput", f"{status.goodput_share:.1%} of the time since the start"))
    return facts


def data_of(look: Look, alarms: Alarms) -> dict[str, Any]:
    return {
        "run": look.run.name, "program": look.run.head.program or None, "status": look.status,
        "alarms": [cause_data(cause) for cause in alarms.up],
        "remarks": [cause_data(cause) for cause in look.health.remarks],
        "raised": alarms.count, "course": _course(look),
    }  # fmt: skip


def _course(look: Look) -> dict[str, list[Any]]:
    """The last steps of the first rank, to be drawn."""
    steps = look.run.ranks[min(look.run.ranks)].steps[-MOST_STEPS:]
    return {"step": [each.step for each in steps], "step_s": [each.step_s for each in steps],
            "loss": [each.loss for each in steps]}  # fmt: skip


def page_of(look: Look, causes: Sequence[Cause], counters: Sequence[CounterSeries]) -> str:
    grid = look.health.grid
    first = look.run.ranks[min(look.run.ranks)]
    at = {step.step: step.at_s for step in first.steps}
    times = [] if grid is None else [at.get(step, 0.0) for step in grid.step.tolist()]
    facts = [(name, str(value)) for name, value in facts_of(look.status)]
    return watch_page(look.run.name, look.status, facts, grid, causes, counters, times)


def _step(status: RunStatus) -> str:
    found = time_text(status.step_s or 0.0)
    if status.predicted_step_s is None:
        return f"{found}, no prediction to compare with"
    inside = "inside its band" if status.within_band else "outside of its band"
    low, high = time_text(status.predicted_low_s or 0.0), time_text(status.predicted_high_s or 0.0)
    slower = (status.step_s or 0.0) / status.predicted_step_s - 1
    return f"{found}, predicted {time_text(status.predicted_step_s)} ({slower:+.1%}, {inside} of {low} to {high})"


def _share(share: float | None) -> str:
    return "not known" if share is None else f"{share:.1%} of a step"


def _row(rank: RankStatus) -> list[Cell]:
    times = [rank.own_s, rank.comm_s, rank.data_s, rank.save_s]
    return [f"{rank.rank}", rank.last_step, *(None if each is None else each * 1e3 for each in times),
            None if rank.held_bytes is None else memory_text(rank.held_bytes)]  # fmt: skip
