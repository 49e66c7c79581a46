"""All that the event loop reads and writes, as a few tables: a row is one port, one flow, one packet.

Rows instead of columns side by side: an event touches many fields of one port and one packet, which then lie in one
line of the processor's cache. Columns are named by the numbers below.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints

# kinds of events
ARRIVE, DEPART, WAKE, ACK, CNP, PAUSE, RESUME, CREDIT, TIMEOUT = range(9)
KIND_BITS = 40
NUMBER = (1 << KIND_BITS) - 1
MOST_SIZE = 1 << 16
"""bytes of a packet stay below it: a credit's event holds its link and its size"""

# a port: the sending end of a directed link
(HEAD, TAIL, QUEUED, BUSY, PAUSED, CAME, ROOM, TOLD, CREDITS, SWITCH, FAR, DEEPEST, SENT, DROPS, MARKS, PAUSES,
 RING_HEAD, RING_TAIL, LAST_BIN, MOST_ROOM, SPARE, PORT_WIDTH) = range(22)  # fmt: skip
RATE, DELAY, BURST_S, FREE_AT, SINCE, PAUSED_S, PORT_FLOATS = range(7)

# a packet, or an acknowledgement on its way back
FLOW, SEQ, AT, END, SIZE, MARK, NEXT, CAME_BY, PACKET_WIDTH = range(9)

# a flow
(COUNT, LAST_SIZE, FIRST_PATH, PATHS, NIC, BASE, UNA, NXT, HIGH, RESEND, LOST, FLYING, EXPECT, ASKED, PENDING, ECHO,
 STATE, RING_NEXT, TIMER, RECOVER, SLOW_POINT, STAGE_T, STAGE_B, TRIES, SPRAYED, RESENT, EXPIRED, ROUND_END, SAMPLES,
 PROBED, SCAN, STRUCK, TOP, TIMED, FLOW_WIDTH) = range(35)  # fmt: skip
IDLE, WAITING, RINGED = range(3)
(START, BACK_S, PACE, TARGET, ALPHA, ALPHA_AT, UP_AT, UP_BYTES, NEXT_AT, CNP_AT, DEADLINE, DONE_AT, CWND, SSTHRESH,
 SRTT, RTTVAR, RTT_MIN, ROUND_MIN, ROUND_AT, ACK_AT, EPOCH, W_MAX, K_CUBIC, ORIGIN, RACK, W_EST, RINGS_AT, ENDED,
 FLOW_FLOATS) = range(29)  # fmt: skip

# what has become of a packet at its sender; at its receiver only whether it is there
UNSENT, OUT, ACKED, GONE = range(4)

# rules, as the loop reads them
(PAYLOAD, HEADER, LAYER, BUFFER, THRESHOLD, XOFF, XON_GAP, MARK_LOW, MARK_HIGH, MARK_MOST, TCP, DCQCN, GO_BACK,
 WINDOW, TIMEOUT_S, LOSS, ACK_EVERY, REORDER, PAUSE_S, LEAST_CWND, RULES_WIDTH) = range(21)  # fmt: skip
DROP, PFC, CREDIT_LAYER = range(3)

# counters
(HEAPED, FREE, RANDOM, EVENTS, FINISHED, LOSSES, LOGGED, SHORT, CNPS, DROPPED, DELIVERED, MARKED, COUNTS) = range(13)
NOW, BIN_S, CLOCKS = range(3)


class Tables(NamedTuple):
    heap_at: Floats
    heap_what: Ints
    packet: Ints
    port: Ints
    port_s: Floats
    flow: Ints
    flow_s: Floats
    path: Ints
    """links of all paths, one behind the other"""
    path_from: Ints
    """where each path begins in `path`; one more at the end"""
    status: NDArray[np.uint8]
    """of each packet of each flow at its sender"""
    there: NDArray[np.uint8]
    """of each packet of each flow at its receiver"""
    sent_at: Floats
    """of each packet, where a window is used"""
    used: Ints
    """bytes in the shared buffer of each switch"""
    rules: Floats
    tally: Ints
    clock: Floats
    series: NDArray[np.float32]
    """ports x bins: longest queue in it"""
    log: Ints
    """pauses: which port was paused, and the port whose queue did it"""
    log_at: Floats
