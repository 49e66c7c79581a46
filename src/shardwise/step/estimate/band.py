"""The 80 % band of a step time: how far measured steps lie from predictions that had not seen where they come from.

The band is the spread of runs of programs whose constants were fitted, widened by one part for each thing that nothing
measured supports. Such errors have causes of their own, so the parts go together as the root of their squares. They are
in catalog/bands.toml, in the logarithm of measured over predicted time, written by benchmarks/accuracy.py, which leaves
out whole sources; docs/accuracy.md says how.
"""

import tomllib
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from math import copysign, expm1, hypot
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, convert

from shardwise import catalog
from shardwise.cost.curve import Curve
from shardwise.spec.software import Match, Stack, is_known, match_of, named, stack_of
from shardwise.work.case import Case

HELD = 0.8
"""share of runs a band holds"""
MISSING = ("alike", "unseen", "unknown", "site", "chip", "scale", "experts", "router")
"""what may lack support: fitted runs under its name, any run under its name, the program itself, runs of those who
measured this one, kernels of the GPU, as many GPUs, experts on several GPUs, an even share of tokens for each expert"""
ONE_GPU = "h200_steps"
"""the source of steps that were measured for this project on one GPU"""
NO_BAND = "no band: only runs that train the whole of a language model were held against predictions"
TABLE = Path(catalog.__file__).parent / "bands.toml"


class FittedRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """The runs that the constants of a stack were fitted on."""

    runs: int
    gpus: int
    """most of one run"""
    on: tuple[str, ...]
    """GPUs"""
    experts: bool
    named: tuple[str, ...] = ()
    """pieces of `software` texts under which they were published"""


Fitted = dict[str, FittedRuns]
"""by stack"""


class ErrorBand(NamedTuple):
    low: float
    """measured over predicted step time, less 1, that a tenth of runs lies below"""
    high: float
    """the same that a tenth lies above"""
    missing: tuple[str, ...]
    """what has no support, of MISSING"""
    evidence: str
    """what supports the band and what does not"""

    @property
    def half_width(self) -> float:
        return max(abs(self.low), abs(self.high))

    def around(self, step_s: float) -> tuple[float, float]:
        return step_s * (1 + self.low), step_s * (1 + self.high)

    def __str__(self) -> str:
        return f"{HELD:.0%} of measured steps within {self.low:+.0%} .. {self.high:+.0%}: {self.evidence}"


def band_of(case: Case, source: str = "") -> ErrorBand | None:
    """None for a model that nothing like was measured of. `source`: who measured, or will measure, the run; empty:
    somebody of whom no run is known."""
    if case.model.inputs != "tokens" or not case.model.plain_layers or case.model.tuning is not None:
        return None
    experts = any(layer.experts for layer in case.model.kinds)
    free = case.stack.experts.free_router
    return band_for(
        named(case.stack), case.curve, gpus=case.cluster.gpus, experts=experts, source=source, free_router=free
    )


def band_for(
    software: Match, curve: Curve, *, gpus: int, experts: bool, source: str | None = "", free_router: bool = False
) -> ErrorBand:
    """The same for a run whose model nobody stated. `source` None: what was priced is the run itself, operator by
    operator, whoever runs it."""
    fitted = _fitted()
    lacks = lacking(
        software, curve, fitted, _compared(), gpus=gpus, experts=experts, source=source, free_router=free_router
    )
    low, high = (end_of(_table()[side], lacks) for side in ("low", "high"))
    whose, runs = fitted_runs(software, fitted)
    had = "the program" if not {"alike", "unknown"} & set(lacks) else whose
    if untuned(lacks):
        lacks["alike"] += f"; {expm1(_table()['middle']['alike']):.0%} added, as such programs take on average"
    unsaid = {"site"} | ({"alike"} if {"unseen", "unknown"} & set(lacks) else set())
    words = [text for what, text in lacks.items() if what not in unsaid]
    if runs.runs:
        words.append(f"constants of {had} fitted on {runs.runs:,} runs{lacks.get('site', '')}")
    return ErrorBand(expm1(low), expm1(high), tuple(lacks), "; ".join(words))


def tuned_band(case: Case) -> ErrorBand | None:
    """The band without what runs of others add. It tells one policy's step from another's of the same job, since who
    runs them is common to both, and a slow run from what the program reaches for those who tune it."""
    band = band_of(case)
    if band is None or "site" not in band.missing:
        return band
    others = tuple(what for what in band.missing if what != "site")
    low, high = (expm1(end_of(_table()[side], others)) for side in ("low", "high"))
    return band._replace(low=low, high=high, missing=others)


