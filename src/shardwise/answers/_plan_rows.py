"""The rows of a plan: each column is a field here, for the terminal, `--json`, the page and a notebook."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from shardwise.answers._planned import Planned, bottleneck_of
from shardwise.answers.answer import SIZES, columns, shown, units
from shardwise.plan import Candidate
from shardwise.plan.losers import Loser
from shardwise.plan.nearest import nearest_run
from shardwise.question.studies.money import BILLION
from shardwise.question.studies.why import why_slower
from shardwise.report.report import Money
from shardwise.spec.policy import Policy
from shardwise.step.estimate.synced import ExtraSteps

DAY = 86400.0


class RankedPolicy(Struct, frozen=True, kw_only=True):
    """What a search knows of a policy."""

    taken: Annotated[bool, shown("", "mark")] = False
    policy: Annotated[Policy, shown("policy", "policy")]
    step_s: Annotated[float, shown("step s", "s")]
    tokens_per_s_per_gpu: Annotated[float, shown("tok/s", "per second")]
    peak_bytes: Annotated[float, shown("", SIZES)]


class PlanRow(RankedPolicy, frozen=True, kw_only=True):
    free_bytes: Annotated[float, shown("free", "GiB")]
    """on the fullest GPU, after a reserve for buffers that are not counted"""
    mfu_causal_half: Annotated[float, shown("MFU %", "%")]
    mfu_full_square: float
    extra: Annotated[str | UnsetType, shown("extra")] = UNSET
    """more steps to the same loss than with the mean gradient, in words"""
    extra_steps: float | UnsetType | None = UNSET
    extra_at_least: bool | UnsetType = UNSET
    extra_source: str | UnsetType | None = UNSET
    to_loss_s: Annotated[float | UnsetType | None, shown("to loss s", "s")] = UNSET
    waiting: Annotated[float | UnsetType, shown("wait %", "%")] = UNSET
    """over the lengths of the data: extra time of the slowest rank over the mean"""
    data_share: Annotated[float | UnsetType, shown("data %", "%")] = UNSET
    """of the computed tokens, those that are not padding"""
    risk: Annotated[float, shown("risk %", "%")]
    """of running out of memory"""
    days: Annotated[float | None, shown("days")]
    """of the whole run"""
    usd: Annotated[tuple[float, float] | None, shown("USD", "USD span")]
    """of the run, or of 1e9 tokens where no run is stated"""
    run: Money | None
    billion_tokens: Annotated[Money, shown("USD/Gtok", "rent")]
    bottleneck: Annotated[str | None, shown("most time lost to")]
    """the part of the step besides compute that costs most"""
    why: str
    """it stands where it does"""
    inside_error_band_of_the_first: bool
    nearest_run: str
    doublings_from_it: float
    evidence: str | None
    """for the step times, of all policies alike"""
    host_bytes: float
    """offloaded to the host, per GPU"""
    host_limit_bytes: float


class LoserRow(Struct, frozen=True, kw_only=True):
    """The best policy of a kind that the first is not."""

    kind: str
    why: str
    policy: Policy
    step_s: float
    peak_bytes: float
    slower: float | None
    over_bytes: float


class PlanColumn(Struct, frozen=True, kw_only=True):
    """A column of `best` for whoever draws a table of it."""

    name: str
    label: str
    unit: str


def ranked_policy(found: Candidate) -> RankedPolicy:
    return RankedPolicy(policy=found.policy, step_s=found.step_s, tokens_per_s_per_gpu=found.tokens_per_s_per_gpu,
                        peak_bytes=found.peak_bytes)  # fmt: skip


def plan_row(planned: Planned, found: Candidate, index: int | None = None) -> PlanRow:
    """`index`: its place in the ranking; None: it is not in it."""
    run = planned.run_money(found) if planned.question.job.tokens else None
    billion = planned.money(found, BILLION)
    like = nearest_run(planned.case, found.policy)
    parts = planned.parts[index] if index is not None and index < len(planned.parts) else None
    taken = planned.ranked.recommended
    ranked = ranked_policy(found)
    row = PlanRow(
        taken=taken is not None and found.policy == taken.policy, policy=ranked.policy, step_s=ranked.step_s,
        tokens_per_s_per_gpu=ranked.tokens_per_s_per_gpu, peak_bytes=ranked.peak_bytes,
        free_bytes=planned.free_bytes(found), mfu_causal_half=planned.mfu(found),
        mfu_full_square=planned.mfu(found, "full_square"),
        waiting=UNSET if found.data is None else found.data.waiting,
        data_share=UNSET if found.data is None else found.data.data,
        risk=planned.risk(found), days=None if run is None else run.seconds / DAY, usd=(run or billion).usd, run=run,
        billion_tokens=billion, bottleneck=None if parts is None else bottleneck_of(parts),
        why=_why(planned, found, index), nearest_run=str(like), doublings_from_it=like.distance,
        inside_error_band_of_the_first=bool(planned.listed)
        and found.step_s <= planned.listed[0].step_s * (1 + planned.apart),
        evidence=planned.first.error_basis if planned.first else None, host_bytes=planned.host_bytes(found),
        host_limit_bytes=planned.case.cluster.host_bytes_per_gpu,
    )  # fmt: skip
    return _to_loss(row, found.extra, found.to_loss_s) if planned.strategies else row


def _to_loss(row: PlanRow, extra: ExtraSteps | None, to_loss_s: float) -> PlanRow:
    known = extra is None or extra.share is not None
    return replace(
        row, extra=extra.text if extra else "-", extra_steps=0.0 if extra is None else extra.share,
        extra_at_least=extra is not None and extra.at_least, extra_source=None if extra is None else extra.source,
        to_loss_s=to_loss_s if known else None,
    )  # fmt: skip


def _why(planned: Planned, found: Candidate, index: int | None) -> str:
    parts, first = planned.parts, planned.first
    if index == 0:
        alone = len(planned.listed) < 2 or found.data is not None
        return "the fastest that fits" + ("" if alone else f"; next: {why_slower(parts[0], parts[1])}")
    if index is None or first is None or index >= len(parts):
        return "slower"
    if found.data is not None:
        return f"the step over the data is {found.step_s / planned.listed[0].step_s - 1:.1%} longer"
    return why_slower(first, parts[index])


def loser_row(found: Loser) -> LoserRow:
    return LoserRow(kind=found.kind, why=found.why, policy=found.policy, step_s=found.step_s,
                    peak_bytes=found.peak_bytes, slower=found.slower, over_bytes=found.over_bytes)  # fmt: skip


def plan_columns(rows: Sequence[RankedPolicy]) -> list[PlanColumn]:
    """Those that any of these rows has."""
    return [
        PlanColumn(name=name, label=label, unit=units(PlanRow)[name])
        for name, (label, _) in columns(PlanRow).items()
        if any(getattr(row, name, None) not in (None, UNSET) for row in rows)
    ]
