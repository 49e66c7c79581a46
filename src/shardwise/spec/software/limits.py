"""Settings that a program cannot run beside others: one table, by which a plan leaves policies out and an export says
what it does without. A stack names its own (`Abilities.limits`)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from shardwise.arrays import Flags
from shardwise.registry import closest
from shardwise.spec.policy import DEGREES, GRID, MATRIX_LAYOUT, OFFLOAD, ORDERS, RECOMPUTE, Policies, Policy

AXES = tuple(axis for axis in DEGREES if axis in GRID)
NO_SWITCH = "it has no switch for it"


@dataclass(frozen=True)
class ProgramLimit:
    """One combination that does not run."""

    field: str
    """the setting that gives way, or that no value of which runs here"""
    broken: Callable[[Policies], Flags]
    why: str
    instead: Callable[[Policy], Mapping[str, Any]] | None = None
    """as the program runs it; None: it cannot run this policy"""


def _off(field: str) -> Callable[[Policy], Mapping[str, Any]]:
    return lambda _: {field: False}


def _on(field: str) -> Callable[[Policy], Mapping[str, Any]]:
    return lambda _: {field: True}


def laid(*ways: str) -> Callable[[Policies], Flags]:
    """Where ranks lie in none of these ways, as far as their axes are split."""

    def broken(p: Policies) -> Flags:
        return np.asarray(np.logical_and.reduce([_lies_otherwise(p, way) for way in ways]))

    return broken


def _lies_otherwise(p: Policies, way: str) -> Flags:
    found, wanted = np.zeros(len(p), dtype=np.bool_), way.split("-")
    for code, order in enumerate(ORDERS):
        lies = order.split("-")
        for a in AXES:
            for b in AXES:
                if lies.index(a) < lies.index(b) and wanted.index(a) > wanted.index(b):
                    found |= (p.order == code) & (getattr(p, a) > 1) & (getattr(p, b) > 1)
    return found


def _shares(p: Policies) -> Flags:
    """Whether several ranks hold the same parameters."""
    return np.asarray(p.dp * p.cp > 1)


def _groups(p: Policies) -> Flags:
    """Where the ranks that share are no multiple of those of one sequence, or do not divide the replicas."""
    replicas = np.maximum(p.shard_group // np.maximum(p.cp, 1), 1)
    return np.asarray((p.zero > 0) & (p.shard_group > 0) & ((p.shard_group % p.cp > 0) | (p.dp % replicas > 0)))


def _next_whole_chunk(policy: Policy) -> Mapping[str, Any]:
    return {"recompute_layers": -(-policy.recompute_layers // policy.vpp) * policy.vpp}


_FULL, _AWAY = RECOMPUTE.index("full"), OFFLOAD.index("none")
_NEEDS_SP = "needs sequence parallelism"
LIMITS: dict[str, ProgramLimit] = {
    "transfers-beside-chunks": ProgramLimit(
        "overlap_pp", lambda p: (p.overlap_pp > 0) & (p.pp > 1) & (p.vpp == 1),
        "transfers between stages overlap only with vpp above 1", _off("overlap_pp"),
    ),
    "two-chunked-stages-overlap": ProgramLimit(
        "overlap_pp", lambda p: (p.overlap_pp == 0) & (p.pp == 2) & (p.vpp > 1),
        "two interleaved stages need it", _on("overlap_pp"),
    ),
    "products-beside-sequence": ProgramLimit(
        "overlap_tp", lambda p: (p.overlap_tp > 0) & (p.tp > 1) & (p.sp == 0),
        f"tensor-parallel overlap {_NEEDS_SP}", _off("overlap_tp"),
    ),
    "gathers-beside-reductions": ProgramLimit(
        "overlap_param", lambda p: (p.overlap_param > 0) & (p.zero > 0) & _shares(p) & (p.overlap_grad == 0),
        "parameter gathers overlap only where gradients do", _off("overlap_param"),
    ),
    "experts-beside-sequence": ProgramLimit(
        "sp", lambda p: (p.ep > 1) & (p.tp > 1) & (p.sp == 0),
        f"experts with tensor parallelism {_NEEDS_SP.replace('needs', 'need')}", _on("sp"),
    ),
    "matrices-whole": ProgramLimit("tp", lambda p: p.tp > 1, "it loads a model without splitting its matrices"),
    "sequences-whole": ProgramLimit("cp", lambda p: p.cp > 1, "it has no context parallelism"),
    "always-sequence": ProgramLimit("sp", lambda p: (p.tp > 1) & (p.sp == 0), NO_SWITCH, _on("sp")),
    "always-overlaps-gradients": ProgramLimit(
        "overlap_grad", lambda p: (p.overlap_grad == 0) & _shares(p), NO_SWITCH, _on("overlap_grad"),
    ),
    "always-overlaps-parameters": ProgramLimit(
        "overlap_param", lambda p: (p.overlap_param == 0) & (p.zero > 0) & _shares(p), NO_SWITCH, _on("overlap_param"),
    ),
    "layers-by-chunk": ProgramLimit(
        "recompute_layers",
        lambda p: (p.recompute == _FULL) & (p.recompute_layers > 0) & (p.recompute_layers % p.vpp > 0),
        "layers are counted per chunk, of which a stage has as many as vpp", _next_whole_chunk,
    ),
    "all-layers-or-none": ProgramLimit(
        "recompute_layers", lambda p: (p.recompute > 0) & (p.recompute_layers >= 0), "all layers recompute or none"
    ),
    "stages-last": ProgramLimit("order", laid("tp-cp-dp-pp"), "ranks are laid tp-cp-dp-pp"),
    "stages-last-or-inside": ProgramLimit(
        "order", laid("tp-cp-dp-pp", "tp-cp-pp-dp"), "ranks are laid tp-cp-dp-pp or tp-cp-pp-dp"
    ),
    "offloads-shared-optimizer": ProgramLimit(
        "offload", lambda p: (p.offload != _AWAY) & _shares(p) & (p.zero != 1),
        "it offloads the distributed optimizer (zero 1) only",
    ),
    "context-shares-parameters": ProgramLimit(
        "zero", lambda p: (p.zero == 0) & (p.cp > 1), "context-parallel ranks share parameters (zero 2 or 3)"
    ),
    "matrices-owned": ProgramLimit(
        "matrix_layout", lambda p: np.isin(p.matrix_layout, [MATRIX_LAYOUT.index(w) for w in ("gather", "all-to-all")]),
        "whole matrices have owners (LayerWiseDistributedOptimizer)", lambda _: {"matrix_layout": "owned"},
    ),
    "matrices-without-fsdp": ProgramLimit(
        "zero", lambda p: (p.matrix_layout > 0) & (p.zero > 1), "optimizers of whole matrices go with zero 0 and 1",
    ),
    "matrices-sent": ProgramLimit(
        "matrix_layout", lambda p: np.isin(p.matrix_layout, [MATRIX_LAYOUT.index(w) for w in ("owned", "blockwise")]),
        "pieces of matrices are gathered, or sent to an owner (DistMuon)", lambda _: {"matrix_layout": "all-to-all"},
    ),
    "groups-of-whole-sequences": ProgramLimit(
        "shard_group", _groups, "ranks that share are a multiple of cp and divide dp x cp"
    ),
    "groups-of-replicas": ProgramLimit(
        "shard_group", lambda p: (p.zero > 0) & (p.shard_group > 0) & (p.shard_group <= p.cp),
        "groups that share have more than one data-parallel rank",
    ),
    "copies-of-whole-models": ProgramLimit(
        "zero", lambda p: (p.zero == 0) & (p.dp > 1) & ((p.tp > 1) | (p.pp > 1) | (p.ep > 1)),
        "whole copies go with data parallelism alone",
    ),
    "experts-whole": ProgramLimit(
        "etp", lambda p: (p.tp > 1) & (p.etp != 0) & (p.etp != np.where(p.ep > 1, 1, p.tp)), "experts are cut by 1"
    ),
    "experts-whole-or-as-layers": ProgramLimit(
        "etp", lambda p: (p.tp > 1) & (p.ep == 1) & (p.etp != 0) & (p.etp != p.tp), "experts are cut by 1 or by tp"
    ),
}  # fmt: skip
"""name in a stack's file -> combination"""


def limits_of(names: Iterable[str]) -> list[ProgramLimit]:
    for name in names:
        if name not in LIMITS:
            raise ValueError(f"limits: {name!r} is unknown; {closest(name, list(LIMITS))}")
    return [LIMITS[name] for name in names]


def runs(names: Iterable[str], policies: Policies) -> Flags:
    """Where a program with these limits runs the policies as they stand."""
    ok = np.ones(len(policies), dtype=np.bool_)
    for limit in limits_of(names):
        ok &= ~limit.broken(policies)
    return ok


def broken_by(names: Iterable[str], policy: Policy) -> list[ProgramLimit]:
    alone = Policies.of([policy])
    return [limit for limit in limits_of(names) if limit.broken(alone)[0]]


def as_run(names: Iterable[str], policy: Policy) -> Policy:
    """With the settings that a program with these limits has in place of those that it cannot; what it cannot run at
    all stays."""
    for limit in limits_of(names):
        if limit.instead is not None and limit.broken(Policies.of([policy]))[0]:
            policy = replace(policy, **limit.instead(policy))
    return policy
