"""What messages are on the wire: headers, acknowledgements and gloo's own words, packet by packet.

Every packet has 66 bytes of Ethernet, IP and TCP headers with time stamps; segments are not joined in a lab, so data
takes as many packets as it fills. The receiver acknowledges every second packet.

gloo announces: 48 bytes go ahead of a message when it may be sent, 48 back when it may be received, and 48 stand in
front of it. Announcements are packets of their own where the connection has nothing else to send. Where two messages
are more than it may have under way, they wait in its socket: then messages and announcements fill packets together, and
words that go back ride on acknowledgements.
"""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.links import RoutedFabric
from shardwise.fabric.solver import Flows
from shardwise_lab.knobs import HEADERS, PAYLOAD, USUAL_WINDOW
from shardwise_lab.sends import WireSends

WORD = 48
"""bytes of gloo's preamble: six numbers"""


@dataclass(frozen=True)
class WirePairs:
    """What goes from one rank to another, and what comes back for it."""

    source: Ints
    target: Ints
    ahead: Floats
    back: Floats


def wired(sends: WireSends, window: int) -> tuple[Floats, Floats]:
    """(bytes ahead, bytes back) of all messages of each row; `window`: that a connection may have under way."""
    if sends.how == "plain":
        return _stream(sends.bytes * sends.count, 0.0 * sends.count)
    packets = np.ceil((sends.bytes + WORD) / PAYLOAD) + 1.0
    ahead = (sends.bytes + 2 * WORD + HEADERS * packets) * sends.count
    told = 0.0 if sends.how == "ready" else WORD + HEADERS
    back = (HEADERS * packets / 2 + told) * sends.count
    if sends.how != "chain":
        return ahead, back
    waits = 2 * (sends.bytes + 2 * WORD) > window
    filled, answered = _stream((sends.bytes + 2 * WORD) * sends.count, sends.count)
    return np.where(waits, filled, ahead), np.where(waits, answered, back)


def _stream(size: Floats, words: Floats) -> tuple[Floats, Floats]:
    packets = np.ceil(size / PAYLOAD)
    return size + HEADERS * packets, HEADERS * np.ceil(packets / 2) + WORD * words


def pairs_of(sends: WireSends, window: int = USUAL_WINDOW) -> WirePairs:
    ahead, back = wired(sends, window)
    keys = np.stack([sends.source, sends.target], axis=1)
    found, place = np.unique(keys, axis=0, return_inverse=True) if len(keys) else (keys, np.zeros(0, dtype=np.int64))
    ahead, back = (
        np.asarray(np.bincount(place.ravel(), weights=each, minlength=len(found)), dtype=np.float64)
        for each in (ahead, back)
    )
    return WirePairs(found[:, 0], found[:, 1], ahead, back)


def wire_flows(fabric: RoutedFabric, pairs: WirePairs) -> tuple[Flows, Ints]:
    """(flows over links with what comes back for them, the pair each belongs to). Ranks are GPUs here."""
    ahead, back = fabric.routes(pairs.source, pairs.target), fabric.routes(pairs.target, pairs.source)
    answered = np.divide(pairs.back, pairs.ahead, out=np.zeros(len(pairs.ahead)), where=pairs.ahead > 0)
    weights = [
        factor[:, None] * (np.ones(routes.links.shape) if routes.weight is None else routes.weight)
        for routes, factor in ((ahead, np.ones(len(ahead.message))), (back, answered[back.message]))
    ]
    links = np.concatenate([ahead.links, back.links], axis=1)
    weight = np.where(links < len(fabric.links), np.concatenate(weights, axis=1), 0.0)
    return Flows(links, pairs.ahead[ahead.message] * ahead.share, weight), ahead.message


def seated(pairs: WirePairs, gpus: Ints) -> WirePairs:
    """The same with ranks as GPUs; `gpus`: of each rank."""
    return WirePairs(gpus[pairs.source], gpus[pairs.target], pairs.ahead, pairs.back)
