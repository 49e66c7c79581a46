"""What is asked of the event loop: links with their ends, transfers with their ways, and the rules of the fabric."""

from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from shardwise.arrays import Floats, Ints
from shardwise.registry import closest

LAYERS = ("pfc", "drop", "credits")
RETRANSMITS = ("selective", "go-back-n")
CONTROLS = ("dcqcn", "none", "cubic")
MTUS = (1500, 4096, 9000)
ROCE_HEADER = 82
"""RoCE v2: preamble and gap 20, Ethernet 18, IP 20, UDP 8, transport header 12, checksum 4 bytes a packet"""
TIMEOUT_S = 4.096e-6 * 2**14
"""nothing comes back: InfiniBand's local ack timeout at the usual setting 14, 67 ms (IBTA 1.4, 9.9.2.1.2)"""
WINDOW = 4 << 20
"""bytes a connection may have under way: NCCL's buffer of a channel (NCCL_BUFFSIZE)"""


@dataclass(frozen=True)
class PacketNetwork:
    """Directed links; both ends of each as numbers of switches, -1 where a card is."""

    rate: Floats
    """bytes/s"""
    delay_s: Floats
    source: Ints
    target: Ints
    card_rate: float
    """bytes/s of one port: a faster link is several of them in one"""
    burst_bytes: float = 0.0
    """of a token bucket at every port: what it lets through at once"""


@dataclass(frozen=True)
class PacketTransfers:
    """Flows that start together (to within a packet); a flow has one way, or several that its packets take in turn."""

    bytes: Floats
    first_way: Ints
    ways: Ints
    """of each flow: how many of the following ways are its own"""
    links: Ints
    """of all ways, one behind the other"""
    way_from: Ints
    """where each begins in `links`, and the end"""


class Rules(Struct, frozen=True, kw_only=True):
    """How switches and senders behave; bytes and seconds."""

    payload: int = 4096
    header: int = ROCE_HEADER
    layer: str = "pfc"
    """pfc: pauses; drop: full buffers lose packets; credits: InfiniBand, nothing is sent that has no room"""
    buffer_bytes: float = 64e6
    """shared by the ports of a switch; without a threshold of its own for each port"""
    threshold: float = 0.125
    """dynamic threshold: a port may hold this many times what is free; 0: each port has all of `buffer_bytes`"""
    xoff_bytes: float = 0.0
    """of one input port: where its sender is paused; 0: by the dynamic threshold"""
    xon_gap_bytes: float = 20e3
    """so far below xoff it is let go on"""
    headroom_bytes: float = 0.0
    """of one port's input, for what is on its way when the pause is sent"""
    credit_bytes: float = 128e3
    """of one port's input on an InfiniBand switch"""
    mark_low_bytes: float = 0.0
    mark_high_bytes: float = 0.0
    """ECN: never below the first, always above the second; 0: none"""
    mark_most: float = 0.2
    """chance just below the second"""
    control: str = "dcqcn"
    retransmit: str = "selective"
    reorder: int = 1
    """packets that may overtake one before it counts as lost"""
    window_bytes: float = WINDOW
    timeout_s: float = TIMEOUT_S
    loss: float = 0.0
    """chance of each packet on each link"""
    ack_every: int = 4
    pause_s: float = 0.0
    """from the decision to pause until the frame is sent, and from its arrival until it is obeyed"""

    def __post_init__(self) -> None:
        for field, known in (("layer", LAYERS), ("retransmit", RETRANSMITS), ("control", CONTROLS)):
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"{field}: {value!r} is unknown; {closest(value, list(known))}")
        if not 0 <= self.loss < 0.5:
            raise ValueError(f"lost: {self.loss:g} is out of range; write a share from 0 to 0.5, as in 1e-5")


def ways_of(links: Ints, free: int) -> tuple[Ints, Ints]:
    """(links of all rows one behind the other, where each row begins): rows of a table with free places."""
    used = links < free
    return links[used], np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int64)
