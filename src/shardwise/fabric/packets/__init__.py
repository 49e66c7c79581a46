"""Packets on links: queues, pauses, marks, losses and what senders do about them, event by event."""

from shardwise.fabric.packets.ask import LAYERS, RETRANSMITS, PacketNetwork, PacketTransfers, Rules
from shardwise.fabric.packets.compiled import COMPILED
from shardwise.fabric.packets.run import Outcome, simulated

__all__ = ["COMPILED", "LAYERS", "RETRANSMITS", "Outcome", "PacketNetwork", "PacketTransfers", "Rules", "simulated"]
