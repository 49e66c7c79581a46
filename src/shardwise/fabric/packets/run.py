"""Fills the tables, runs the loop, reads the tables: one simulation, always the same for the same seed."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.fabric.packets import tables as tb
from shardwise.fabric.packets.ask import PacketNetwork, PacketTransfers, Rules
from shardwise.fabric.packets.loop import ran
from shardwise.fabric.packets.tables import Tables

BINS = 240
MOST_LOGGED = 20_000
MOST_EVENTS = 200_000_000
LONGEST_S = 600.0
FIRST_WINDOW = 10.0
"""packets of a new TCP connection (RFC 6928)"""


@dataclass(frozen=True)
class Outcome:
    done_s: Floats
    """of each flow, when its last byte arrived; infinite where the run ended before"""
    seconds: float
    """until the last"""
    events: int
    sent_bytes: Ints
    """over each link, with headers and what was sent again"""
    deepest_bytes: Ints
    """longest queue in front of each link"""
    used: Ints
    """links that have a row in `series`"""
    series: NDArray[np.float32]
    """longest queue in each part of the time"""
    bin_s: float
    drops: Ints
    """in front of each link, for want of buffer"""
    marks: Ints
    paused_s: Floats
    """of each link"""
    pauses: Ints
    pause_log: Ints
    """(link that was paused, link whose queue did it), in the order of time"""
    pause_at_s: Floats
    headroom_bytes: Ints
    """most that was used of each link's"""
    resent: Ints
    """packets of each flow that were sent more than once"""
    timeouts: Ints
    struck: Ints
    """packets of each flow that were lost on a link or dropped in front of one"""
    lost: int
    """packets that links lost"""
    notifications: int

    def queue(self, link: int) -> Floats:
        """bytes in front of one link over time"""
        return np.asarray(self.series[int(np.searchsorted(self.used, link))], dtype=np.float64)


def simulated(
    network: PacketNetwork, transfers: PacketTransfers, rules: Rules, seed: int = 0, *, most_events: int = MOST_EVENTS,
    most_s: float = LONGEST_S,
) -> Outcome:  # fmt: skip
    """Begun again with more room in the tables where packets under way are more than was thought."""
    used, links = np.unique(transfers.links, return_inverse=True)
    small = PacketNetwork(network.rate[used], network.delay_s[used], network.source[used], network.target[used],
                    network.card_rate, network.burst_bytes)  # fmt: skip
    transfers = replace(transfers, links=links)
    room = 1
    while True:
        tables = _tables(small, transfers, rules, seed, room)
        ran(tables, np.argsort(tables.flow_s[:, tb.START], kind="stable"), most_events, most_s)
        if not tables.tally[tb.SHORT]:
            return _read(tables, used, len(network.rate))
        room *= 4


def _tables(network: PacketNetwork, transfers: PacketTransfers, rules: Rules, seed: int, room: int) -> Tables:
    flow, flow_s = _flows(transfers, rules, network, seed)
    packets = int(flow[:, tb.COUNT].sum())
    rows = room * (packets + 2 * len(flow) + 64)
    packet = np.zeros((rows, tb.PACKET_WIDTH), dtype=np.int64)
    packet[:, tb.NEXT] = np.append(np.arange(1, rows), -1)
    tcp = rules.control == "cubic"
    count = np.zeros(tb.COUNTS, dtype=np.int64)
    count[tb.RANDOM] = (seed * 0x9E3779B97F4A7C1 + 0x2545F4914F6CDD1D) & 0x7FFFFFFFFFFFFFFF or 1
    switches = int(max(network.source.max(initial=-1), network.target.max(initial=-1))) + 1
    heaped = rows + 2 * len(network.rate) + 4 * len(flow) + 64
    port, port_s = _ports(network, rules)
    return Tables(
        heap_at=np.zeros(heaped), heap_what=np.zeros(heaped, dtype=np.int64), packet=packet, port=port, port_s=port_s,
        flow=flow, flow_s=flow_s, path=transfers.links.astype(np.int64), path_from=transfers.way_from.astype(np.int64),
        status=np.zeros(packets, dtype=np.uint8), there=np.zeros(packets, dtype=np.uint8),
        sent_at=np.zeros(packets if tcp else 1), used=np.zeros(max(switches, 1), dtype=np.int64),
        rules=_rules(rules), tally=count, clock=np.array([0.0, _bin_s(network, transfers)]),
        series=np.zeros((len(network.rate), BINS), dtype=np.float32),
        log=np.zeros((MOST_LOGGED, 2), dtype=np.int64), log_at=np.zeros(MOST_LOGGED),
    )  # fmt: skip


def _bin_s(network: PacketNetwork, transfers: PacketTransfers) -> float:
    """Short: bins are joined by two as time goes on."""
    slowest = float(network.rate[np.unique(transfers.links)].min())
    return max(float(transfers.bytes.max()) / slowest / BINS / 4.0, 1e-9)


def _ports(network: PacketNetwork, rules: Rules) -> tuple[Ints, Floats]:
    port = np.zeros((len(network.rate), tb.PORT_WIDTH), dtype=np.int64)
    for column in (tb.HEAD, tb.TAIL, tb.RING_HEAD, tb.RING_TAIL):
        port[:, column] = -1
    port[:, tb.SWITCH], port[:, tb.FAR] = network.source, network.target
    # a link of several ports in one has as much for each of them
    lanes = np.maximum(network.rate / network.card_rate, 1.0)
    port[:, tb.CREDITS], port[:, tb.SPARE] = rules.credit_bytes * lanes, rules.headroom_bytes * lanes
    port_s = np.zeros((len(network.rate), tb.PORT_FLOATS))
    port_s[:, tb.RATE], port_s[:, tb.DELAY] = network.rate, network.delay_s
    port_s[:, tb.BURST_S] = network.burst_bytes / network.rate
    port_s[:, tb.FREE_AT] = -port_s[:, tb.BURST_S]
    return port, port_s


