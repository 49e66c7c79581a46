"""One event after another, until all flows have arrived, time is over or too many events have passed."""

from shardwise.arrays import Ints
from shardwise.fabric.packets.compiled import compiled, entered
from shardwise.fabric.packets.heap import chance, given_back, pop, push
from shardwise.fabric.packets.pacing import slowed
from shardwise.fabric.packets.ports import enqueued, noted, released, start
from shardwise.fabric.packets.receivers import received
from shardwise.fabric.packets.senders import answered, expired, next_packet, readied
from shardwise.fabric.packets.tables import (
    ACK,
    ARRIVE,
    AT,
    BUSY,
    CNP,
    CREDIT,
    CREDIT_LAYER,
    CREDITS,
    DELAY,
    DEPART,
    END,
    EVENTS,
    FAR,
    FINISHED,
    FLOW,
    HEAD,
    HEAPED,
    IDLE,
    KIND_BITS,
    LAYER,
    LOSS,
    LOSSES,
    MOST_SIZE,
    NEXT,
    NOW,
    NUMBER,
    PAUSE,
    PAUSED,
    PAUSED_S,
    PAUSES,
    QUEUED,
    SENT,
    SHORT,
    SINCE,
    SIZE,
    START,
    STATE,
    STRUCK,
    SWITCH,
    TIMEOUT,
    WAKE,
    Tables,
)  # fmt: skip


@compiled
def departed(t: Tables, now: float, port: int) -> None:
    """The first packet of a port is on the wire as a whole."""
    packet = t.port[port, HEAD]
    size = t.packet[packet, SIZE]
    noted(t, now, port)
    t.port[port, HEAD] = t.packet[packet, NEXT]
    t.port[port, QUEUED] -= size
    t.port[port, BUSY] = 0
    t.port[port, SENT] += size
    if t.port[port, SWITCH] >= 0:
        released(t, now, packet, port)
    if t.rules[LOSS] > 0 and chance(t) < t.rules[LOSS]:
        t.tally[LOSSES] += 1
        t.flow[t.packet[packet, FLOW], STRUCK] += 1
        if t.rules[LAYER] == CREDIT_LAYER and t.port[port, FAR] >= 0:
            push(t, now + 2.0 * t.port_s[port, DELAY], CREDIT, port * MOST_SIZE + size)
        given_back(t, packet)
    else:
        push(t, now + t.port_s[port, DELAY], ARRIVE, packet)
    went_on(t, now, port)


@compiled
def went_on(t: Tables, now: float, port: int) -> None:
    if t.port[port, HEAD] >= 0:
        start(t, now, port)
    elif t.port[port, SWITCH] < 0:
        next_packet(t, now, port)


@compiled
def arrived(t: Tables, now: float, packet: int) -> None:
    place = t.packet[packet, AT] + 1
    if place == t.packet[packet, END]:
        received(t, now, packet)
    else:
        t.packet[packet, AT] = place
        enqueued(t, now, packet, t.path[place], t.path[place - 1])


@compiled
def held(t: Tables, now: float, port: int, pause: bool) -> None:
    """A pause or its end reaches the port it is for."""
    if pause:
        t.port[port, PAUSED] = 1
        t.port[port, PAUSES] += 1
        t.port_s[port, SINCE] = now
    elif t.port[port, PAUSED]:
        t.port[port, PAUSED] = 0
        t.port_s[port, PAUSED_S] += now - t.port_s[port, SINCE]
        went_on(t, now, port)


@entered
def ran(t: Tables, first: Ints, most_events: int, most_s: float) -> None:
    """`first`: flows in the order in which they start."""
    flows = len(t.flow)
    for f in first:
        push(t, t.flow_s[f, START], WAKE, f)
    while t.tally[HEAPED] > 0 and t.tally[FINISHED] < flows and t.tally[SHORT] == 0:
        now = t.heap_at[0]
        if t.tally[EVENTS] >= most_events or now > most_s:
            break
        what = pop(t)
        kind, number = what >> KIND_BITS, what & NUMBER
        t.tally[EVENTS] += 1
        t.clock[NOW] = now
        if kind == ARRIVE:
            arrived(t, now, number)
        elif kind == DEPART:
            departed(t, now, number)
        elif kind == ACK:
            answered(t, now, number)
        elif kind == WAKE:
            t.flow[number, STATE] = IDLE
            readied(t, now, number)
        elif kind == CREDIT:
            t.port[number // MOST_SIZE, CREDITS] += number % MOST_SIZE
            went_on(t, now, number // MOST_SIZE)
        elif kind == CNP:
            slowed(t, now, number)
        elif kind == TIMEOUT:
            expired(t, now, number)
        else:
            held(t, now, number, kind == PAUSE)
