"""Causes that a predicted step can err by, as numbers for each policy: shares of the step, what is hidden, and sizes.

A prediction errs by the same factor wherever the same part of a step decides, so the logarithm of measured over
predicted time is modelled as a sum over these numbers, each with a factor of its own (`posterior.py`).
"""

from collections.abc import Collection

import numpy as np

from shardwise.arrays import Floats
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.policy import IN_LAYERS
from shardwise.step.estimate.time import Times
from shardwise.work import Work
from shardwise.work.case import Case

SHARES = {
    "compute": ("forward", "backward"),
    "recompute": ("recompute",),
    "tp and cp": ("tp_comm", "cp_comm"),
    "ep": ("ep_comm",),
    "pp": ("pp_comm",),
    "dp": ("fsdp_comm", "grad_comm", "param_comm"),
    "bubble": ("bubble",),
    "host": ("host",),
    "optimizer": ("optimizer", "offload"),
}
"""parts of a step by cause"""
HIDDEN = {"hidden dp": ("fsdp", "grad", "param"), "hidden tp": IN_LAYERS}
"""communication under compute, by cause"""
SUPPORT = {"runs of others": ("site",), "program": ("unseen", "unknown"), "chip": ("chip",)}
"""what nothing measured supports, of a band's MISSING, by cause"""
NARROW = ("fp8", "fp4")
CAUSES = (
    "level", *SUPPORT, *SHARES, *HIDDEN, "experts", "narrow numbers", "zero 3", "network",
    "gpus", "sequence", "size", "micro-batches", "tp degree", "pp degree", "ep degree", "tokens",
)  # fmt: skip
"""columns: 1 for every step; what lacks support; shares; yes or no; the unstated network; then sizes in doublings of a
usual one"""
SIZES = CAUSES[CAUSES.index("gpus") :]


def causes_of(case: Case, work: Work, times: Times, missing: Collection[str]) -> Floats:
    """A row for each policy, a column for each of CAUSES, on a known network. `missing`: of a band's MISSING."""
    step, layout = times.step_s, work.layout
    every, policies = np.ones_like(step), layout.policies
    shares = {name: _sum(times.parts, parts, every) / step for name, parts in SHARES.items()}
    hidden = {name: np.minimum(_sum(times.hidden, kinds, every) / step, 1.0) for name, kinds in HIDDEN.items()}
    experts = any(kind.experts for kind in case.model.kinds)
    columns = {
        "level": every,
        **{name: every * bool(set(lacks) & set(missing)) for name, lacks in SUPPORT.items()},
        **shares,
        **hidden,
        "experts": every * experts,
        "narrow numbers": shares["compute"] * (case.job.precision.compute in NARROW),
        "zero 3": every * (policies.zero == 3),
        "network": 0.0 * every,
        "gpus": np.log2(layout.dp * layout.tp * layout.pp * layout.cp / 16.0),
        "sequence": every * np.log2(case.job.seq / 4096.0),
        "size": every * np.log2(parameters(case.model) / 8e9),
        "micro-batches": np.log2(np.maximum(layout.micro_batches, 1.0) / 8.0),
        "tp degree": np.log2(layout.tp),
        "pp degree": np.log2(layout.pp),
        "ep degree": np.log2(layout.ep),
        "tokens": np.log2(layout.tokens / layout.tp / 4096.0),
    }
    return np.stack([columns[name] for name in CAUSES], axis=-1)


def with_support(causes: Floats, missing: Collection[str]) -> Floats:
    """The same of steps of which something else is missing."""
    found = causes.copy()
    for name, lacks in SUPPORT.items():
        found[..., CAUSES.index(name)] = bool(set(lacks) & set(missing))
    return found


def on_network(causes: Floats, deviation: float) -> Floats:
    """The same of a step on a network that is not known: `deviation` of its logarithm over clusters of that kind."""
    found = causes.copy()
    found[..., CAUSES.index("network")] = deviation
    return found


def _sum(parts: dict[str, Floats], names: tuple[str, ...], every: Floats) -> Floats:
    return sum((parts[name] * every for name in names if name in parts), start=0.0 * every)
