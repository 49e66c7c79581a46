"""What each pipeline schedule asks of the stages, chunks and micro-batches, for scalars and columns alike.

A schedule's own file states its `needs`; the rules ask for them here, through the registry, which finds the files. So
nothing in this room imports the schedules, and none of them is listed anywhere.
"""

from functools import cache
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct

from shardwise.registry import closest, plugins

USUAL = ("1f1b", "interleaved")
"""what a policy takes that names none: with one chunk of layers per stage, with more"""
ALL = "all"
"""in place of names: every schedule there is"""
Chunks = Literal["one", "many", "two"]


class Needs(Struct, frozen=True, kw_only=True):
    chunks: Chunks = "one"
    """chunks of layers per stage (vpp): 1, at least 2, exactly 2; more than one only makes sense with pp above 1"""
    stages: Literal["any", "single", "even"] = "any"
    multiple_of_pp: bool = False
    """micro-batches come in rounds of pp"""
    even: bool = False
    """micro-batches are dealt out to two directions"""
    least: int = 0
    """micro-batches are at least this many times pp"""

    def met(self, pp: Any, vpp: Any, micro_batches: Any) -> Any:
        if self.chunks == "one":
            ok = np.equal(vpp, 1)
        else:
            ok = (np.equal(vpp, 2) if self.chunks == "two" else np.greater(vpp, 1)) & np.greater(pp, 1)
        if self.stages != "any":
            ok = ok & (np.equal(pp, 1) if self.stages == "single" else np.equal(pp % 2, 0))
        if self.multiple_of_pp:
            ok = ok & np.equal(micro_batches % pp, 0)
        if self.even:
            ok = ok & np.equal(micro_batches % 2, 0)
        return ok & np.greater_equal(micro_batches, self.least * pp) if self.least else ok

    def demands(self) -> list[str]:
        vpp = {"one": "vpp 1", "many": "vpp above 1 and pp above 1", "two": "vpp 2 and pp above 1"}
        asked = [vpp[self.chunks]]
        if self.stages != "any":
            asked.append("pp 1" if self.stages == "single" else "an even pp")
        if self.multiple_of_pp:
            asked.append("micro-batches in multiples of pp")
        if self.even:
            asked.append("an even number of micro-batches")
        if self.least:
            asked.append(f"at least {self.least} x pp micro-batches" if self.least > 1 else "at least pp micro-batches")
        return asked

    def text(self) -> str:
        return ", ".join(self.demands())


@runtime_checkable
class _Schedule(Protocol):
    """What a rule must know of a schedule."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> Needs: ...


@cache
def needs() -> dict[str, Needs]:
    """What every schedule needs, by name: the usual ones first, then those with the fewest demands, so that columns of
    policies and advice have the same order in every process."""
    found: dict[str, Needs] = {}
    for file, schedule in plugins("shardwise.plugins.schedules", "SCHEDULE").items():
        if not isinstance(schedule, _Schedule) or schedule.name in (*found, ALL):
            raise TypeError(f"schedules/{file}.py: SCHEDULE is not a Schedule, or has the name of another")
        found[schedule.name] = schedule.needs
    rest = sorted(found.keys() - set(USUAL), key=lambda name: (len(found[name].demands()), name))
    return {name: found[name] for name in (*USUAL, *rest)}


@cache
def schedule_names() -> tuple[str, ...]:
    """The position of a name is what columns of policies store."""
    return tuple(needs())


def usual_schedule(vpp: int) -> str:
    return USUAL[vpp > 1]


def schedules_named(names: tuple[str, ...]) -> tuple[str, ...]:
    """The schedules a program lists; 'all' stands for every one there is."""
    known = schedule_names()
    if names == (ALL,):
        return known
    for name in names:
        if name not in known:
            raise ValueError(f"schedule: {name!r} is unknown; {closest(name, list(known))}")
    return names


def refusal(schedule: str, pp: int, vpp: int, micro_batches: int) -> str:
    """Why a schedule cannot run, or nothing."""
    own = needs()[schedule]
    if own.met(pp, vpp, micro_batches):
        return ""
    others = [repr(name) for name, other in needs().items() if pp > 1 and other.met(pp, vpp, micro_batches)]
    return (
        f"schedule {schedule!r} with pp {pp}, vpp {vpp}, {micro_batches} micro-batches: it needs {own.text()}"
        f"{'; or take ' + ' or '.join(others[:2]) if others else ''}"
    )
