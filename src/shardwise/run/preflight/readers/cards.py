"""RDMA cards of a node, from /sys/class/infiniband; what they count; what their Ethernet side is set to."""

import re
from dataclasses import dataclass

from shardwise.run.preflight.node import Node
from shardwise.run.preflight.readers.smi import number_of

ROOT = "/sys/class/infiniband"
LANES = "/sys/class/net"
BITS = 1e9 / 8
FASTEST_HALF = 0.5
"""of the fastest card's rate: slower ones manage or store, and carry no collectives"""
COUNTERS = (
    "counters/symbol_error", "counters/link_error_recovery", "counters/link_downed", "counters/port_rcv_errors",
    "counters/port_xmit_discards", "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors", "hw_counters/out_of_sequence", "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err", "hw_counters/out_of_buffer", "hw_counters/rnr_nak_retry_err",
    "hw_counters/roce_adp_retrans", "hw_counters/np_ecn_marked_roce_packets", "hw_counters/np_cnp_sent",
    "hw_counters/rp_cnp_handled",
)  # fmt: skip
_RATE = re.compile(r"^([\d.]{1,8}) Gb/sec(?: \((\d{1,2})X ([A-Z0-9]{1,8})\))?$")
_ETHTOOL = re.compile(r"^\s*((?:rx|tx)_[a-z0-9_]{1,60}): (\d{1,20})\s*$")
_STATS = re.compile(
    r"^((?:rx|tx)_prio\d_(?:pause|pause_duration|buf_discard|discards)|rx_discards_phy|tx_discards_phy|rx_out_of_buffer)$"
)
KEEP_STATS = r"_prio\d_(pause|buf_discard|discards)|_discards_phy|out_of_buffer"


@dataclass(frozen=True)
class Card:
    name: str
    rate: float | None
    """bytes/s of its first port"""
    width: str
    state: str
    physical: str
    layer: str
    """InfiniBand or Ethernet"""
    lanes: tuple[str, ...]
    """its network interfaces"""
    numa: int | None
    firmware: str

    @property
    def up(self) -> bool:
        return self.state.endswith("ACTIVE") and (not self.physical or self.physical.endswith("LinkUp"))

    @property
    def roce(self) -> bool:
        return self.layer == "Ethernet"


def cards_of(node: Node) -> list[Card]:
    return [_card(node, name) for name in node.names(ROOT)]


def compute_cards(cards: list[Card]) -> list[Card]:
    """Those that carry collectives: the fast ones; one that tells no rate counts with them, as it may be down."""
    fastest = max((card.rate or 0.0 for card in cards), default=0.0)
    return [card for card in cards if card.rate is None or not card.up or card.rate >= FASTEST_HALF * fastest]


def rate_of_port(text: str) -> tuple[float | None, str]:
    """'400 Gb/sec (4X NDR)' -> bytes/s and '4X NDR'."""
    found = _RATE.match(text.strip())
    rate = number_of(found[1]) if found else None
    return (None if rate is None else rate * BITS), (f"{found[2]}X {found[3]}" if found and found[2] else "")


def counters_of(node: Node) -> dict[str, int]:
    """'mlx5_0/counters/link_downed' -> its value, of every card; what a card does not count is away."""
    found = {}
    for card in cards_of(node):
        for name in COUNTERS:
            value = whole(node.read(f"{ROOT}/{card.name}/ports/1/{name}"))
            if value is not None:
                found[f"{card.name}/{name.partition('/')[2]}"] = value
        for lane in card.lanes if card.roce else ():
            printed = node.run(f"ethtool -S {lane}", KEEP_STATS)
            for name, value in ethtool_counters(printed.text if printed else "").items():
                found[f"{card.name}/{name}"] = value
    return found


def ethtool_counters(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        told = _ETHTOOL.match(line)
        if told and _STATS.match(told[1]):
            found[told[1]] = int(told[2])
    return found


def whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 20 else None


def _card(node: Node, name: str) -> Card:
    port, device = f"{ROOT}/{name}/ports/1", f"{ROOT}/{name}/device"
    rate, width = rate_of_port(node.read(f"{port}/rate") or "")
    numa = node.read(f"{device}/numa_node")
    return Card(
        name=name, rate=rate, width=width, state=node.read(f"{port}/state") or "",
        physical=node.read(f"{port}/phys_state") or "", layer=node.read(f"{port}/link_layer") or "",
        lanes=tuple(lane for lane in node.names(f"{device}/net") if re.fullmatch(r"[\w.@-]{1,15}", lane)),
        numa=whole(numa), firmware=node.read(f"{ROOT}/{name}/fw_ver") or "",
    )  # fmt: skip
