"""Rules that fit a fabric: what its switches and cards are set to where nobody says."""

from msgspec.structs import replace

from shardwise.fabric.packets import PacketNetwork, Rules
from shardwise.fabric.requirement import ROUND_TRIP_S
from shardwise.spec.cluster import Cluster

MARK_SPAN = 4.0
"""all packets are marked from so many times the first mark on"""


def usual_rules(cluster: Cluster) -> Rules:
    return Rules(layer="credits" if cluster.has_credits else "pfc")


def fitted(rules: Rules, network: PacketNetwork, card: float) -> Rules:
    """What is left at 0 of headroom and marks, by the rates and delays of the fabric."""
    if rules.layer == "credits":
        return replace(rules, mark_low_bytes=0.0, mark_high_bytes=0.0, control="none")
    headroom = rules.headroom_bytes or headroom_of(network, rules)
    low = rules.mark_low_bytes or card * ROUND_TRIP_S
    high = rules.mark_high_bytes or MARK_SPAN * low
    return replace(rules, headroom_bytes=headroom, mark_low_bytes=low, mark_high_bytes=high)


def headroom_of(network: PacketNetwork, rules: Rules) -> float:
    """What arrives at a port after its switch has decided to pause: the frame waits for a packet and travels, meanwhile
    the sender goes on, ends its packet, and what is on the wire arrives."""
    packet = rules.payload + rules.header
    delay = float(network.delay_s[network.target >= 0].max(initial=0.0))
    return network.card_rate * (2.0 * delay + rules.pause_s) + 2.0 * packet
