"""The best policies over sequences as long as the data has them.

A scan prices steps of full sequences only. So the fastest there, and the fastest with as many full sequences as the
data packs into, are priced again over the data and ranked by that.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as with_fields

from shardwise.plan.candidate import Candidate
from shardwise.plan.choice import recommended_of
from shardwise.plan.constraints import constraints_of
from shardwise.plan.exhaustive import Ranking, scan
from shardwise.spec.lengths import LengthsChoice
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.step.estimate.lengths import DrawnSteps
from shardwise.work.case import Case

LOOKED = 12
"""of the fastest of each scan, those that are priced over the data"""


def scan_by_lengths(
    case: Case, choice: LengthsChoice, *, top: int = 1, told: Callable[[int, int], None] | None = None, **given: Any
) -> Ranking:
    """`given`: what `scan` takes. Steps and tokens are those of the data; which kinds lose is not told."""
    given |= {"losers": False, "extremes": False, "top": max(top, LOOKED)}
    rankings = [scan(case, **given)]
    if rankings[0].best and choice.packing != "off":
        rankings += _of_packed(case, choice, rankings[0].best[0].policy, given)
    near = _legal(case, rankings)
    found = []
    for index, candidate in enumerate(near):
        if told is not None:
            told(index, len(near))
        found.append(_over_data(case, candidate, choice))
    found.sort(key=lambda c: (c.step_s, c.peak_bytes))
    return replace(rankings[0], best=tuple(found[:top]), recommended=recommended_of(case, found), losers=())


def _of_packed(case: Case, choice: LengthsChoice, policy: Policy, given: dict[str, Any]) -> list[Ranking]:
    """Fewer sequences, all full; and for dynamic context parallelism policies that have some."""
    tokens = DrawnSteps(case, policy, choice.lengths).step("off").tokens
    fewer = max(round(tokens / case.job.seq), 1)
    batch = next((n for n in range(fewer, case.job.global_batch) if case.job.global_batch % n == 0), fewer)
    packed = replace(case, job=with_fields(case.job, global_batch=batch))
    found = [scan(packed, **given)]
    if choice.packing == "dynamic":
        found.append(scan(packed, **given | {"only": (*given.get("only", ()), *constraints_of(["cp>1"]))}))
    return found


def _legal(case: Case, rankings: Sequence[Ranking]) -> list[Candidate]:
    """Each policy once, if it can deal out the step it is asked for."""
    near = {c.policy: c for ranked in rankings for c in ranked.best[:LOOKED]}
    return [c for c in near.values() if verdict_of(case.model, case.cluster, case.job, c.policy, cure=False).legal]


def _over_data(case: Case, candidate: Candidate, choice: LengthsChoice) -> Candidate:
    step = DrawnSteps(case, candidate.policy, choice.lengths).step(choice.packing)
    rate = step.tokens / step.step_s / case.cluster.gpus
    return replace(candidate, step_s=step.step_s, tokens_per_s_per_gpu=rate, data=step)
