"""`watch`: a run while it goes on: its step against the prediction, alarms, and what each rank does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers._likely import LikelyCause, likely_table
from shardwise.answers.answer import Answer, Cell, FactList, Notes, Part, shown, table
from shardwise.answers.doctor import CauseFinding, cause_finding
from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.health.found import Health
from shardwise.measured.diagnose.health.status import RankStatus, RunStatus
from shardwise.measured.diagnose.records import RunRecords
from shardwise.units import memory_text, time_text

MOST_STEPS = 500
"""of a run that are listed one by one"""
SHOWN = 16
"""ranks on the screen: the slowest; JSON has all"""


class RunCourse(Struct, frozen=True, kw_only=True):
    """Columns: the last steps of the first rank."""

    step: Sequence[int]
    step_s: Sequence[float]
    loss: Sequence[float | None]


class RankLine(Struct, frozen=True, kw_only=True):
    rank: Annotated[int, shown("rank", str)]
    step: Annotated[int, shown("step")]
    own_s: Annotated[float | None, shown("own ms", "ms")]
    comm_s: Annotated[float | None, shown("messages ms", "ms")]
    data_s: Annotated[float | None, shown("data ms", "ms")]
    save_s: Annotated[float | None, shown("save ms", "ms")]
    held_bytes: Annotated[float | None, shown("held", memory_text)]


class WatchAnswer(Answer, frozen=True, kw_only=True):
    run: str
    program: str | None
    status: RunStatus
    alarms: Sequence[CauseFinding]
    remarks: Sequence[CauseFinding]
    """outside the run itself"""
    likely: Sequence[LikelyCause]
    """of the difference from the prediction, by how far published runs err"""
    raised: Mapping[str, int]
    """alarms since watching began, by cause"""
    course: RunCourse

    @property
    def exit_code(self) -> int:
        return 1 if self.alarms else 0

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.run}: step {self.status.last_step:,}, {self.status.state}", status_facts(self.status))
        if self.alarms:
            yield Notes([alarm_text(cause) for cause in self.alarms], "alarms")
        if self.remarks:
            yield Notes([str(cause) for cause in self.remarks], "outside the run itself")
        yield from likely_table(self.likely)
        if len(self.status.ranks) > 1:
            slowest = sorted(self.status.ranks, key=lambda rank: -(rank.own_s or 0.0))[:SHOWN]
            yield table("ranks, means of the last steps", [_line(rank) for rank in slowest])


ANSWERS = (WatchAnswer,)


def watch_answer(
    run: RunRecords, health: Health, status: RunStatus, alarms: Sequence[Cause], raised: Mapping[str, int],
    likely: Sequence[LikelyCause] = (),
) -> WatchAnswer:  # fmt: skip
    steps = run.ranks[min(run.ranks)].steps[-MOST_STEPS:]
    return WatchAnswer(
        run=run.name, program=run.head.program or None, status=status,
        alarms=[cause_finding(cause) for cause in alarms], remarks=[cause_finding(cause) for cause in health.remarks],
        raised=raised, likely=likely,
        course=RunCourse(step=[each.step for each in steps], step_s=[each.step_s for each in steps],
                         loss=[each.loss for each in steps]),
    )  # fmt: skip


def alarm_text(cause: CauseFinding) -> str:
    since = (
        f" since step {cause.since_step:,}"
        if cause.since_step is not None and "step" not in (cause.where or "")
        else ""
    )
    where = f" ({cause.where}{since})" if cause.where else since
    return f"{cause.what}{where}: {cause.evidence or ''}; {cause.cure}"


def status_facts(status: RunStatus) -> list[tuple[str, Cell]]:
    return [(name, value) for name, value in _facts(status) if value is not None]


def _facts(status: RunStatus) -> Iterator[tuple[str, Cell]]:
    yield "step", step_text(status)
    if status.spread is not None:
        yield "spread", f"{status.spread:.1%} around the median, p99 {status.p99_over_p50 or 0:.2f} times p50"
    if status.slowest_rank is not None:
        times = f"{status.slowest_over_middle or 1:.2f} times the middle one's own work"
        yield "slowest", f"rank {status.slowest_rank}, {times}"
    if status.exposed_share is not None:
        hidden = f", {status.overlap_share:.0%} of messages hidden" if status.overlap_share is not None else ""
        yield "messages", f"{status.exposed_share:.1%} of a step exposed{hidden}"
    yield "all-to-all", None if status.all_to_all_s is None else time_text(status.all_to_all_s)
    if status.expert_load is not None:
        rank = f"the fullest rank {status.expert_rank_load or 1:.2f}"
        yield "experts", f"the fullest has {status.expert_load:.2f} times an even share, {rank}"
    for name, share in (("data", status.data_share), ("saving", status.save_share)):
        yield name, "not known" if share is None else f"{share:.1%} of a step"
    if status.peak_bytes:
        predicted = status.predicted_peak_bytes
        against = f", predicted {memory_text(predicted)}" if predicted else ""
        yield "memory", f"{memory_text(status.peak_bytes)} at the peak{against}"
    if status.goodput_share is not None:
        yield "goodput", f"{status.goodput_share:.1%} of the time since the start"


def step_text(status: RunStatus) -> str:
    if status.step_s is None:
        return "none yet"
    step = time_text(status.step_s)
    if status.predicted_step_s is None:
        return f"{step}, no prediction to compare with"
    inside = "inside its band" if status.within_band else "outside of its band"
    low, high = time_text(status.predicted_low_s or 0.0), time_text(status.predicted_high_s or 0.0)
    slower = status.step_s / status.predicted_step_s - 1
    return f"{step}, predicted {time_text(status.predicted_step_s)} ({slower:+.1%}, {inside} of {low} to {high})"


def _line(rank: RankStatus) -> RankLine:
    return RankLine(
        rank=rank.rank, step=rank.last_step, own_s=rank.own_s, comm_s=rank.comm_s, data_s=rank.data_s,
        save_s=rank.save_s, held_bytes=rank.held_bytes,
    )  # fmt: skip
