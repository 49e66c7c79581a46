"""The best ways along a row of choices.

What comes after a place depends on its choice alone, so the best way to each choice is enough. With a limit every way
that is not beaten in both time and the limited thing is kept; for the n best answers, those beaten by fewer than n.
"""

from dataclasses import dataclass

import numpy as np

from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.problems._contract import ChoicePath


@dataclass(frozen=True)
class _Way:
    seconds: float
    held: float
    choices: tuple[int, ...]
    shown: tuple[int, ...]


def look_down(meter: Meter, path: ChoicePath) -> None:
    bounded = bool(np.isfinite(path.most))
    ways = [[way] for way in _first(path) if way.held <= path.most]
    for place in range(1, len(path.own)):
        ways = [
            _kept(_reached(path, ways, place, index), meter.count, bounded) for index in range(len(path.own[place]))
        ]
    best = _kept([way for known in ways for way in known], meter.count, bounded)[: meter.count]
    points = np.array([way.choices for way in best[: meter.left]], dtype=np.int64)
    if len(points):
        meter.price(points)
    meter.proven = len(points) == len(best)


def _first(path: ChoicePath) -> list[_Way]:
    return [
        _Way(float(seconds), float(path.held[0][index]), (index,), (index,) if path.shown[0] else ())
        for index, seconds in enumerate(path.own[0])
    ]


def _reached(path: ChoicePath, ways: list[list[_Way]], place: int, index: int) -> list[_Way]:
    """Every known way, gone on with one choice of the next place."""
    own, held = float(path.own[place][index]), float(path.held[place][index])
    seen = (index,) if path.shown[place] else ()
    return [
        _Way(way.seconds + between + own, way.held + held, (*way.choices, index), (*way.shown, *seen))
        for known in ways
        for way in known
        for between in [float(path.between[place - 1][way.choices[-1], index])]
        if way.held + held <= path.most
    ]


def _kept(ways: list[_Way], count: int, bounded: bool) -> list[_Way]:
    """Fastest first, without those that at least `count` other answers beat in time (and in what is limited)."""
    kept: list[_Way] = []
    for way in sorted(ways, key=lambda w: (w.seconds, w.held)):
        if not np.isfinite(way.seconds):
            break
        beating = {w.shown for w in kept if not bounded or w.held <= way.held}
        if way.shown not in beating and len(beating) < count:
            kept.append(way)
    return kept
