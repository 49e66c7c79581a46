"""Why the others lose: the best policy of each kind the winner is not, against the winner."""

from dataclasses import dataclass

from shardwise.spec.policy import Policy
from shardwise.units import gib


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
