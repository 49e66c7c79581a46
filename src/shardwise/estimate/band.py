"""How far measured steps lay from predicted ones, in runs whose rows took no part in fitting the constants.

The table (catalog/bands.toml) is written by benchmarks/accuracy.py from cross-validated predictions, by stack and kind
of run. A stack without an entry takes that of the stack it is like, unless it states an `error_band` of its own, which
then stands on both sides, as it does where there is no entry at all.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from shardwise import catalog
from shardwise.software import Stack, stack_of
from shardwise.spec.model import Model

HELD = 0.8
"""share of held-out runs a band holds"""
HOST_BOUND = 0.2
"""above this share of the step spent waiting for launches, kernels are small and the host decides"""
ANY = "any kind"
_TABLE = Path(catalog.__file__).parent / "bands.toml"


class ErrorBand(NamedTuple):
    low: float
    """measured over predicted step time, less 1, that a tenth of the runs lay below"""
    high: float
    """the same that a tenth lay above"""
    label: str
    """what the band was taken from"""
    held_out: bool

    @property
    def half_width(self) -> float:
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        if not self.held_out:
            return f"{self.label}: ±{self.high:.0%}"
        return f"{HELD:.0%} of {self.label} were within {self.low:+.0%} .. {self.high:+.0%}"


def kind_of(experts: bool, nodes: float, host_share: float) -> str:
    """The kinds of runs that err differently."""
    size = "expert model" if experts else "dense model"
    place = "one node" if nodes <= 1 else "several nodes"
    return f"{size}, {place}, small kernels" if host_share > HOST_BOUND else f"{size}, {place}"


NO_BAND = "no band: only runs of language models were held against predictions"


def band_of(stack: Stack, model: Model, nodes: float, host_share: float = 0.0) -> ErrorBand | None:
    """None for a model that nothing like was measured of."""
    if model.inputs == "features":
        return None
    experts = any(layer.experts for layer in model.kinds)
    return band_for(stack, experts=experts, nodes=nodes, host_share=host_share)


def band_for(stack: Stack, *, experts: bool, nodes: float, host_share: float = 0.0) -> ErrorBand:
    """The same for a run whose model nobody stated."""
    whose = _with_runs(stack)
    kinds = _bands().get(whose, {})
    kind = kind_of(experts, nodes, host_share)
    for name in (kind, ANY):
        if name in kinds:
            found = kinds[name]
            label = f"{found['rows']} held-out runs" + (f" of {whose}" if whose != stack.name else "")
            label += f" of this kind ({kind})" if name == kind else ""
            return ErrorBand(float(found["low"]), float(found["high"]), label, held_out=True)
    return ErrorBand(-stack.error_band, stack.error_band, f"no held-out runs of {stack.name}, assumed", held_out=False)


def _with_runs(stack: Stack) -> str:
    """The stack itself, or the nearest of those it is like that has held-out runs."""
    while stack.name not in _bands() and stack.like:
        parent = stack_of(stack.like)
        if stack.error_band != parent.error_band:
            break
        stack = parent
    return stack.name


@cache
def _bands() -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return found
