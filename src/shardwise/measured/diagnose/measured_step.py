"""The step of all ranks that were traced: its parts, the rank that is slow, and what a trace cannot say."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from msgspec.structs import replace

from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.device_trace import RankTrace
from shardwise.measured.diagnose.occupancy import ARITHMETIC, Occupancy, occupancy_of
from shardwise.measured.diagnose.rank_waits import RankWaits, waits_of
from shardwise.spec.policy import Policy

SLOWER = 1.05
"""kernels so many times those of the other ranks are slow themselves"""
LONGER = {
    "host": "its host launches late", "data": "it waits for its batches", "copy": "it copies longer",
    "checkpoint": "it saves longer", "idle": "its GPU is idle longer", "compute": "it computes longer",
}  # fmt: skip
"""what a slow rank may do more of than the others"""
LEAST = 1e-3
"""of a step: below, a part is not told"""


@dataclass(frozen=True)
class MeasuredStep:
    step_s: float
    steps: int
    causes: tuple[Cause, ...]
    """seconds of a step by part; they add up to step_s"""
    ranks: tuple[Occupancy, ...]
    waits: RankWaits | None
    """None for one rank"""
    slow_rank: str
    """empty where none is, or none can be told"""
    notes: tuple[str, ...]

    @property
    def arithmetic(self) -> float:
        """Share of the kernels' time that products and attention take: those that follow the clock."""
        total = sum(sum(rank.families.values()) for rank in self.ranks)
        bound = sum(rank.families.get(family, 0.0) for rank in self.ranks for family in ARITHMETIC)
        return bound / total if total > 0 else 0.0


def measured_step(traces: Sequence[RankTrace], policy: Policy | None, steps: int | None = None) -> MeasuredStep:
    waits = waits_of(traces) if len(traces) > 1 else None
    ranks = [
        occupancy_of(trace, policy, steps, waits.waits[place]) if waits else occupancy_of(trace, policy, steps)
        for place, trace in enumerate(traces)
    ]
    culprit = waits.culprit if waits is not None else None
    typical = _typical(ranks, culprit, policy)
    parts = _averaged(typical)
    slow = culprit is not None and parts.get("wait", 0.0) > LEAST * mean(each.step_s for each in typical)
    waited = parts.pop("wait", 0.0) if slow else 0.0
    if slow and culprit is not None:
        # the slow rank waits least: what it sees of a collective is the transfer, the rest of the others' is waiting
        for code in [code for code in parts if code in ranks[culprit].ops or code in typical[0].ops]:
            own = min(parts[code], ranks[culprit].parts.get(code, 0.0))
            waited, parts[code] = waited + parts[code] - own, own
    causes = [Cause(code=code, seconds=seconds, evidence=_evidence(code, typical)) for code, seconds in parts.items()]
    if len(typical) < len(ranks) and not slow:
        causes = [_placed(cause, typical[0], ranks) if cause.code == "compute" else cause for cause in causes]
    if slow and culprit is not None and waits is not None:
        causes += _straggling(culprit, ranks, typical, waits, waited)
    return MeasuredStep(
        step_s=mean(each.step_s for each in typical), steps=min(each.steps for each in ranks), causes=tuple(causes),
        ranks=tuple(ranks), waits=waits, slow_rank=ranks[culprit].rank if slow and culprit is not None else "",
        notes=tuple(_notes(traces, waits, steps)),
    )  # fmt: skip


def _typical(ranks: Sequence[Occupancy], culprit: int | None, policy: Policy | None) -> list[Occupancy]:
    """Whose step stands for the job's: in a pipeline the busiest stage, of which an estimate speaks too; else all but
    the slow one."""
    if policy is not None and policy.pp > 1:
        return [max(ranks, key=lambda each: each.parts.get("compute", 0.0))]
    return [each for place, each in enumerate(ranks) if place != culprit]


def _placed(cause: Cause, busiest: Occupancy, ranks: Sequence[Occupancy]) -> Cause:
    others = median(each.parts.get("compute", 0.0) for each in ranks)
    told = f"the busiest of {len(ranks)} ranks, the middle one computes {others * 1e3:,.1f} ms; {cause.evidence}"
    return replace(cause, where=busiest.rank, evidence=told)