def _flows(transfers: PacketTransfers, rules: Rules, network: PacketNetwork, seed: int) -> tuple[Ints, Floats]:
    number = len(transfers.bytes)
    flow = np.zeros((number, tb.FLOW_WIDTH), dtype=np.int64)
    count = np.maximum(np.ceil(transfers.bytes / rules.payload), 1).astype(np.int64)
    flow[:, tb.COUNT] = count
    flow[:, tb.LAST_SIZE] = np.clip(np.round(transfers.bytes - (count - 1) * rules.payload), 1, rules.payload)
    flow[:, tb.FIRST_PATH], flow[:, tb.PATHS] = transfers.first_way, transfers.ways
    first = transfers.links[transfers.way_from[transfers.first_way]]
    flow[:, tb.NIC] = first
    flow[:, tb.BASE] = np.concatenate([[0], np.cumsum(count)[:-1]])
    flow[:, tb.RING_NEXT] = -1
    random = np.random.default_rng([seed, 48])
    # packets of one flow begin on different ways; flows begin within the time of two packets
    flow[:, tb.SPRAYED] = random.integers(0, 1 << 16, number)
    flow_s = np.zeros((number, tb.FLOW_FLOATS))
    packet_s = (rules.payload + rules.header) / network.rate[first]
    flow_s[:, tb.START] = random.random(number) * 2.0 * packet_s
    flow_s[:, tb.BACK_S] = _back_s(transfers, network)
    flow_s[:, tb.PACE] = flow_s[:, tb.TARGET] = network.rate[first]
    flow_s[:, tb.ALPHA] = 1.0
    flow_s[:, tb.CNP_AT] = -1.0
    flow_s[:, tb.DONE_AT] = np.inf
    flow_s[:, tb.CWND], flow_s[:, tb.SSTHRESH] = FIRST_WINDOW, 1e9
    flow_s[:, tb.RTT_MIN] = 1e9
    # what the first exchange of a connection has measured
    flow_s[:, tb.SRTT], flow_s[:, tb.RTTVAR] = 2.0 * flow_s[:, tb.BACK_S], flow_s[:, tb.BACK_S]
    return flow, flow_s


def _back_s(transfers: PacketTransfers, network: PacketNetwork) -> Floats:
    """Acknowledgements are small and go first: the delays of the way, nothing else."""
    total = np.append(0.0, np.cumsum(network.delay_s[transfers.links]))
    first = transfers.first_way
    return np.asarray(total[transfers.way_from[first + 1]] - total[transfers.way_from[first]])


def _rules(rules: Rules) -> Floats:
    found = np.zeros(tb.RULES_WIDTH)
    for column, value in (
        (tb.PAYLOAD, rules.payload), (tb.HEADER, rules.header), (tb.BUFFER, rules.buffer_bytes),
        (tb.LAYER, {"drop": tb.DROP, "pfc": tb.PFC, "credits": tb.CREDIT_LAYER}[rules.layer]),
        (tb.THRESHOLD, rules.threshold), (tb.XOFF, rules.xoff_bytes), (tb.XON_GAP, rules.xon_gap_bytes),
        (tb.MARK_LOW, rules.mark_low_bytes), (tb.MARK_HIGH, rules.mark_high_bytes),
        (tb.MARK_MOST, rules.mark_most), (tb.TCP, rules.control == "cubic"), (tb.DCQCN, rules.control == "dcqcn"),
        (tb.GO_BACK, rules.retransmit == "go-back-n"), (tb.WINDOW, max(rules.window_bytes // rules.payload, 1)),
        (tb.TIMEOUT_S, rules.timeout_s), (tb.LOSS, rules.loss), (tb.ACK_EVERY, rules.ack_every),
        (tb.REORDER, rules.reorder), (tb.PAUSE_S, rules.pause_s), (tb.LEAST_CWND, 2.0),
    ):  # fmt: skip
        found[column] = float(value)
    return found


def _read(t: Tables, used: Ints, links: int) -> Outcome:
    def whole(column: int) -> Ints:
        found = np.zeros(links, dtype=np.int64)
        found[used] = t.port[:, column]
        return found

    logged, done = min(int(t.tally[tb.LOGGED]), MOST_LOGGED), t.flow_s[:, tb.DONE_AT]
    still = t.port[:, tb.PAUSED] > 0
    paused = np.zeros(links)
    paused[used] = t.port_s[:, tb.PAUSED_S] + np.where(still, t.clock[tb.NOW] - t.port_s[:, tb.SINCE], 0.0)
    last = min(int(t.clock[tb.NOW] / t.clock[tb.BIN_S]) + 1, BINS)
    return Outcome(
        done_s=done, seconds=float(done.max(initial=0.0)), events=int(t.tally[tb.EVENTS]),
        sent_bytes=whole(tb.SENT), deepest_bytes=whole(tb.DEEPEST), used=used, series=t.series[:, :last],
        bin_s=float(t.clock[tb.BIN_S]), drops=whole(tb.DROPS), marks=whole(tb.MARKS), paused_s=paused,
        pauses=whole(tb.PAUSES), pause_log=used[t.log[:logged]], pause_at_s=t.log_at[:logged],
        headroom_bytes=whole(tb.MOST_ROOM), resent=t.flow[:, tb.RESENT],
        timeouts=t.flow[:, tb.EXPIRED], struck=t.flow[:, tb.STRUCK],
        lost=int(t.tally[tb.LOSSES]), notifications=int(t.tally[tb.CNPS]),
    )  # fmt: skip
