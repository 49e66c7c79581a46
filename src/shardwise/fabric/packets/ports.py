"""What a port does: queue, admission to the switch's buffer, marks, pauses and credits."""

from shardwise.fabric.packets.compiled import compiled
from shardwise.fabric.packets.heap import chance, given_back, push
from shardwise.fabric.packets.tables import (
    BIN_S,
    BUFFER,
    BURST_S,
    BUSY,
    CAME,
    CAME_BY,
    CREDIT,
    CREDIT_LAYER,
    CREDITS,
    DEEPEST,
    DELAY,
    DEPART,
    DROP,
    DROPPED,
    DROPS,
    FAR,
    FLOW,
    FREE_AT,
    HEAD,
    LAST_BIN,
    LAYER,
    LOGGED,
    MARK,
    MARK_HIGH,
    MARK_LOW,
    MARK_MOST,
    MARKED,
    MARKS,
    MOST_ROOM,
    MOST_SIZE,
    NEXT,
    PAUSE,
    PAUSE_S,
    PAUSED,
    PFC,
    QUEUED,
    RATE,
    RESUME,
    ROOM,
    SIZE,
    SPARE,
    STRUCK,
    SWITCH,
    TAIL,
    THRESHOLD,
    TOLD,
    XOFF,
    XON_GAP,
    Tables,
)  # fmt: skip


@compiled
def noted(t: Tables, now: float, port: int) -> None:
    """The queue as it has been until now; called before and after it changes. When time runs out of bins, two become
    one."""
    bins = t.series.shape[1]
    place = int(now / t.clock[BIN_S])
    while place >= bins:
        half = bins // 2
        for row in range(t.series.shape[0]):
            for bin_ in range(half):
                t.series[row, bin_] = max(t.series[row, 2 * bin_], t.series[row, 2 * bin_ + 1])
            for bin_ in range(half, bins):
                t.series[row, bin_] = 0.0
            t.port[row, LAST_BIN] //= 2
        t.clock[BIN_S] *= 2.0
        place = int(now / t.clock[BIN_S])
    queued = t.port[port, QUEUED]
    for bin_ in range(t.port[port, LAST_BIN], place + 1):
        if queued > t.series[port, bin_]:
            t.series[port, bin_] = queued
    t.port[port, LAST_BIN] = place


@compiled
def start(t: Tables, now: float, port: int) -> None:
    """Begins to send the first packet of the queue, if it may. A token bucket lets a burst through at once."""
    packet = t.port[port, HEAD]
    if packet < 0 or t.port[port, BUSY] or t.port[port, PAUSED]:
        return
    size = t.packet[packet, SIZE]
    if t.rules[LAYER] == CREDIT_LAYER and t.port[port, FAR] >= 0:
        if t.port[port, CREDITS] < size:
            return
        t.port[port, CREDITS] -= size
    t.port[port, BUSY] = 1
    free = max(t.port_s[port, FREE_AT], now - t.port_s[port, BURST_S]) + size / t.port_s[port, RATE]
    t.port_s[port, FREE_AT] = free
    push(t, max(now, free), DEPART, port)


@compiled
def appended(t: Tables, now: float, port: int, packet: int) -> None:
    noted(t, now, port)
    t.packet[packet, NEXT] = -1
    if t.port[port, HEAD] < 0:
        t.port[port, HEAD] = packet
    else:
        t.packet[t.port[port, TAIL], NEXT] = packet
    t.port[port, TAIL] = packet
    t.port[port, QUEUED] += t.packet[packet, SIZE]
    t.port[port, DEEPEST] = max(t.port[port, DEEPEST], t.port[port, QUEUED])
    noted(t, now, port)


@compiled
def pause_limit(t: Tables, switch: int) -> float:
    """Bytes from one port beyond which its sender is told to stop: stated, or a part of what is free."""
    if t.rules[XOFF] > 0:
        return float(t.rules[XOFF])
    return float(t.rules[THRESHOLD] * max(t.rules[BUFFER] - t.used[switch], 0.0))


@compiled
def admitted(t: Tables, now: float, packet: int, port: int, came_by: int) -> bool:
    """Room in the switch for a packet that came by one link and leaves by `port`; says whom to pause."""
    switch, size, layer = t.port[port, SWITCH], t.packet[packet, SIZE], t.rules[LAYER]
    if layer == DROP:
        limit = t.rules[BUFFER]
        if t.rules[THRESHOLD] > 0:
            limit = t.rules[THRESHOLD] * (t.rules[BUFFER] - t.used[switch])
        if t.port[port, QUEUED] + size > limit:
            return False
        t.used[switch] += size
    elif layer == PFC:
        if t.port[came_by, TOLD]:
            if t.port[came_by, ROOM] + size > t.port[came_by, SPARE]:
                return False
            t.port[came_by, ROOM] += size
            t.port[came_by, MOST_ROOM] = max(t.port[came_by, MOST_ROOM], t.port[came_by, ROOM])
        else:
            if t.used[switch] + size > t.rules[BUFFER]:
                return False
            t.used[switch] += size
        t.port[came_by, CAME] += size
        if not t.port[came_by, TOLD] and t.port[came_by, CAME] > pause_limit(t, switch):
            t.port[came_by, TOLD] = 1
            push(t, now + t.port_s[came_by, DELAY] + t.rules[PAUSE_S], PAUSE, came_by)
            if t.tally[LOGGED] < len(t.log):
                t.log[t.tally[LOGGED], 0], t.log[t.tally[LOGGED], 1] = came_by, port
                t.log_at[t.tally[LOGGED]] = now
            t.tally[LOGGED] += 1
    return True


@compiled
def enqueued(t: Tables, now: float, packet: int, port: int, came_by: int) -> None:
    """A packet arrives at a switch and waits for its port, or is dropped."""
    if not admitted(t, now, packet, port, came_by):
        t.port[port, DROPS] += 1
        t.flow[t.packet[packet, FLOW], STRUCK] += 1
        t.tally[DROPPED] += 1
        given_back(t, packet)
        return
    t.packet[packet, CAME_BY] = came_by
    high = t.rules[MARK_HIGH]
    if high > 0 and not t.packet[packet, MARK]:
        queued, low = t.port[port, QUEUED] + t.packet[packet, SIZE], t.rules[MARK_LOW]
        if queued > low and (queued >= high or chance(t) * (high - low) < t.rules[MARK_MOST] * (queued - low)):
            t.packet[packet, MARK] = 1
            t.port[port, MARKS] += 1
            t.tally[MARKED] += 1
    appended(t, now, port, packet)
    start(t, now, port)


@compiled
def released(t: Tables, now: float, packet: int, port: int) -> None:
    """A packet has left a switch: its room is free, who sent it may go on."""
    switch, size, came_by, layer = (
        t.port[port, SWITCH],
        t.packet[packet, SIZE],
        t.packet[packet, CAME_BY],
        t.rules[LAYER],
    )
    if layer == DROP:
        t.used[switch] -= size
    elif layer == PFC:
        spare = min(t.port[came_by, ROOM], size)
        t.port[came_by, ROOM] -= spare
        t.used[switch] -= size - spare
        t.port[came_by, CAME] -= size
        if t.port[came_by, TOLD] and t.port[came_by, CAME] <= max(pause_limit(t, switch) - t.rules[XON_GAP], 0.0):
            t.port[came_by, TOLD] = 0
            push(t, now + t.port_s[came_by, DELAY] + t.rules[PAUSE_S], RESUME, came_by)
    else:
        push(t, now + t.port_s[came_by, DELAY], CREDIT, came_by * MOST_SIZE + size)
