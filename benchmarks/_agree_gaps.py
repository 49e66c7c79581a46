"""How far apart the tiers are on one case: bytes, closed form against simulation, closed form against flow level."""

from dataclasses import dataclass

import numpy as np

from _agree_cases import Sample, SmallSpace
from shardwise.fabric.calls import PlacedMessage, calls_of
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.step import StepLoad, step_load
from shardwise.fabric.tree_build import tree_of
from shardwise.question.studies.fabric.loop import looped
from shardwise.question.studies.traffic import traffic_of
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import Simulation, simulate
from shardwise.step.simulate.agree import gap_of
from shardwise.step.simulate.timeline import LANES
from shardwise.work.case import Case, case_of

HOPELESS = 3.0
"""a policy this many times slower than the best by the closed form is not run at flow level to find the first choice"""
TIED = 1e-9
NEGLIGIBLE = 1e-9
"""of an axis's bytes: what rounding leaves of a level that carries nothing"""


@dataclass(frozen=True)
class Gaps:
    bytes_gap: float
    """largest relative difference of an axis's bytes, level by level and lane by lane"""
    where: str
    sim_gap: float
    sim_why: tuple[str, ...]
    flow_gap: float | None
    """None: not run at flow level"""
    prices_gap: float = 0.0
    """the step with flow-level prices, each kind of traffic alone, over the simulation with the closed form's"""
    flow_why: tuple[str, ...] = ()


def gaps_of(sample: Sample, *, flows: bool) -> Gaps:
    case = case_of(sample.model, sample.cluster, sample.job, sample.stack)
    found = simulate(case, sample.policy)
    calls = calls_of(found.closed.work)
    load = _load(case, sample.policy, calls)
    gap, where = max([(0.0, ""), *_by_level(case, found, load), *_by_lane(found, calls)])
    closed = float(found.closed.times.step_s[0])
    sim = found.step_s / closed - 1.0
    flow, prices, why = None, 0.0, ()
    if flows:
        loop = looped(case, sample.policy, found, load)
        flow, prices = loop.step_s / closed - 1.0, loop.unshared_s / found.step_s - 1.0
        why = _flow_reasons(found, loop.unshared_s, loop.step_s)
    return Gaps(gap, where, sim, gap_of(found).why if abs(sim) > 0.03 else (), flow, prices, why)


def _load(case: Case, policy: Policy, calls: list[PlacedMessage]) -> StepLoad:
    tree = tree_of(case.cluster)
    return step_load(Prices(tree, case.network, seats_of(policy, tree)), calls)


def _by_level(case: Case, found: Simulation, load: StepLoad) -> list[tuple[float, str]]:
    """`estimate`'s traffic against the bytes on the fabric's links."""
    told = traffic_of(case, found.closed.work)
    rows = []
    for axis, levels in load.level_bytes().items():
        least = NEGLIGIBLE * sum(levels.values())
        rows += [(_apart(told[axis][level], sent, least), f"{axis} into {level}") for level, sent in levels.items()]
    return rows


def _by_lane(found: Simulation, calls: list[PlacedMessage]) -> list[tuple[float, str]]:
    """The simulated timeline's bytes against the list of messages that runs are held against."""
    spans = found.timeline().spans
    listed = dict.fromkeys(LANES, 0.0)
    for call in calls:
        listed[call.lane] += call.bytes * call.count
    drawn = np.bincount(spans.lane, weights=spans.bytes, minlength=len(LANES))
    quiet = ("compute", "copy")
    return [(_apart(float(drawn[LANES.index(lane)]), sent, 1.0), f"lane {lane}")
            for lane, sent in listed.items() if lane not in quiet]  # fmt: skip


def _apart(a: float, b: float, least: float) -> float:
    return abs(a - b) / max(abs(a), abs(b)) if max(abs(a), abs(b)) > least else 0.0


def _flow_reasons(found: Simulation, unshared: float, step: float) -> tuple[str, ...]:
    """What of the difference is order in time, what are prices, what is traffic that meets on a link."""
    closed = float(found.closed.times.step_s[0])
    parts = {
        "order in time (closed form against simulation)": found.step_s - closed,
        "prices of collectives on the links": unshared - found.step_s,
        "kinds of traffic that share links": step - unshared,
    }
    return tuple(f"{name} {seconds / closed:+.1%}" for name, seconds in parts.items() if abs(seconds) > 0.01 * closed)


@dataclass(frozen=True)
class FirstChoice:
    """Which policy of a small space is first."""

    same: bool
    """closed form and flow level put the same policy first; policies that are equal to the last digits are one"""
    lost: float
    """at flow level: how much longer the closed form's first choice takes than the best"""
    nearer: float
    """by the closed form: how much longer the flow level's first choice takes than the best"""
    told: str


def first_choice(space: SmallSpace) -> FirstChoice:
    case = case_of(space.model, space.cluster, space.job, space.stack)
    closed = estimate(case, space.policies).times.step_s
    best = float(closed.min())
    chosen = [int(i) for i in np.flatnonzero(closed <= HOPELESS * best)]
    flow = {i: _flow_step(case, space.policies[i]) for i in chosen}
    first = min((i for i in chosen if closed[i] <= best * (1.0 + TIED)), key=flow.__getitem__)
    other = min(flow, key=flow.__getitem__)
    lost = flow[first] / flow[other] - 1.0
    told = (
        f"{space.model.name} on {space.cluster.gpus} of {space.cluster.name}, {len(space.policies)} policies: "
        f"closed form {policy_code(space.policies[first])}, flow level {policy_code(space.policies[other])}"
    )
    return FirstChoice(lost <= TIED, lost, float(closed[other]) / best - 1.0, told)


def _flow_step(case: Case, policy: Policy) -> float:
    found = simulate(case, policy)
    load = _load(case, policy, calls_of(found.closed.work))
    return looped(case, policy, found, load).step_s