def _averaged(ranks: Sequence[Occupancy]) -> dict[str, float]:
    codes = dict.fromkeys(code for each in ranks for code in each.parts)
    return {code: mean(each.parts.get(code, 0.0) for each in ranks) for code in codes}


def _straggling(culprit: int, ranks: Sequence[Occupancy], others: Sequence[Occupancy], waits: RankWaits, waited_s: float
                ) -> list[Cause]:  # fmt: skip
    """The waiting, divided between the rank that causes most of it and the rest."""
    slow, share = ranks[culprit], waits.caused_s[culprit] / sum(waits.caused_s)
    found = [Cause(
        code="straggler", seconds=waited_s * share, where=slow.rank,
        evidence=f"it comes last to {waits.last_share[culprit]:.0%} of its collectives; {_reason(slow, others)}",
    )]  # fmt: skip
    if share < 1:
        found.append(Cause(code="wait", seconds=waited_s * (1 - share), evidence="other ranks come last to the rest"))
    return found


def _reason(slow: Occupancy, others: Sequence[Occupancy]) -> str:
    """What the slow rank spends more of than its peers."""
    more = {code: slow.parts.get(code, 0.0) - median(each.parts.get(code, 0.0) for each in others)
            for code in LONGER}  # fmt: skip
    worst = max(more, key=lambda code: more[code])
    usual = median(each.parts.get(worst, 0.0) for each in others)
    ratio = slow.parts.get(worst, 0.0) / usual if usual > 0 else 0.0
    if worst == "compute" and ratio > SLOWER:
        return f"its kernels take {ratio:.2f} times the others': look at its clocks, temperature and share of the work"
    return f"{LONGER[worst]}: {more[worst] * 1e3:,.1f} ms more a step than the others"


def _evidence(code: str, ranks: Sequence[Occupancy]) -> str:
    if code == "host":
        syncs = mean(each.syncs for each in ranks)
        return f"kernels were launched after the GPU ran dry; the host waited for the GPU {syncs:.3g} times a step"
    if code == "compute":
        kernels = ranks[0].families.items()
        return ", ".join(f"{family} {seconds * 1e3:,.1f} ms" for family, seconds in list(kernels)[:4])
    ops = [each.ops[code] for each in ranks if code in each.ops]
    if not ops:
        return ""
    hidden = mean(each.hidden.get(code, 0.0) for each in ranks)
    return f"mostly {ops[0] or 'collectives'}" + (
        f"; {hidden * 1e3:,.1f} ms more are hidden under kernels" if hidden > 0 else ""
    )


def _notes(traces: Sequence[RankTrace], waits: RankWaits | None, steps: int | None) -> list[str]:
    notes = []
    if not traces[0].steps and steps is None and not traces[0].simulated:
        notes.append("no step is marked in the trace: times are of all of it; write --steps N, or call profiler.step()")
    if any(trace.cut_off for trace in traces):
        notes.append("a file ends in the middle: what came before was read")
    if waits is None:
        notes.append(
            "one rank: waiting for others cannot be distinguished from a slow network; give traces of several ranks"
        )
    elif not waits.shared and not traces[0].simulated:
        notes.append("the traces share no collective: their ranks could not be held against each other")
    if waits is not None:
        notes += [
            f"{group.op} over ranks {_listed(group.ranks)} takes {group.times:.2f} times its peers': look at the links"
            for group in waits.slow_groups[:3]
        ]
    if traces[0].on_cpu:
        notes.append("the trace has no device: operators of the host were taken for kernels")
    elif not traces[0].simulated and not any(
        len(trace.launched_s) and (trace.launched_s == trace.launched_s).any() for trace in traces
    ):
        notes.append("no launches in the trace: idle time cannot be attributed to the host (ProfilerActivity.CPU)")
    return notes


def _listed(ranks: Sequence[int]) -> str:
    words = [str(rank) for rank in ranks[:8]]
    return ", ".join(words) + (", ..." if len(ranks) > 8 else "")
