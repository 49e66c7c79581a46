"""Constants of the links, as data: cost/links.toml, fitted by evidence/fit_network.py."""

import tomllib
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import gpu_of

_TABLE = Path(__file__).parent / "links.toml"


class Style(Struct, frozen=True, forbid_unknown_fields=True):
    """One way of sending, in its protocols from low latency to full bandwidth: one entry per protocol."""

    step_us: tuple[float, ...]
    """a dependent message, on top of the latency the level states"""
    rate: tuple[float, ...]
    """part of the link's bandwidth the data reaches"""
    base_us: tuple[float, ...] = ()
    """start of the operation; of the level-0 link only"""
    stored: tuple[float, ...] = ()
    """part of the message that every step waits for before it passes it on (1: no pipelining)"""
    inside_us: tuple[float, ...] = ()
    """a step inside a node, at least, of a group that leaves it by this link"""


class LinkConstants(Struct, frozen=True, forbid_unknown_fields=True):
    ring: Style
    pairwise: Style
    tree: Style | None = None
    """None: as ring (inside a node a tree is a chain)"""
    switch: Style | None = None
    """None: as ring; asked for only where a switch adds numbers"""
    copy_bytes_per_s: float = 0.0
    """a rank's copy of its own part, out of place; 0 means none"""
    gpu: str = ""
    """catalog name of the GPU the constants were fitted on, where they depend on it"""

    def style(self, name: str) -> Style:
        found: Style | None = getattr(self, name)
        return found or self.ring

    def on(self, gpu: Gpu) -> "LinkConstants":
        """The constants as they would be on another GPU.

        The work of a step, of protocols that check a flag in every line, and of a copy is instructions of a few SMs and
        goes with the clock; long messages go with the link.
        """
        if not self.gpu:
            return self
        clock = gpu.boost_clock_hz / gpu_of(self.gpu).boost_clock_hz

        def moved(style: Style | None) -> Style | None:
            if style is None:
                return None
            *flagged, whole = style.rate
            return Style(
                step_us=tuple(us / clock for us in style.step_us),
                rate=(*(min(rate * clock, whole) for rate in flagged), whole),
                base_us=tuple(us / clock for us in style.base_us),
                stored=style.stored,
                inside_us=style.inside_us,
            )

        styles = {name: moved(getattr(self, name)) for name in ("ring", "pairwise", "tree", "switch")}
        return replace(self, **styles, copy_bytes_per_s=self.copy_bytes_per_s * clock, gpu=gpu.name)


class NetworkConstants(Struct, frozen=True, forbid_unknown_fields=True):
    cards_per_group: float
    """network cards of a node that one group's channels are spread over, at most"""
    link: dict[str, LinkConstants]

    def of(self, cluster: Cluster, level: Level) -> LinkConstants:
        """The constants of a level; an NVLink generation without its own takes the nearest, the newer of two."""
        if level.kind != "nvlink":
            return self.link[level.kind]
        generation = cluster.gpu.nvlink.generation if cluster.gpu.nvlink else 4
        known = [int(name.removeprefix("nvlink")) for name in self.link if name.startswith("nvlink")]
        nearest = min(known, key=lambda g: (abs(g - generation), -g))
        found = self.link[f"nvlink{nearest}"]
        return found if nearest == generation else found.on(cluster.gpu)


@cache
def default_links() -> NetworkConstants:
    return msgspec.convert(tomllib.loads(_TABLE.read_text(encoding="utf-8")), NetworkConstants)