def untuned(missing: Collection[str]) -> bool:
    """Whether a program's runs were compared and none fitted: such runs are slower than predicted more often than not,
    since the constants come from other programs, most of them a vendor's benchmarks."""
    return "alike" in missing and not {"unseen", "unknown"} & set(missing)


def untuned_share(stack: Stack) -> float:
    """What a program takes longer, as a share, where its runs were compared and none was fitted; else 0. The middle of
    such sources, taken from the others of each (catalog/bands.toml)."""
    return _untuned_share(stack.name, stack.called)


@lru_cache(1024)
def _untuned_share(name: str, called: str) -> float:
    if not called and not is_known(name):
        return 0.0
    software = match_of(called) if called else Match(stack_of(name), name)
    return expm1(_table()["middle"]["alike"]) if untuned(_program_lacks(software, _fitted(), _compared())) else 0.0


def base_of() -> tuple[float, float]:
    """Low and high end, in logarithms, where nothing is missing."""
    return _table()["low"]["base"], _table()["high"]["base"]


def end_of(parts: dict[str, float], missing: Iterable[str]) -> float:
    """The low or high end of a band: its base and the parts of what is missing."""
    return copysign(hypot(parts["base"], *(parts[what] for what in missing)), parts["base"])


def lacking(
    software: Match,
    curve: Curve,
    fitted: Fitted,
    compared: Collection[str],
    *,
    gpus: int,
    experts: bool,
    source: str | None,
    free_router: bool,
) -> dict[str, str]:
    """What of MISSING has no support, each in words. `compared`: pieces of `software` texts of all runs that were held
    against predictions."""
    whose, runs = fitted_runs(software, fitted)
    found = _program_lacks(software, fitted, compared)
    if source is not None and not found and runs.runs and not stack_of(whose).fitted_to(source):
        found["site"] = " of others"
    if curve.measured != curve.gpu.lower() and not curve.same_chip and curve.gpu.lower() not in runs.on:
        found["chip"] = f"no kernel rates of {curve.gpu}, those of {curve.measured} taken"
    if runs.runs and gpus > runs.gpus and not {"unseen", "unknown"} & set(found):
        found["scale"] = f"{gpus:,} GPUs, {whose} was fitted on up to {runs.gpus:,}"
    if runs.runs and experts and not (runs.experts and (runs.gpus > 1 or gpus == 1)):
        found["experts"] = f"an expert model, {whose} was fitted on none" + (" over several GPUs" * runs.experts)
    if experts and free_router:
        found["router"] = "experts taken as evenly loaded, which nothing forces"
    return found


def _program_lacks(software: Match, fitted: Fitted, compared: Collection[str]) -> dict[str, str]:
    """What of MISSING the program alone has no support for."""
    found = {}
    if not software.known:
        found["unknown"] = software.note
    if not _under_its_name(software, {piece for each in fitted.values() for piece in each.named}, fitted):
        found["alike"] = f"no run of {software.text or software.stack.name} was fitted"
        if software.known and not _under_its_name(software, compared):
            found["unseen"] = f"no run of {software.text or software.stack.name} was fitted or ever compared"
    return found


def fitted_runs(software: Match, fitted: Fitted) -> tuple[str, FittedRuns]:
    """Those of the stack, or of the nearest of those it is like that has any."""
    stack = software.stack
    while stack.name not in fitted and stack.like:
        stack = stack_of(stack.like)
    return stack.name, fitted.get(stack.name, FittedRuns(0, 0, (), False))


def runs_of(stack: Stack) -> tuple[str, FittedRuns]:
    """The same of a stack as the catalog has it."""
    return fitted_runs(named(stack), _fitted())


def _under_its_name(software: Match, names: Collection[str], stacks: Collection[str] = ()) -> bool:
    """Whether runs of this very program are among those of such names, or of such stacks where a stack was named."""
    if software.text or not software.known:
        return software.piece in names
    return software.stack.name in stacks or any(piece in names for piece in software.stack.matches)


@cache
def _fitted() -> Fitted:
    return convert(_table()["fitted"], Fitted)


@cache
def _compared() -> frozenset[str]:
    return frozenset(_table()["compared"]["named"])


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))
