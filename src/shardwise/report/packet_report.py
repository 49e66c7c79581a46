"""What packets do in the busiest collectives of a step, as plain data: keys carry their unit."""

from msgspec import Struct

from shardwise.fabric.packets.ask import Rules


class HotPort(Struct, frozen=True, kw_only=True):
    """The port with the longest queue in front of it."""

    link: str
    deepest_bytes: float
    bin_s: float
    queue_bytes: tuple[float, ...]
    """the longest in each part of the time"""
    mark_low_bytes: float | None
    limit_bytes: float | None
    """the longest that the rules allow one port when the rest of its switch is empty"""


class PauseEdge(Struct, frozen=True, kw_only=True):
    """A queue in front of one port stopped another port."""

    paused: str
    by: str
    times: int
    first_s: float


class PacketCall(Struct, frozen=True, kw_only=True):
    """One collective, its packets followed under several seeds."""

    axis: str
    op: str
    algorithm: str
    ranks: int
    bytes: float
    times: float
    """in a step, for an average GPU"""
    flow_level_s: float
    """of one, as the step counts it"""
    messages: int
    """followed, of `all_messages` that the collective has at once"""
    all_messages: int
    followed_share: float
    """of each message's bytes"""
    slower: float
    """than max-min rates of the same bytes, in the median seed"""
    slower_worst: float
    packet_level_s: float
    """of one, in the median seed: what the part that is followed loses is lost once"""
    packet_level_most_s: float
    """the same, if all of the message is slowed as that part is; senders that heed marks start slowly and recover"""
    transfer_p50_s: float
    """of single transfers over all seeds, of the part that is followed"""
    transfer_p99_s: float
    transfer_p999_s: float
    rates_s: float
    """the same part at max-min rates"""
    hottest: HotPort
    drops: int
    """in all seeds together, as are the following"""
    marks: int
    notifications: int
    pauses: int
    paused_s: float
    """of all ports, mean of the seeds"""
    resent: int
    timeouts: int
    headroom_used_bytes: float
    ways_used: int
    """links above the leaves that carried anything, of `ways_there` that the traffic could have taken"""
    ways_there: int
    pause_tree: tuple[PauseEdge, ...]
    events: int


class LossCost(Struct, frozen=True, kw_only=True):
    """What lost packets cost, by how they are sent again."""

    retransmit: str
    lost: int
    """packets that were made to be lost to find out"""
    each_s: float
    """that one lost packet holds up its transfer, time-outs not with it"""
    tail_share: float
    """of losses that nothing but a time-out reveals"""
    timeout_s: float
    step_s: dict[str, float]
    """share of packets lost -> seconds a step gains, all of them waited for"""
    usd_per_day: dict[str, float] | None
    """the same in rent of all GPUs; None where no price is published"""


class PacketAdvice(Struct, frozen=True, kw_only=True):
    """What to set on Ethernet switches; none for a fabric with credits."""

    headroom_bytes: float
    """of each port: what still arrives after a pause is sent"""
    xoff_bytes: float
    """of each port, if all of them fill at once and none may lose anything"""
    xon_bytes: float
    mark_low_bytes: float
    mark_high_bytes: float
    reserved_share: float
    """of the buffer, by the headroom of all ports"""
    enough: bool
    """nothing was dropped under the rules that were simulated"""


class PacketReport(Struct, frozen=True, kw_only=True):
    link_layer: str
    rules: Rules
    routing: str
    hashes: str
    seeds: int
    engine: str
    """compiled, or interpreted where numba is not installed"""
    events: int
    calls: tuple[PacketCall, ...]
    step_growth_s: float
    """what these calls gain in a step, all of it waited for"""
    step_growth_most_s: float
    """the same by `packet_level_most_s`"""
    advice: PacketAdvice | None
    losses: tuple[LossCost, ...]
    notes: tuple[str, ...]
