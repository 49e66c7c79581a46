"""Options of `shardwise lab` that several of its sub-commands take, and how a user without root gets there."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from shardwise.interpreter import python_command, python_environment
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._options import Json
from shardwise.units import seconds_of
from shardwise_lab.emulated import Emulated, emulated_of
from shardwise_lab.knobs import CONGESTION, Knobs, card_rate_of, size_of, slow_of
from shardwise_lab.probe import allowed

FABRIC = Group("Fabric", sort_key=1)
LONGEST_S = 3600.0
DryRun = Annotated[bool, Parameter(name="--dry-run", negative=(), help="Say what would be done, and do nothing.")]
Limit = Annotated[str, Parameter(help="It ends after this time, whatever happens.")]
Html = Annotated[Path | None, Parameter(help="Tables and load over time as one page, FILE.html.")]
Realtime = Annotated[
    bool,
    Parameter(negative="--no-realtime", help="The lab's own ranks go before other work, where root may say so."),
]
__all__ = ["DryRun", "FabricFlags", "Html", "Json", "Limit", "Overwrite", "Realtime"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FabricFlags:
    rate: Annotated[str | None, Parameter(group=FABRIC, help=(
        "Of a NIC, such as '50 Mbps': sets the dilation; default: as fast as the cores allow, at most 100."
    ))] = None  # fmt: skip
    over: Annotated[float | None, Parameter(group=FABRIC, help="Oversubscription of the highest level.")] = None
    buffer: Annotated[str, Parameter(group=FABRIC, help="In front of each port.")] = "2 MB"
    window: Annotated[str, Parameter(group=FABRIC, help=(
        "Bytes in flight of a connection: below the buffers nothing is dropped; 'none': TCP's own."
    ))] = "64 kB"  # fmt: skip
    congestion: Annotated[str, Parameter(group=FABRIC, help=f"{', '.join(CONGESTION)}.")] = "cubic"
    ecn: Annotated[str | None, Parameter(group=FABRIC, help="Mark packets that meet a queue of this size.")] = None
    connections: Annotated[int, Parameter(group=FABRIC, help=(
        "For each pair: more than one sends without gloo, as queue pairs do (all_to_all, shift, gossip, incast)."
    ))] = 1  # fmt: skip
    slow: Annotated[list[str] | None, Parameter(group=FABRIC, negative=(), help=(
        "A link at a share of its speed: 'node 1 gpu 0 > leaf 0=0.25'; may repeat."
    ))] = None  # fmt: skip

    def knobs(self) -> Knobs:
        return Knobs(
            card_bytes_per_s=None if self.rate is None else card_rate_of(self.rate), oversubscription=self.over,
            buffer_bytes=size_of(self.buffer, "buffer"), congestion=self.congestion,
            window_bytes=None if self.window == "none" else size_of(self.window, "window"),
            ecn_bytes=None if self.ecn is None else size_of(self.ecn, "ecn"), connections=self.connections,
            slow=tuple(slow_of(each) for each in self.slow or ()),
        )  # fmt: skip

    def fabric(self, on: str) -> Emulated:
        return emulated_of(on, self.knobs())


def limit_of(text: str) -> float:
    found = seconds_of(text, "limit")
    if not 1 <= found <= LONGEST_S:
        raise ValueError(f"limit: {text!r} is out of range; write '1 s' to '60 min'")
    return found


def order_of(text: str | None, gpus: int) -> tuple[int, ...]:
    """The GPU of each rank."""
    if text is None:
        return tuple(range(gpus))
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 4 for word in words):
        raise ValueError(f"order: {text[:60]!r} is not a list of GPUs; write for example 0,4,1,5")
    found = tuple(int(word) for word in words)
    if len(set(found)) < len(found) or max(found) >= gpus or len(found) < 2:
        raise ValueError(
            f"order: {text[:60]!r} names a GPU twice or one that is not there; write some of 0 to {gpus - 1}"
        )
    return found


def become_root() -> None:
    """Says what is missing and stops; a user who is not root starts anew inside namespaces in which one is."""
    found = allowed()
    if found.missing:
        raise ValueError(f"lab: this machine lacks {'; '.join(found.missing)}")
    if found.root:
        return
    shell = 'mount -t tmpfs none /run && mkdir /run/netns && exec "$@"'
    unshare = shutil.which("unshare") or "unshare"
    words = [unshare, "-rnm", "--propagation", "private", "sh", "-c", shell, "lab"]
    os.execve(unshare, [*words, *python_command("shardwise", *sys.argv[1:])], python_environment())
