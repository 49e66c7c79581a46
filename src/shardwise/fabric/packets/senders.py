"""What a card sends next: its flows take turns; each goes as its rate, its window and its losses allow."""

from shardwise.fabric.packets.compiled import compiled
from shardwise.fabric.packets.heap import given_back, push, taken
from shardwise.fabric.packets.pacing import BETA, caught_up, grown, reduced, timed
from shardwise.fabric.packets.ports import appended, start
from shardwise.fabric.packets.tables import (
    ACKED,
    AT,
    BASE,
    BUSY,
    COUNT,
    CWND,
    DCQCN,
    DEADLINE,
    END,
    ENDED,
    EXPIRED,
    FIRST_PATH,
    FLOW,
    FLYING,
    GO_BACK,
    GONE,
    HEAD,
    HEADER,
    HIGH,
    IDLE,
    LAST_SIZE,
    LOST,
    MARK,
    NEXT_AT,
    NIC,
    NXT,
    OUT,
    PACE,
    PATHS,
    PAUSED,
    PAYLOAD,
    PROBED,
    RACK,
    RATE,
    RECOVER,
    REORDER,
    RESEND,
    RESENT,
    RING_HEAD,
    RING_NEXT,
    RING_TAIL,
    RINGED,
    RINGS_AT,
    RTTVAR,
    SCAN,
    SEQ,
    SIZE,
    SLOW_POINT,
    SPRAYED,
    SRTT,
    SSTHRESH,
    STATE,
    TCP,
    TIMED,
    TIMEOUT,
    TIMEOUT_S,
    TIMER,
    TRIES,
    UNA,
    UP_BYTES,
    WAITING,
    WAKE,
    WINDOW,
    Tables,
)  # fmt: skip

PROBE_S = 0.2
"""beyond two round trips before a lone packet is sent again (RFC 8985): as long may a receiver hold an answer back"""

TICKS_S = 8e-3
"""beyond two round trips before the last of several is: two ticks of a kernel at 250 Hz"""


@compiled
def may_send(t: Tables, f: int) -> bool:
    if t.flow[f, LOST] > 0:
        return bool(t.rules[TCP] == 0 or t.flow[f, FLYING] < t.flow_s[f, CWND])
    if t.flow[f, NXT] >= t.flow[f, COUNT]:
        return False
    window = t.rules[WINDOW]
    if t.rules[TCP]:
        return bool(t.flow[f, FLYING] < t.flow_s[f, CWND] and t.flow[f, NXT] - t.flow[f, UNA] < window)
    return bool(t.flow[f, NXT] - t.flow[f, UNA] < window)


@compiled
def ringed(t: Tables, now: float, f: int) -> None:
    """Into its card's ring, if it has something to send; a pace that is not over yet is waited for."""
    if t.flow[f, STATE] != IDLE or not may_send(t, f):
        return
    if t.flow_s[f, NEXT_AT] > now:
        t.flow[f, STATE] = WAITING
        push(t, t.flow_s[f, NEXT_AT], WAKE, f)
        return
    card = t.flow[f, NIC]
    t.flow[f, STATE], t.flow[f, RING_NEXT] = RINGED, -1
    if t.port[card, RING_HEAD] < 0:
        t.port[card, RING_HEAD] = f
    else:
        t.flow[t.port[card, RING_TAIL], RING_NEXT] = f
    t.port[card, RING_TAIL] = f


@compiled
def readied(t: Tables, now: float, f: int) -> None:
    ringed(t, now, f)
    next_packet(t, now, t.flow[f, NIC])


@compiled
def next_packet(t: Tables, now: float, card: int) -> None:
    """The next flow's packet onto an idle card."""
    while t.port[card, HEAD] < 0 and not t.port[card, BUSY] and not t.port[card, PAUSED]:
        f = t.port[card, RING_HEAD]
        if f < 0:
            return
        t.port[card, RING_HEAD] = t.flow[f, RING_NEXT]
        t.flow[f, STATE] = IDLE
        if may_send(t, f):
            seq = chosen(t, f)
            if not sent(t, now, f, seq):
                return
        ringed(t, now, f)


@compiled
def chosen(t: Tables, f: int) -> int:
    """A lost packet before a new one."""
    base = t.flow[f, BASE]
    if t.flow[f, LOST] > 0:
        seq = max(t.flow[f, RESEND], t.flow[f, UNA])
        while t.status[base + seq] != GONE:
            seq += 1
        t.flow[f, RESEND] = seq + 1
        t.flow[f, LOST] -= 1
        t.flow[f, RESENT] += 1
        return int(seq)
    seq = t.flow[f, NXT]
    t.flow[f, NXT] = seq + 1
    if t.status[base + seq] != 0:
        t.flow[f, RESENT] += 1
    return int(seq)


