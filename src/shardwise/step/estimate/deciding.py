"""What decides a step and is easily overlooked: numbers that nobody read in a program's source, with where each comes
from, and groups of ranks that do not fill their nodes."""

from dataclasses import dataclass, replace

from shardwise.cost.placement import Placement, level_members
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Origin, Stack
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import Case

MATTERS = 0.05
"""share of a step from which on a number is named"""
PLAIN = Stack(name="plain", summary="every setting at its default", source="", date="")


@dataclass(frozen=True)
class DecidingNumber:
    setting: str
    value: float
    default: float
    origin: Origin
    share: float
    """of the step: how much longer it is than with the default; negative where it is shorter"""

    def __str__(self) -> str:
        return f"{self.setting} {self.value:.4g} instead of {self.default:.4g}: {_change(self.share)}, {self.origin}"


@dataclass(frozen=True)
class UnevenGroup:
    axis: str
    ranks: int
    fewest: int
    """of them in one node that the group shares with others"""


@dataclass(frozen=True)
class UnevenGroups:
    """Groups that lie over nodes which hold different numbers of their ranks."""

    groups: tuple[UnevenGroup, ...]
    gpus_per_node: int
    share: float
    """of the step: how much longer it is than if they filled their nodes"""

    def __str__(self) -> str:
        told = " and ".join(f"groups of {each.ranks:,} ranks ({each.axis})" for each in self.groups)
        fewest = min(each.fewest for each in self.groups)
        return (
            f"{told} do not fill nodes of {self.gpus_per_node}, some of which hold {fewest} of a group: "
            f"{_change(self.share)}; a group's rings leave all its nodes by no more NICs than it has ranks in "
            "the node that holds fewest"
        )


def _change(share: float) -> str:
    return f"{share:+.0%} of the step" if abs(share) < 1 else f"{1 + share:.3g} x the step"


def deciding_numbers(case: Case, policy: Policy) -> tuple[DecidingNumber, ...]:
    """Those timed, fitted, set on rows or assumed, each put back to its default by itself; the largest first."""
    one = Policies.of([policy])
    step = float(estimate(case, one).times.step_s[0])
    found = []
    for setting, origin in case.stack.origins:
        value, default = case.stack.setting(setting), PLAIN.setting(setting)
        if origin.kind in ("read", "default") or not isinstance(value, float) or value == default:
            continue
        without = float(estimate(case.changed(**{setting: default}), one).times.step_s[0])
        share = step / without - 1.0
        if abs(share) > MATTERS:
            found.append(DecidingNumber(setting, value, default, origin, share))
    return tuple(sorted(found, key=lambda number: -abs(number.share)))


def uneven_groups(case: Case, policy: Policy) -> UnevenGroups | None:
    """None where all groups fill their nodes, or where it matters less than `MATTERS`."""
    one, cluster = Policies.of([policy]), case.cluster
    sizes = {name: int(size[0]) for name, size in Placement().sizes(one).items()}
    if policy.zero and policy.shard_group:
        sizes["dp_cp"] = policy.shard_group
    axes = {"tp": "tp", "cp": "cp", "dp_cp": "dp" if policy.cp == 1 else "dp x cp"}
    if any(kind.experts for kind in case.model.kinds):
        axes |= {"ep": "ep", "etp": "etp", "edp": "replicas of experts"}
    strides, found = Placement().strides(one), []
    for name, axis in axes.items():
        shape = level_members(cluster, sizes[name], strides[name][0])
        if shape.in_nodes is not None and shape.nodes > 1:
            found.append(UnevenGroup(axis, sizes[name], int(shape.cards)))
    if not found:
        return None
    filled = replace(case, network=replace(case.network, nodes_filled=True))
    step, without = (float(estimate(each, one).times.step_s[0]) for each in (case, filled))
    share = step / without - 1.0
    return UnevenGroups(tuple(found), cluster.node_size, share) if share > MATTERS else None
