"""The advice of `shardwise plan`: the policy to take, and next to it the fastest and the safest."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise.case import Case
from shardwise.cli._output import Cell, print_facts, print_gap
from shardwise.estimate.chance import out_of_memory_chance
from shardwise.estimate.closed_form import estimate
from shardwise.estimate.memory import free_bytes
from shardwise.estimate.synced import choice_of
from shardwise.plan import Candidate, Ranking
from shardwise.plan.choice import ALIKE, FAR, mechanisms
from shardwise.plan.nearest import NearestRun, nearest_run
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policies
from shardwise.units import gib

LEAST = 0.005
"""chances below are told as such: the table they are read off ends there"""


@dataclass(frozen=True)
class Advice:
    """A policy, and what speaks for and against it."""

    found: Candidate
    chance: float
    """to run out of memory"""
    free_bytes: float
    nearest: NearestRun

    @property
    def text(self) -> str:
        return f"{self.found.step_s:.4g} s, {gib(self.free_bytes)} GiB free, {chance_text(self.chance)} out of memory"

    @property
    def data(self) -> dict[str, Any]:
        return {"risk": self.chance, "nearest_run": str(self.nearest), "doublings_from_it": self.nearest.distance}


def advice_of(case: Case, found: Candidate) -> Advice:
    chance = float(out_of_memory_chance(case, np.array([found.peak_bytes]))[0])
    room = free_bytes(found.peak_bytes, case.cluster.gpu, case.stack)
    return Advice(found, chance, room, nearest_run(case, found.policy))


def chance_text(chance: float) -> str:
    return f"less than {LEAST:.1%} risk of running" if chance < LEAST else f"{chance:.0%} risk of running"


def show_choice(title: str, case: Case, ranked: Ranking) -> None:
    take = ranked.recommended
    if take is None:
        return
    best, facts = advice_of(case, take), list[tuple[str, Cell]]()
    facts.append(("take", f"{policy_code(take.policy)}: {best.text}; {_why(ranked, best)}"))
    for name, other, when in (("fastest", ranked.fastest, " if the prediction holds"), ("safest", ranked.safest, "")):
        if other is not None:
            same = "same as take" if other.policy == take.policy else _beside(advice_of(case, other), best, when)
            facts.append((name, same))
    far = (
        "; extrapolated: most predictions were checked closer to a measured run" if best.nearest.distance >= FAR else ""
    )
    facts.append(("nearest", f"measured run: {best.nearest}{far}"))
    host = host_bytes(case, take)
    if host:
        facts.append(
            ("host", f"{gib(host * case.cluster.node_size)} GiB of host memory on each node for offloaded state")
        )
    print_facts(title, facts)
    print_gap()


def host_bytes(case: Case, found: Candidate) -> float:
    """Of one GPU's share."""
    if found.policy.offload == "none":
        return 0.0
    sync = choice_of(found.policy.sync, case.job.optimizer.name)
    return float(np.max(estimate(case, Policies.of([found.policy]), sync=sync).memory.host_bytes))


def _beside(other: Advice, take: Advice, when: str) -> str:
    apart = other.found.step_s / take.found.step_s - 1.0
    alone = ", no run like it was measured" if other.nearest.distance >= FAR > take.nearest.distance else ""
    return f"{policy_code(other.found.policy)}: {other.text}, step {apart:+.1%}{when}{alone}"


def _why(ranked: Ranking, take: Advice) -> str:
    first = ranked.best[0]
    if take.chance > ranked.risk:
        return f"no policy that fits keeps that risk below {ranked.risk:.0%}"
    if take.found.policy == first.policy:
        return f"the fastest that keeps that risk below {ranked.risk:.0%}"
    apart = take.found.step_s / first.step_s - 1.0
    gain = []
    if mechanisms(take.found.policy) < mechanisms(first.policy):
        gain.append("simpler")
    if take.found.peak_bytes < first.peak_bytes:
        gain.append("more memory free")
    if apart > ALIKE:
        return f"predicted {apart:.1%} slower than the first listed, but closer to measured runs"
    return f"equal to the first listed within prediction error ({apart:+.1%}); {', '.join(gain) or 'as simple'}"


def choice_data(case: Case, ranked: Ranking) -> dict[str, Any]:
    """What `recommended`, `fastest` and `safest` need of the host."""
    named = {"recommended": ranked.recommended, "fastest": ranked.fastest, "safest": ranked.safest}
    return {name: {"host_bytes": host_bytes(case, found)} for name, found in named.items() if found is not None}
