"""Named demonstrations: what a network engineer is told about training, measured on this machine."""

from shardwise.registry import closest
from shardwise_lab.demos._contract import Demo, Setting
from shardwise_lab.demos.placed import GOSSIP, HOT_EXPERT, PLACEMENT, RAILS, SLOW_LINK
from shardwise_lab.demos.trained import DDP, FSDP
from shardwise_lab.demos.transfers import ECMP, ECN, INCAST

DEMOS = {demo.name: demo for demo in (PLACEMENT, RAILS, SLOW_LINK, INCAST, ECMP, ECN, DDP, FSDP, HOT_EXPERT, GOSSIP)}

__all__ = ["DEMOS", "Demo", "Setting", "demo_named"]


def demo_named(name: str) -> Demo:
    if name not in DEMOS:
        raise ValueError(f"demo: {name!r} is unknown; {closest(name, list(DEMOS))}")
    return DEMOS[name]
