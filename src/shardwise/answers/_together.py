"""What `plan --joint` and `plan --measure` add to the answer of `plan`."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from shardwise.spec.policy import Policy


class PlannedLine(Struct, frozen=True, kw_only=True):
    """What is planned without the joint search."""

    policy: Policy
    what: str


class TimelineSteps(Struct, frozen=True, kw_only=True):
    planned_s: float
    best_s: float


class NodePlacement(Struct, frozen=True, kw_only=True):
    node_box: Sequence[str]
    """place of each node"""
    saved_s: float
    network_before_s: float
    network_after_s: float


class ExpertPlacement(Struct, frozen=True, kw_only=True):
    rank_of_expert: Sequence[int]
    imbalance: float
    in_order_imbalance: float


class JointMethod(Struct, frozen=True, kw_only=True):
    objective: float | None
    bound: float | None
    evaluations: int
    seconds: float
    proven: bool
    trace: Sequence[tuple[int, float]]
    trace_s: Sequence[float]


class JointOutcome(Struct, frozen=True, kw_only=True):
    """Of a search with everything open at once."""

    objective: str
    fits: bool
    best_objective: float | None
    step_s: float | None
    planned_objective: float | None
    planned: PlannedLine | None
    gain: float | None
    bound: float | None
    gap: float | None
    proven: bool
    lines: int
    points: float
    best: Mapping[str, Any] | None
    """as the problem describes a point"""
    timeline: TimelineSteps | None
    placement: NodePlacement | None
    experts: ExpertPlacement | None
    methods: Mapping[str, JointMethod]
    command: str | None
    notes: Sequence[str]


class TriedPolicy(Struct, frozen=True, kw_only=True):
    policy: Policy
    predicted_s: float
    step_s: float | None
    why: str | None
    refused: bool
    worth: float


class LearnedFactor(Struct, frozen=True, kw_only=True):
    cause: str
    factor: float
    """on the part of the step that the cause decides"""


class RankedAgain(Struct, frozen=True, kw_only=True):
    policy: Policy
    predicted_s: float
    expected_s: float
    low_s: float
    high_s: float
    fits_chance: float
    measured_s: float | None


class MeasureOutcome(Struct, frozen=True, kw_only=True):
    """Of trials of the first policies."""

    trials: Sequence[TriedPolicy]
    learned: Sequence[LearnedFactor]
    band_widened: float
    ranked: Sequence[RankedAgain]
    take: Policy
    command: str
    on: str
    """another machine than planned for; empty: that one"""
    notes: Sequence[str]
