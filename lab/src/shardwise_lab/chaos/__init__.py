"""What goes wrong while a job trains, put in on purpose: do time-out, restart and checkpoints what they should?"""

from shardwise.registry import closest
from shardwise_lab.chaos.cases import CHAOS, ChaosCase
from shardwise_lab.chaos.played import play

__all__ = ["CHAOS", "ChaosCase", "chaos_named", "play"]


def chaos_named(name: str) -> ChaosCase:
    if name not in CHAOS:
        raise ValueError(f"chaos: {name!r} is unknown; {closest(name, list(CHAOS))}")
    return CHAOS[name]
