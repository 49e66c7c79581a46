"""`estimate`: one policy - verdict, memory by kind and stage, step time by part, utilization, traffic, cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from shardwise.answers._assumed import Assumption, assumptions_of
from shardwise.answers._estimate_parts import (
    facts_of,
    hidden_line,
    memory_legend,
    memory_table,
    money_table,
    time_table,
    traffic_table,
)
from shardwise.answers._evidence import MeasuredBeside, evidence_of, evidence_table
from shardwise.answers._lengths import lengths_data, lengths_notes, over_data
from shardwise.answers._that_fit import NearPolicy, near_notes, near_policies
from shardwise.answers.answer import Figure, Notes, Part, Rendered
from shardwise.answers.cannot_run import CannotRunAnswer, cannot_run
from shardwise.measured.learn import measure_next
from shardwise.plan.nearest import nearest_run
from shardwise.plan.that_fit import policies_that_fit
from shardwise.question import RECOMMENDED, SMALLEST, PolicyQuestion
from shardwise.question.question import host_refusal
from shardwise.question.studies.build import report_of
from shardwise.report.report import Report
from shardwise.step.estimate.deciding import UnevenGroups, deciding_numbers, uneven_groups
from shardwise.step.estimate.learned import runs_for
from shardwise.step.estimate.reached import StepRange, reached_of
from shardwise.work.case import Case

DECIDING = "constants that move the step by more than 5%"
UNEVEN = "placement of ranks that moves the step by more than 5%"
CHOSEN = {RECOMMENDED: " (recommended)", SMALLEST: " (none fits: the one that needs the least memory)"}


class DecidingRow(Struct, frozen=True, kw_only=True):
    """A constant that nobody read in the program's source and that moves the step by more than 5 %."""

    setting: str
    value: float
    default: float
    share: float
    """of the step: how much longer it is than with the default"""
    origin: str


class EstimateAnswer(Report, Rendered, frozen=True, kw_only=True):
    notes_among_parts: ClassVar[bool] = True

    legal: bool
    time_share: dict[str, float]
    host_fits: bool
    host_why: str | UnsetType = UNSET
    """where the host's memory is too small"""
    nearest_run: str
    doublings_from_it: float
    deciding_numbers: Sequence[DecidingRow]
    deciding: Sequence[str]
    """the same in words"""
    uneven_groups: UnevenGroups | None
    that_fit: Sequence[NearPolicy]
    """where it does not fit: those next to it that do"""
    reached: StepRange | None
    """tuned and typical step times; None where a profile's own runs say more, or no run of a kind was measured"""
    evidence: Sequence[MeasuredBeside] | UnsetType = UNSET
    lengths: Mapping[str, Any] | UnsetType = UNSET
    """the step over sequences as long as the data has them"""
    lengths_notes: Sequence[str] | UnsetType = UNSET
    assumed: Sequence[Assumption]
    """what moves the step by more than 5 % and was not stated"""
    policy_origin: str
    """who chose the policy"""
    notes: Sequence[str]

    @property
    def exit_code(self) -> int:
        return 0 if self.fits and self.host_fits else 1

    def data(self) -> dict[str, Any]:
        data = super().data()
        if self.tuning is None:
            del data["tuning"]
        return data

    def parts(self) -> Iterator[Part]:
        chosen = CHOSEN.get(self.policy_origin, "")
        tables: list[Part] = [
            facts_of(self, chosen, self.reached),
            memory_table(self),
            memory_legend(self),
            time_table(self),
        ]
        yield Figure(self._repr_html_, [*tables, hidden_line(self)])
        if isinstance(self.evidence, list) and self.evidence:
            yield evidence_table(self.evidence)
        if not isinstance(self.lengths_notes, UnsetType):
            yield Notes(self.lengths_notes, "with the lengths of the data")
        yield Notes(self.deciding, DECIDING)
        yield Notes(
            [str(self.uneven_groups)] if self.uneven_groups else [],
            "placement of ranks that moves the step by more than 5%",
        )
        yield Notes([self.host_why] if not isinstance(self.host_why, UnsetType) else [], "does not fit on the host")
        if not self.fits:
            yield near_notes(self.capacity_bytes - self.reserve_bytes, self.policy, self.that_fit)
        yield Notes([*map(str, self.assumed), *self.notes], "assumed, and to know")

    def more(self) -> Iterator[Part]:
        traffic = traffic_table(self)
        if traffic is not None:
            yield traffic
        yield money_table(self)
        yield Notes(self.assumptions, "details")


ANSWERS = (EstimateAnswer, CannotRunAnswer)


def estimate_answer(
    question: PolicyQuestion, *, evidence: int = 0, traffic: bool = True, model: str = "", on: str = ""
) -> EstimateAnswer | CannotRunAnswer:
    """`evidence`: that many measured runs beside it; `traffic`: also what is sent, which takes longer than the rest on
    many GPUs; `model`, `on`: as a command line names them."""
    refused = cannot_run(model or question.model.name, on or question.cluster.name, question)
    if refused is not None:
        return refused
    case, policy, choice = question.case, question.policy, question.lengths
    report = report_of(case, policy, traffic=traffic)
    over = host_refusal(case.cluster, report.host_bytes)
    data, like = over_data(case, policy, choice), nearest_run(case, policy)
    deciding = deciding_numbers(case, policy)
    return EstimateAnswer(
        **asdict(report), legal=True, time_share=report.shares, host_fits=not over, host_why=over or UNSET,
        nearest_run=str(like), doublings_from_it=like.distance,
        deciding_numbers=[
            DecidingRow(setting=each.setting, value=each.value, default=each.default, share=each.share,
                        origin=str(each.origin))
            for each in deciding
        ],
        deciding=list(map(str, deciding)), uneven_groups=uneven_groups(case, policy),
        that_fit=[] if report.fits else near_policies(policies_that_fit(case, policy), report.step_s),
        reached=reached_of(case, policy, report.step_s),
        evidence=evidence_of(case, policy, evidence) if evidence else UNSET,
        lengths=lengths_data(data, choice.packing) if data and choice else UNSET,
        lengths_notes=lengths_notes(data, policy, choice.packing).lines if data and choice else UNSET,
        assumed=assumptions_of(question, case, policy), policy_origin=question.origin,
        notes=[*question.notes, *_to_measure(case)],
    )  # fmt: skip


def _to_measure(case: Case) -> list[str]:
    """The run that would narrow the band most, where runs were learned from."""
    runs = runs_for(case.profile, case.stack.name)
    return [f"to narrow the band, measure {measure_next(runs)}"] if runs else []
