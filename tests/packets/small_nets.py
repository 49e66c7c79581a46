"""Small networks to send packets over."""

import numpy as np

from shardwise.fabric.packets import PacketNetwork, PacketTransfers

CARD = 50e9


def transfers(ways, sizes, count=None):
    """`ways`: links of each; `count`: how many of the following each flow has, one by default."""
    links = np.array([link for way in ways for link in way], dtype=np.int64)
    begin = np.cumsum([0, *(len(way) for way in ways)])
    count = np.ones(len(sizes), dtype=np.int64) if count is None else np.array(count)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    return PacketTransfers(np.array(sizes, dtype=float), first, count, links, begin)


def star(cards, rate=CARD, delay=1e-6):
    """Links 0.. up from the cards, cards.. down to them."""
    up, down = np.full(cards, -1), np.zeros(cards, dtype=np.int64)
    return PacketNetwork(np.full(2 * cards, rate), np.full(2 * cards, delay), np.r_[up, down], np.r_[down, up], rate)


def into_one(cards, size):
    return star(cards), transfers([[card, cards] for card in range(1, cards)], [size] * (cards - 1))


def chain(victim, hot, rate=CARD, delay=1e-6):
    """Cards on a first switch, one link to a second, two cards there: `hot` senders to the first of them, whose port
    has a tenth of the speed, and `victim` senders to the other."""
    senders = hot + victim
    source = np.r_[np.full(senders, -1), 0, 1, 1]
    target = np.r_[np.zeros(senders, dtype=np.int64), 1, -1, -1]
    speed = np.r_[np.full(senders, rate), rate, rate / 10, rate]
    network = PacketNetwork(speed, np.full(senders + 3, delay), source, target, rate)
    ways = [[card, senders, senders + 1 if card < hot else senders + 2] for card in range(senders)]
    return network, ways
