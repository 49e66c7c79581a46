"""Why the others lose: the best policy of each kind the winner is not, against the winner."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.spec.policy import Policies, Policy
from shardwise.units import gib

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

KINDS: tuple[tuple[str, Callable[[Policies], Flags]], ...] = (
    ("no tensor parallelism", lambda p: p.tp == 1),
    ("tensor parallelism", lambda p: p.tp > 1),
    ("no pipeline", lambda p: p.pp == 1),
    ("a pipeline", lambda p: p.pp > 1),
    ("a pipeline without interleaving", lambda p: (p.pp > 1) & (p.vpp == 1)),
    ("an interleaved pipeline", lambda p: p.vpp > 1),
    ("context parallelism", lambda p: p.cp > 1),
    ("no expert parallelism", lambda p: p.ep == 1),
    ("ZeRO 0", lambda p: p.zero == 0),
    ("ZeRO 1", lambda p: p.zero == 1),
    ("ZeRO 2", lambda p: p.zero == 2),
    ("ZeRO 3", lambda p: p.zero == 3),
    ("no recompute", lambda p: p.recompute == 0),
    ("full recompute", lambda p: p.recompute == 2),
    ("one sequence per micro-batch", lambda p: p.micro_batch == 1),
    ("larger micro-batches", lambda p: p.micro_batch > 1),
)


@dataclass(frozen=True)
class Loser:
    kind: str
    policy: Policy
    """the best of its kind: the fastest that fits, or else the smallest"""
    step_s: float
    peak_bytes: float
    slower: float | None
    """step time over the winner's, less 1; None when nothing of the kind fits"""
    over_bytes: float
    """memory beyond the limit; 0 when it fits"""

    @property
    def why(self) -> str:
        if self.slower is None:
            return f"needs {gib(self.over_bytes)} GiB more than may be filled"
        return "as fast" if self.slower < 5e-4 else f"step {self.slower:+.1%}"


def picks(policies: Policies, steps: Floats, peaks: Floats, limit: float, winner: int) -> dict[str, int]:
    """The best of each kind that has a legal policy and that the winner is not."""
    found = {}
    for kind, member in KINDS:
        of_kind = member(policies)
        if not of_kind[winner] and of_kind.any():
            fits = of_kind & (peaks <= limit)
            key = np.where(fits, steps, np.inf) if fits.any() else np.where(of_kind, peaks, np.inf)
            found[kind] = int(np.argmin(key))
    return found


def losers(policies: Policies, steps: Floats, peaks: Floats, limit: float, winner: int) -> tuple[Loser, ...]:
    found = []
    for kind, best in picks(policies, steps, peaks, limit, winner).items():
        step, peak = float(steps[best]), float(peaks[best])
        slower = step / float(steps[winner]) - 1 if peak <= limit else None
        found.append(Loser(kind, policies[best], step, peak, slower, max(peak - limit, 0.0)))
    return tuple(found)
