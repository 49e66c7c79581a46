"""Load of the busiest link of every tier, and of the tier as a whole, over one step of the joint loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats
from shardwise.fabric.demand import Demand
from shardwise.fabric.links import Links, busy_seconds
from shardwise.fabric.step import StepLoad
from shardwise.step.simulate.joint import JointStep

BINS = 2400
"""parts of a step that are looked at: a burst of 1 % still fills 24"""
SHOWN = 240
"""parts that are told; each holds the highest of its ten"""


@dataclass(frozen=True)
class LoadSeries:
    edges: Floats
    links: dict[int, Floats]
    """tier -> share of the busiest link's capacity in each part of the step"""
    means: dict[int, Floats]
    """tier -> share of all its links' capacity"""
    lanes: dict[str, Floats]
    """lane -> the busiest card's share of capacity"""
    peaks: dict[int, float]
    """link -> share of its capacity in its fullest moment"""

    @property
    def bin_s(self) -> float:
        return float(self.edges[1] - self.edges[0])


def coarse(values: Floats, parts: int = SHOWN) -> tuple[float, ...]:
    """The highest value in each of so many equal parts: an average would hide a burst."""
    return tuple(round(float(part.max()), 4) for part in np.array_split(values, min(parts, len(values))))


def series_of(
    load: StepLoad, demand: Demand, step: JointStep, watched: Sequence[int] = (), bins: int = BINS
) -> LoadSeries:
    """`watched`: further links whose fullest moment is asked for."""
    links, rows = load.prices.fabric.links, demand.shared.rows
    edges = np.linspace(0.0, step.step_s, bins + 1)
    busiest = {tier: link for tier in range(len(links.tiers)) if (link := load.busiest(tier)) >= 0}
    chosen = list(dict.fromkeys([*busiest.values(), *watched]))
    paces = _paces(demand, step)
    capacity = _by_tier(links, links.capacity)
    one = _table([busy_seconds(row.rate[chosen], links.capacity[chosen]) for row in rows], len(chosen))
    whole = _table([busy_seconds(_by_tier(links, row.rate), capacity) for row in rows], len(capacity))
    hot, mean = paces @ one, paces @ whole
    place = {link: number for number, link in enumerate(chosen)}
    over = _Binned(step, edges)
    cards = min(1, len(links.tiers) - 1)
    lanes = {}
    if cards in busiest:
        for lane in dict.fromkeys(row.lane for row in rows):
            mine = np.array([row.lane == lane for row in rows])
            lanes[lane] = over.of(paces[:, mine] @ one[mine, place[busiest[cards]]])
    return LoadSeries(
        edges=edges,
        links={tier: over.of(hot[:, place[link]]) for tier, link in busiest.items()},
        means={tier: over.of(mean[:, tier]) for tier in range(len(links.tiers)) if capacity[tier] > 0},
        lanes=lanes,
        peaks={link: float(hot[list(set(step.states)), number].max(initial=0.0)) for link, number in place.items()},
    )


def _by_tier(links: Links, values: Floats) -> Floats:
    return np.bincount(links.tier, weights=values, minlength=len(links.tiers)).astype(np.float64)


def _table(rows: list[Floats], width: int) -> Floats:
    return np.array(rows).reshape(len(rows), width)


def _paces(demand: Demand, step: JointStep) -> Floats:
    """states x rows."""
    found = np.zeros((len(step.kinds), len(demand.shared.rows)))
    for number, active in enumerate(step.kinds):
        for row, most in active:
            found[number, row] += demand.shared.state(active).paces[row, most]
    return found


class _Binned:
    """What a state does, averaged over equal parts of the step."""

    def __init__(self, step: JointStep, edges: Floats) -> None:
        self.edges, self.states = edges, list(step.states)
        self.moments = np.append(step.moments, max(step.step_s, float(step.moments[-1])))

    def of(self, values: Floats) -> Floats:
        done = np.concatenate([[0.0], np.cumsum(values[self.states] * np.diff(self.moments))])
        return np.asarray(np.diff(np.interp(self.edges, self.moments, done)) / np.diff(self.edges))
