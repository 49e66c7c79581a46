"""Rules that fit a fabric: what its switches and cards are set to where nobody says, and what to set."""

from msgspec.structs import replace

from shardwise.fabric.requirement import ROUND_TRIP_S
from shardwise.packets import Network, Rules
from shardwise.report.packet_report import Advice

MARK_SPAN = 4.0
"""all packets are marked from so many times the first mark on"""
PORTS = 64
"""of a switch at the speed of a card"""


def fitted(rules: Rules, network: Network, card: float) -> Rules:
    """What is left at 0 of headroom and marks, by the rates and delays of the fabric."""
    if rules.layer == "credits":
        return replace(rules, mark_low_bytes=0.0, mark_high_bytes=0.0, control="none")
    headroom = rules.headroom_bytes or headroom_of(network, rules)
    low = rules.mark_low_bytes or card * ROUND_TRIP_S
    high = rules.mark_high_bytes or MARK_SPAN * low
    return replace(rules, headroom_bytes=headroom, mark_low_bytes=low, mark_high_bytes=high)


def headroom_of(network: Network, rules: Rules) -> float:
    """What arrives at a port after its switch has decided to pause: the frame waits for a packet and travels, meanwhile
    the sender goes on, ends its packet, and what is on the wire arrives."""
    packet = rules.payload + rules.header
    delay = float(network.delay_s[network.target >= 0].max(initial=0.0))
    return network.card_rate * (2.0 * delay + rules.pause_s) + 2.0 * packet


def advice_of(network: Network, rules: Rules, card: float, drops: int) -> Advice | None:
    """None for credits: there is nothing of the kind to set."""
    if rules.layer == "credits":
        return None
    usual = fitted(replace(rules, headroom_bytes=0.0, mark_low_bytes=0.0, mark_high_bytes=0.0), network, card)
    reserved = PORTS * usual.headroom_bytes
    xoff = max(rules.buffer_bytes - reserved, 0.0) / PORTS
    return Advice(
        headroom_bytes=usual.headroom_bytes, xoff_bytes=xoff,
        xon_bytes=max(xoff - 2.0 * (rules.payload + rules.header), 0.0),
        mark_low_bytes=usual.mark_low_bytes, mark_high_bytes=usual.mark_high_bytes,
        reserved_share=reserved / rules.buffer_bytes, enough=drops == 0,
    )  # fmt: skip
