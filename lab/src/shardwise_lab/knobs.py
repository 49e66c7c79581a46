"""What a user may set about an emulated fabric, beside the cluster it stands for."""

from msgspec import Struct

from shardwise.registry import closest
from shardwise.units import bytes_of, rate_of

MTU = 1500
HEADERS = 66
"""Ethernet, IP and TCP with time stamps, of each packet; a token bucket counts them all"""
PAYLOAD = MTU + 14 - HEADERS
USUAL_WINDOW = 65_536
CONGESTION = ("cubic", "reno", "bbr")
LEAST_RATE, MOST_RATE = 1e6 / 8, 2e9 / 8
MOST_CONNECTIONS = 64
LEAST_BUFFER, MOST_BUFFER = 3 * 1514, 64 << 20


class Knobs(Struct, frozen=True, kw_only=True):
    card_bytes_per_s: float | None = None
    """what one card sends; None: as much as this machine's cores can carry"""
    buffer_bytes: int = 2_000_000
    """queue in front of each port"""
    burst_bytes: int = 16_384
    """a token bucket lets through at once: more hides small messages from the shaping, less misses the clock's ticks"""
    window_bytes: int | None = USUAL_WINDOW
    """that one connection may have under way: below the buffers, so that nothing is dropped, as fabrics for RDMA are
    run; None: as much as TCP likes"""
    congestion: str = "cubic"
    ecn_bytes: int | None = None
    """mark packets that meet a longer queue than this; None: none are"""
    oversubscription: float | None = None
    """of the highest level, instead of the cluster's"""
    connections: int = 1
    """for each pair, of transfers without gloo"""
    slow: tuple[tuple[str, float], ...] = ()
    """(link, share of its speed)"""

    def __post_init__(self) -> None:
        if self.congestion not in CONGESTION:
            raise ValueError(
                f"congestion: {self.congestion!r} is unknown; {closest(self.congestion, list(CONGESTION))}"
            )
        if self.card_bytes_per_s is not None and not LEAST_RATE <= self.card_bytes_per_s <= MOST_RATE:
            raise ValueError(f"rate: {self.card_bytes_per_s * 8 / 1e6:g} Mbit/s is out of range; write 1 to 2000 Mbps")
        if not LEAST_BUFFER <= self.buffer_bytes <= MOST_BUFFER:
            raise ValueError(f"buffer: {self.buffer_bytes:,} bytes is out of range; write '5 kB' to '64 MB'")
        if self.window_bytes is not None and not LEAST_BUFFER <= self.window_bytes <= MOST_BUFFER:
            raise ValueError(f"window: {self.window_bytes:,} bytes is out of range; write '5 kB' to '64 MB', or 'none'")
        if self.ecn_bytes is not None and not LEAST_BUFFER <= self.ecn_bytes <= self.buffer_bytes:
            raise ValueError(
                f"ecn: {self.ecn_bytes:,} bytes is out of range; write '5 kB' or more and no more than the buffer"
            )
        if not 1 <= self.connections <= MOST_CONNECTIONS:
            raise ValueError(f"connections: {self.connections} is out of range; write 1 to {MOST_CONNECTIONS}")
        if self.oversubscription is not None and not 1 <= self.oversubscription <= 64:
            raise ValueError(f"over: {self.oversubscription:g} is out of range; write 1 to 64")


def size_of(text: str, what: str) -> int:
    return round(bytes_of(text, what))


def card_rate_of(text: str) -> float:
    return rate_of(text, "rate")


def slow_of(text: str) -> tuple[str, float]:
    """'gpu 3 > leaf 0=0.25' -> the link and its share."""
    name, equals, share = text.rpartition("=")
    try:
        found = float(share)
    except ValueError:
        found = -1.0
    if not equals or not name or not 0 < found < 1:
        raise ValueError(f"slow: {text[:60]!r} is not a link and share; write LINK=0.25, links as in `lab list --on`")
    return name, found
