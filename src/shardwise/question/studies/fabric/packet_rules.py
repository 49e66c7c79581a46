"""What to set on the switches of a fabric, after its packets were simulated."""

from msgspec.structs import replace

from shardwise.fabric.packet_rules import fitted
from shardwise.fabric.packets import PacketNetwork, Rules
from shardwise.report.packet_report import PacketAdvice

PORTS = 64
"""of a switch at the speed of a card"""


def advice_of(network: PacketNetwork, rules: Rules, card: float, drops: int) -> PacketAdvice | None:
    """None for credits: there is nothing of the kind to set."""
    if rules.layer == "credits":
        return None
    usual = fitted(replace(rules, headroom_bytes=0.0, mark_low_bytes=0.0, mark_high_bytes=0.0), network, card)
    reserved = PORTS * usual.headroom_bytes
    xoff = max(rules.buffer_bytes - reserved, 0.0) / PORTS
    return PacketAdvice(
        headroom_bytes=usual.headroom_bytes, xoff_bytes=xoff,
        xon_bytes=max(xoff - 2.0 * (rules.payload + rules.header), 0.0),
        mark_low_bytes=usual.mark_low_bytes, mark_high_bytes=usual.mark_high_bytes,
        reserved_share=reserved / rules.buffer_bytes, enough=drops == 0,
    )  # fmt: skip