@compiled
def sent(t: Tables, now: float, f: int, seq: int) -> bool:
    packet = taken(t)
    if packet < 0:
        return False
    base, card = t.flow[f, BASE], t.flow[f, NIC]
    if t.status[base + seq] != OUT:
        t.flow[f, FLYING] += 1
        t.status[base + seq] = OUT
    way = t.flow[f, FIRST_PATH] + t.flow[f, SPRAYED] % t.flow[f, PATHS]
    t.flow[f, SPRAYED] += 1
    data = t.flow[f, LAST_SIZE] if seq == t.flow[f, COUNT] - 1 else int(t.rules[PAYLOAD])
    size = data + int(t.rules[HEADER])
    t.packet[packet, FLOW], t.packet[packet, SEQ], t.packet[packet, SIZE] = f, seq, size
    t.packet[packet, AT], t.packet[packet, END] = t.path_from[way], t.path_from[way + 1]
    t.packet[packet, MARK] = 0
    if t.rules[TCP]:
        t.sent_at[base + seq] = now
    elif t.rules[DCQCN]:
        caught_up(t, now, f)
        t.flow_s[f, UP_BYTES] += size
        if t.flow_s[f, PACE] < t.port_s[card, RATE]:
            t.flow_s[f, NEXT_AT] = now + size / t.flow_s[f, PACE]
    if t.rules[TCP] or not t.flow[f, TIMER]:
        armed(t, now, f)
    appended(t, now, card, packet)
    start(t, now, card)
    return True


@compiled
def patience(t: Tables, f: int) -> float:
    """Until a sender takes what is out for lost, or asks with a probe."""
    if not t.rules[TCP]:
        return float(t.rules[TIMEOUT_S])
    measured = t.flow_s[f, SRTT]
    if measured > 0 and not t.flow[f, PROBED] and t.flow[f, TRIES] == 0 and t.flow[f, LOST] == 0:
        return float(2.0 * measured + (PROBE_S if t.flow[f, FLYING] == 1 else TICKS_S))
    waits = measured + max(t.rules[TIMEOUT_S], 4.0 * t.flow_s[f, RTTVAR])
    return float(waits * 2.0 ** min(t.flow[f, TRIES], 6))


@compiled
def expired(t: Tables, now: float, f: int) -> None:
    """A timer rings; it was set for what may have been answered since."""
    if now != t.flow_s[f, RINGS_AT]:
        return  # set anew since, for an earlier time
    t.flow[f, TIMER] = 0
    if t.flow[f, UNA] >= t.flow[f, COUNT]:
        return
    if now < t.flow_s[f, DEADLINE]:
        rings(t, f)
        return
    base = t.flow[f, BASE]
    if t.rules[TCP] and not t.flow[f, PROBED] and t.flow_s[f, SRTT] > 0 and t.flow[f, TRIES] == 0:
        t.flow[f, PROBED] = 1
        if t.flow[f, LOST] == 0 and t.status[base + t.flow[f, NXT] - 1] == OUT:
            t.flow[f, RESENT] += 1
            sent(t, now, f, t.flow[f, NXT] - 1)
            return
    t.flow[f, EXPIRED] += 1
    t.flow[f, TRIES] += 1
    if t.rules[GO_BACK]:
        t.flow[f, NXT] = t.flow[f, UNA]
        t.flow[f, FLYING] = 0
    else:
        for seq in range(t.flow[f, UNA], t.flow[f, NXT]):
            if t.status[base + seq] == OUT:
                t.status[base + seq] = GONE
                t.flow[f, LOST] += 1
        t.flow[f, FLYING], t.flow[f, RESEND] = 0, t.flow[f, UNA]
    if t.rules[TCP]:
        reduced(t, f)
        t.flow_s[f, CWND] = 1.0
        t.flow[f, RECOVER], t.flow[f, TIMED] = t.flow[f, NXT], 1
    armed(t, now, f)
    readied(t, now, f)


@compiled
def armed(t: Tables, now: float, f: int) -> None:
    t.flow_s[f, DEADLINE] = now + patience(t, f)
    rings(t, f)


@compiled
def rings(t: Tables, f: int) -> None:
    """One event waits for each flow: a later deadline is looked at when it comes, an earlier one is an event anew."""
    if not t.flow[f, TIMER] or t.flow_s[f, DEADLINE] < t.flow_s[f, RINGS_AT]:
        t.flow[f, TIMER] = 1
        t.flow_s[f, RINGS_AT] = t.flow_s[f, DEADLINE]
        push(t, t.flow_s[f, DEADLINE], TIMEOUT, f)


