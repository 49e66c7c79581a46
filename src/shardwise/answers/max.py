"""`size --max`: the largest sequence, micro-batch or model that fits, and what is full beyond it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec import UNSET, Struct

from shardwise.answers._estimate_parts import host_words
from shardwise.answers._that_fit import NearPolicy, near_notes, near_policies, room_of
from shardwise.answers.answer import Answer, Cell, FactList, Part, Table
from shardwise.plan import Ranking
from shardwise.plan.that_fit import policies_that_fit
from shardwise.question import Question
from shardwise.question.studies.why import out_of_memory
from shardwise.report import Report
from shardwise.report.terminal import legend_of, policy_code, policy_text
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.policy import Policy
from shardwise.units import SizeUnit, gib, memory_text, share_text, size_unit, time_text

KINDS_NAMED = 3


@dataclass(frozen=True)
class GrowthAxis:
    unit: str
    start: int
    least: int
    most: int
    rounds: int
    """how often the last gap is cut into eighths"""
    at: Callable[[int], Question]


@dataclass
class Growth:
    cases: dict[int, Question] = field(default_factory=dict)
    tried: dict[int, Ranking] = field(default_factory=dict)
    finished: bool = True
    """false after Ctrl-C: larger ones may fit"""

    @property
    def largest(self) -> int | None:
        return max((n for n, ranked in self.tried.items() if ranked.best), default=None)

    @property
    def next(self) -> int | None:
        """the smallest size tried above the largest that fits"""
        return min((n for n, ranked in self.tried.items() if n > (self.largest or 0)), default=None)


class FilledGpu(Struct, frozen=True, kw_only=True):
    """A policy and the memory of its fullest stage; none where no policy is legal."""

    policy: Policy | None
    peak_bytes: float | None
    fullest_stage: int | None
    kinds_bytes: Mapping[str, float] | None


class NextSize(FilledGpu, frozen=True, kw_only=True):
    size: int
    over_bytes: float | None
    why: str | None
    that_fit: Sequence[NearPolicy]


class TriedSize(Struct, frozen=True, kw_only=True):
    size: int
    fits: bool
    legal: int
    """policies"""


class MaxAnswer(Answer, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("growth", "winner", "over")

    what: str
    model: str
    cluster: str
    stack: str
    unit: str
    largest: int | None
    parameters: int | None
    """of the largest, as the following"""
    global_sequences: int | None
    seq_tokens: int | None
    policy: Policy | None
    peak_bytes: float | None
    fullest_stage: int | None
    kinds_bytes: Mapping[str, float] | None
    host_bytes: float | None
    host_limit_bytes: float | None
    step_s: float | None
    mfu_causal_half: float | None
    mfu_full_square: float | None
    next: NextSize | None
    """the smallest size that does not fit"""
    finished: bool
    tried: Sequence[TriedSize]
    growth: Any = UNSET
    """a Growth"""
    winner: Any = UNSET
    """Report of the largest that fits"""
    over: Any = UNSET
    """Report of the smallest policy at the next size"""

    @property
    def exit_code(self) -> int:
        return 1 if self.largest is None else 0

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        ranked = self.growth.tried.values()
        shown = [each.recommended.policy for each in ranked if each.recommended is not None]
        return [*([legend_of(shown)] if shown else []), *notes]

    def parts(self) -> Iterator[Part]:
        found: Growth = self.growth
        yield FactList(f"largest {self.what} on {self.cluster}", self._facts(found, self.winner, self.over))
        peaks = [ranked.recommended.peak_bytes for ranked in found.tried.values() if ranked.recommended is not None]
        unit = size_unit(max(peaks, default=2.0**30))
        heads = [self.unit, "policy", "step s", unit.name, "over by GiB"]
        yield Table("tried", heads, _rows(found, unit), words=2, breaks=1, bars=(unit.name,))
        if self.next is not None and self.next.policy is not None:
            room = room_of(found.cases[self.next.size].on(found.cases[self.next.size].cluster))
            yield near_notes(room, self.next.policy, self.next.that_fit, f"at {self.next.size:,}: nearest")

    def _facts(self, found: Growth, winner: Report | None, over: Report | None) -> list[tuple[str, Cell]]:
        facts: list[tuple[str, Cell]] = []
        if winner is None or self.largest is None:
            facts.append(("largest", f"nothing fits, not even {min(found.tried):,} {self.unit}"))
        else:
            also = f", {(self.parameters or 0) / 1e9:,.4g}B parameters" if self.what == "model" else ""
            facts += [
                ("largest", f"{self.largest:,} {self.unit}{also}"),
                ("policy", policy_text(winner.policy)),
                ("step", f"{time_text(winner.step_s)} of {winner.global_sequences:,} x {winner.seq_tokens:,} tokens, "
                         f"MFU {share_text(winner.mfu_causal_half)}"),
                ("memory", f"{memory_text(winner.peak_bytes)} of {gib(found.tried[self.largest].limit_bytes)} GiB that "
                           f"may be filled, stage {winner.fullest_stage}: {_filled(winner)}"),
            ]  # fmt: skip
            if winner.host_bytes:
                facts.append(("host", host_words(winner.host_bytes, winner.host_limit_bytes)))
        if self.next is not None:
            why = "no legal policy" if over is None else f"{self.next.why} ({_filled(over)})"
            smallest = "" if over is None else f"; the smallest policy is {policy_code(over.policy)}"
            facts.append((f"at {self.next.size:,}", why + smallest))
        return facts


ANSWERS = (MaxAnswer,)


def max_answer(what: str, case: Question, axis: GrowthAxis, found: Growth, notes: Sequence[str]) -> MaxAnswer:
    inside, chosen = found.largest, None
    grown = None if inside is None else found.cases[inside]
    if inside is not None:
        chosen = found.tried[inside].recommended
    winner = None if chosen is None or grown is None else grown.report(case.cluster, chosen.policy)
    over, following = _next(case, found)
    return MaxAnswer(
        what=what, model=case.model.name, cluster=case.cluster.name, stack=case.stack.name, unit=axis.unit,
        largest=inside, parameters=None if grown is None else parameters(grown.model),
        global_sequences=None if grown is None else grown.job.global_batch,
        seq_tokens=None if grown is None else grown.job.seq, policy=None if winner is None else winner.policy,
        peak_bytes=None if winner is None else winner.peak_bytes,
        fullest_stage=None if winner is None else winner.fullest_stage,
        kinds_bytes=None if winner is None else winner.stages[winner.fullest_stage].kinds_bytes,
        host_bytes=None if winner is None else winner.host_bytes,
        host_limit_bytes=None if winner is None else winner.host_limit_bytes,
        step_s=None if winner is None else winner.step_s,
        mfu_causal_half=None if winner is None else winner.mfu_causal_half,
        mfu_full_square=None if winner is None else winner.mfu_full_square, next=following, finished=found.finished,
        tried=[TriedSize(size=size, fits=bool(r.best), legal=r.points) for size, r in sorted(found.tried.items())],
        growth=found, winner=winner, over=over, notes=notes,
    )  # fmt: skip


def _next(case: Question, found: Growth) -> tuple[Report | None, NextSize | None]:
    """Of the smallest policy at the next size, and of those that fit after all, outside --fix or by offload."""
    size = found.next
    if size is None:
        return None, None
    ranked, here = found.tried[size], found.cases[size]
    if ranked.smallest is None:
        return None, NextSize(
            size=size, policy=None, peak_bytes=None, fullest_stage=None, kinds_bytes=None, over_bytes=None, why=None,
            that_fit=[],
        )  # fmt: skip
    over = here.report(case.cluster, ranked.smallest.policy)
    return over, NextSize(
        size=size, policy=over.policy, peak_bytes=over.peak_bytes, fullest_stage=over.fullest_stage,
        kinds_bytes=over.stages[over.fullest_stage].kinds_bytes, over_bytes=over.peak_bytes - ranked.limit_bytes,
        why=out_of_memory(over, ranked.limit_bytes),
        that_fit=near_policies(policies_that_fit(here.on(case.cluster), over.policy), over.step_s),
    )  # fmt: skip


def _rows(found: Growth, unit: SizeUnit) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for size, ranked in sorted(found.tried.items()):
        best = ranked.recommended
        if best is not None:
            rows.append([f"{size:,}", policy_code(best.policy), f"{best.step_s:.4g}", unit.text(best.peak_bytes), None])
        else:
            over = None if ranked.smallest is None else gib(ranked.smallest.peak_bytes - ranked.limit_bytes)
            rows.append([f"{size:,}", "nothing fits" if over else "nothing legal", None, None, over])
    return rows


def _filled(report: Report) -> str:
    kinds = sorted(report.stages[report.fullest_stage].kinds_bytes.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {memory_text(size)}" for kind, size in kinds[:KINDS_NAMED])
