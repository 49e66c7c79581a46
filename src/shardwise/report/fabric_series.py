"""Load of the busiest link of every tier, and of the tier as a whole, over one step."""

from dataclasses import dataclass

import numpy as np

from shardwise.fabric.links import Floats
from shardwise.fabric.series import spread
from shardwise.fabric.step import StepLoad
from shardwise.simulate.timeline import KINDS, LANES, Timeline

BINS = 2400
"""parts of a step that are looked at: a burst of 1 % still fills 24"""
SHOWN = 240
"""parts that are told; each holds the highest of its ten"""


@dataclass(frozen=True)
class Series:
    edges: Floats
    links: dict[int, Floats]
    """tier -> share of the busiest link's capacity in each part of the step"""
    means: dict[int, Floats]
    """tier -> share of all its links' capacity"""
    lanes: dict[str, Floats]
    """lane -> the busiest card's share of capacity"""

    @property
    def bin_s(self) -> float:
        return float(self.edges[1] - self.edges[0])


def coarse(values: Floats, parts: int = SHOWN) -> tuple[float, ...]:
    """The highest value in each of so many equal parts: an average would hide a burst."""
    return tuple(round(float(part.max()), 4) for part in np.array_split(values, min(parts, len(values))))


def series_of(load: StepLoad, timeline: Timeline, bins: int = BINS) -> Series:
    """A lane's bytes are spread over its spans in the timeline; lanes that overlap add up, so a share above 1 means
    that they ask for more than the link carries at that moment."""
    links = load.prices.fabric.links
    edges = np.linspace(0.0, timeline.step_s, bins + 1)
    watched = {tier: link for tier in range(len(links.tiers)) if (link := load.busiest(tier)) >= 0}
    place = np.full(len(links), -1, dtype=np.int64)
    place[list(watched.values())] = np.arange(len(watched))
    profiles = _profiles(timeline, edges, {p.call.lane for p in load.priced})
    hot = _shares(load.by_stage(place, len(watched)), profiles, edges)
    whole = _shares(load.by_stage(links.tier, len(links.tiers)), profiles, edges)
    capacity = np.bincount(links.tier, weights=links.capacity, minlength=len(links.tiers))
    zero = np.zeros(bins)
    cards = _card_tier(load)
    return Series(
        edges=edges,
        links={
            tier: sum((table[i] for table in hot.values()), start=zero) / links.capacity[link]
            for i, (tier, link) in enumerate(watched.items())
        },
        means={
            tier: sum((table[tier] for table in whole.values()), start=zero) / capacity[tier]
            for tier in range(len(links.tiers)) if capacity[tier] > 0
        },
        lanes={
            lane: table[list(watched).index(cards)] / links.capacity[watched[cards]]
            for lane, table in hot.items() if cards in watched
        },
    )  # fmt: skip


def _card_tier(load: StepLoad) -> int:
    """The tier of the network cards; inside one node the node's own links."""
    return min(1, len(load.prices.fabric.links.tiers) - 1)


def _shares(tables: dict[str, Floats], profiles: dict[str, Floats], edges: Floats) -> dict[str, Floats]:
    """lane -> places x bins, bytes/s."""
    return {lane: table.T @ profiles[lane] / (edges[1] - edges[0]) for lane, table in tables.items()}


def _profiles(timeline: Timeline, edges: Floats, lanes: set[str]) -> dict[str, Floats]:
    """lane -> stages x bins: which part of a stage's bytes goes in each part of the step."""
    spans, stages = timeline.spans, int(timeline.stage.max()) + 1
    even = np.full(len(edges) - 1, 1.0 / (len(edges) - 1))
    found = {}
    for lane in lanes:
        rows = []
        for stage in range(stages):
            here = timeline.stage[spans.rank] == stage
            mine = here & (spans.lane == LANES.index(lane))
            if not mine.any():
                # what the timeline counts into its tasks (ZeRO-2 reduces in every backward) happens while those run
                mine = here & spans.of("compute") & (spans.kind == KINDS.index("backward"))
            amount = np.where(spans.bytes[mine] > 0, spans.bytes[mine], (spans.end_s - spans.start_s)[mine])
            sent = spread(spans.start_s[mine], spans.end_s[mine], amount, edges)
            rows.append(sent / sent.sum() if sent.sum() > 0 else even)
        found[lane] = np.stack(rows)
    return found
