"""Network cards as people state them, behind a cluster's name: '2x8xa100@100Gbps/node', '4x8xh100@8x400Gbps'.

A cluster has bytes/s for each GPU, all of them sending at once; what is stated for a node is divided by its GPUs.
"""

import re

from msgspec.structs import replace

from shardwise.spec.cluster import Cluster
from shardwise.units import rate_of

FORMS = "write '100Gbps/node', '400Gbps/gpu', or '8x400Gbps' for 8 NICs in each node"
_CARDS = re.compile(r"^\s*(?:(\d{1,3})\s*x\s*)?([\d.,]+\s*[A-Za-z]+(?:/s)?)\s*(?:/\s*(node|gpu))?\s*$", re.IGNORECASE)
MARK = "@"


def parted(text: str) -> tuple[str, str]:
    """(what names the cluster, what states its cards); a path may hold the mark too."""
    name, mark, cards = text.rpartition(MARK)
    return (name, cards) if mark and _CARDS.match(cards) else (text, "")


def named_with(on: str, nic: str | None) -> str:
    """A cluster's name with the cards that an option states."""
    if nic is None:
        return on
    if parted(on)[1]:
        raise ValueError(f"nic: {nic!r}, but {on!r} states its NICs; write one of them")
    _rate(nic)
    return f"{on}{MARK}{''.join(nic.split())}"


def with_cards(cluster: Cluster, cards: str, name: str) -> Cluster:
    """The cluster with all levels of its network as fast as these cards."""
    each, rate, per = _rate(cards)
    node = cluster.levels[0].degree
    speed = rate if per == "gpu" else each * rate / node
    rails, sold = (node, 0) if per == "gpu" else (min(each, node), each)
    levels = tuple(
        replace(level, bandwidth=speed, rails=min(level.rails, rails), cards=sold) if level.kind == "network" else level
        for level in cluster.levels
    )
    said = (
        f"NICs as stated, {cards}: {speed / 1e9:.3g} GB/s for each of {node} GPUs of a node; switches and "
        "latency as usual"
    )
    return replace(cluster, name=name, levels=levels, assumed="; ".join(filter(None, (cluster.assumed, said))))


def _rate(cards: str) -> tuple[int, float, str]:
    """(cards of a node, bytes/s of each, 'node' or 'gpu')."""
    match = _CARDS.match(cards)
    if not match or not (match[1] or match[3]):
        raise ValueError(f"nic: cannot read {cards!r} as NICs of a node; {FORMS}")
    count, per = int(match[1] or 1), (match[3] or "node").lower()
    rate = rate_of(match[2], "nic")
    if not rate > 0 or not count or (per == "gpu" and match[1] is not None):
        raise ValueError(f"nic: {cards!r} is out of range; {FORMS}")
    return count, rate, per