@compiled
def answered(t: Tables, now: float, packet: int) -> None:
    """An acknowledgement: all before SEQ arrived, and AT did; MARK: marks were seen; SIZE: send again from SEQ on."""
    f, upto, single = t.packet[packet, FLOW], t.packet[packet, SEQ], t.packet[packet, AT]
    marked, asked = t.packet[packet, MARK], t.packet[packet, SIZE]
    given_back(t, packet)
    base, arrived, tcp = t.flow[f, BASE], 0, t.rules[TCP] > 0
    newest = single if single >= upto or single >= t.flow[f, UNA] else -1
    if tcp and newest >= 0 and t.status[base + newest] == OUT:
        t.flow_s[f, RACK] = max(t.flow_s[f, RACK], t.sent_at[base + newest])
        timed(t, now, f, now - t.sent_at[base + newest])
    for seq in range(t.flow[f, UNA], upto):
        arrived += settled(t, f, base + seq)
    t.flow[f, UNA] = max(t.flow[f, UNA], upto)
    if single >= upto:
        arrived += settled(t, f, base + single)
    t.flow[f, HIGH] = max(t.flow[f, HIGH], single + 1)
    if arrived:
        t.flow[f, TRIES] = t.flow[f, PROBED] = 0
        if tcp:
            armed(t, now, f)
        else:
            t.flow_s[f, DEADLINE] = now + patience(t, f)
    if t.rules[GO_BACK]:
        t.flow[f, NXT] = max(t.flow[f, NXT], t.flow[f, UNA])
        if asked and upto < t.flow[f, NXT]:
            t.flow[f, NXT] = upto
    elif tcp:
        missed_by_time(t, f)
        windowed(t, now, f, arrived, marked)
    else:
        missed_by_number(t, f)
    readied(t, now, f)


@compiled
def settled(t: Tables, f: int, place: int) -> int:
    was = t.status[place]
    if was == ACKED:
        return 0
    if was == OUT:
        t.flow[f, FLYING] -= 1
    elif was == GONE:
        t.flow[f, LOST] -= 1
    t.status[place] = ACKED
    return 1


@compiled
def missed_by_number(t: Tables, f: int) -> None:
    """What lies so far behind the newest arrival that it cannot only have been overtaken."""
    base, upto = t.flow[f, BASE], t.flow[f, HIGH] - int(t.rules[REORDER])
    for seq in range(max(t.flow[f, SCAN], t.flow[f, UNA]), upto):
        if t.status[base + seq] == OUT:
            gone(t, f, seq)
    t.flow[f, SCAN] = max(t.flow[f, SCAN], upto)


@compiled
def missed_by_time(t: Tables, f: int) -> None:
    """What was sent before something that has arrived since (RACK, RFC 8985), on a way that keeps the order."""
    base = t.flow[f, BASE]
    if t.flow[f, HIGH] <= t.flow[f, UNA] and t.flow[f, LOST] == 0:
        return
    for seq in range(t.flow[f, UNA], t.flow[f, NXT]):
        if t.status[base + seq] == OUT and t.sent_at[base + seq] < t.flow_s[f, RACK]:
            gone(t, f, seq)


@compiled
def gone(t: Tables, f: int, seq: int) -> None:
    t.status[t.flow[f, BASE] + seq] = GONE
    t.flow[f, FLYING] -= 1
    t.flow[f, LOST] += 1
    t.flow[f, RESEND] = min(t.flow[f, RESEND], seq) if t.flow[f, LOST] > 1 else seq


@compiled
def windowed(t: Tables, now: float, f: int, arrived: int, marked: int) -> None:
    """Grows the window, or cuts it once for each window in which something was lost or marked: step by step with what
    arrives (RFC 6937), and after a time-out from one packet on."""
    if t.flow[f, LOST] > 0 and t.flow[f, UNA] >= t.flow[f, RECOVER]:
        reduced(t, f)
        t.flow[f, RECOVER], t.flow[f, TIMED] = t.flow[f, NXT], 0
    elif marked and t.flow[f, UNA] >= max(t.flow[f, SLOW_POINT], t.flow[f, RECOVER]):
        reduced(t, f)
        t.flow[f, SLOW_POINT] = t.flow[f, NXT]
    most = t.flow_s[f, SSTHRESH]
    if t.flow[f, UNA] < t.flow[f, RECOVER] and not t.flow[f, TIMED]:
        flying = t.flow[f, FLYING]
        if flying > most:
            t.flow_s[f, CWND] = max(most, t.flow_s[f, CWND] - (1.0 - BETA) * arrived)
        else:
            t.flow_s[f, CWND] = min(most, flying + arrived + 1.0)
    elif t.flow[f, UNA] < t.flow[f, SLOW_POINT]:
        t.flow_s[f, CWND] = max(most, t.flow_s[f, CWND] - (1.0 - BETA) * arrived)
    elif arrived:
        if t.flow_s[f, ENDED] < t.flow[f, RECOVER]:
            t.flow_s[f, ENDED] = t.flow[f, RECOVER]
            if not t.flow[f, TIMED]:
                t.flow_s[f, CWND] = most
        grown(t, now, f, arrived)
