"""The best policies over strategies of data parallelism: an exact scan of each, ranked by the time to the same loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise.plan.candidate import Candidate
from shardwise.plan.exhaustive import Ranking, scan
from shardwise.step.estimate.synced import SyncChoice
from shardwise.step.estimate.synced.rules import job_refusal
from shardwise.work.case import Case


@dataclass(frozen=True)
class Best:
    """What one strategy can do."""

    choice: SyncChoice | None
    """None: the mean gradient"""
    candidate: Candidate | None
    why: str
    """where there is none"""

    @property
    def text(self) -> str:
        return self.choice.text if self.choice else "psgd"


def scan_over(
    choices: Sequence[SyncChoice | None],
    case: Case,
    top: int,
    told: Callable[[int, int], None] | None,
    losers: bool = True,
    **given: Any,
) -> tuple[Ranking, list[Best]]:
    """`given`: what `scan` takes. The first of the choices says which kinds lose, and why."""
    found: list[Ranking] = []
    each: list[Best] = []
    for index, choice in enumerate(choices):
        if told is not None:
            told(index, len(choices))
        why = job_refusal(choice, case.job) if choice else ""
        if why:
            each.append(Best(choice, None, why))
            continue
        ranked = scan(case, **given, top=top, sync=choice, losers=losers and not found)
        found.append(ranked)
        best = ranked.recommended
        small = ranked.smallest
        each.append(
            Best(choice, best, "" if best else "no policy it can run with" if small is None else "does not fit")
        )
        if not ranked.finished:
            break
    if not found:
        raise ValueError(f"sync: {each[0].text}: {each[0].why}")
    each.sort(key=_order)
    merged = sorted((c for ranked in found for c in ranked.best), key=_standing)
    small = min((r.smallest for r in found if r.smallest), key=lambda c: c.peak_bytes, default=None)
    return replace(
        found[0], best=tuple(merged[:top]), recommended=each[0].candidate, points=sum(r.points for r in found),
        evaluated=sum(r.evaluated for r in found), fitting=sum(r.fitting for r in found),
        finished=all(r.finished for r in found) and len(each) == len(choices),
        smallest=None if merged else small,
    ), each  # fmt: skip


def _standing(candidate: Candidate) -> tuple[bool, float]:
    """What was never measured comes after what was."""
    unknown = candidate.extra is not None and candidate.extra.share is None
    return unknown, candidate.to_loss_s


def _order(best: Best) -> tuple[bool, bool, float]:
    return (True, True, 0.0) if best.candidate is None else (False, *_standing(best.candidate))
