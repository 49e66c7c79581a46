"""What arrives at a card: order, acknowledgements, requests to send again, notifications of marks."""

from shardwise.fabric.packets.compiled import compiled
from shardwise.fabric.packets.heap import given_back, push, taken
from shardwise.fabric.packets.tables import (
    ACK,
    ACK_EVERY,
    ASKED,
    AT,
    BACK_S,
    BASE,
    CNP,
    CNP_AT,
    CNPS,
    COUNT,
    DCQCN,
    DELIVERED,
    DONE_AT,
    ECHO,
    EXPECT,
    FINISHED,
    FLOW,
    FLYING,
    GO_BACK,
    MARK,
    NXT,
    PENDING,
    SEQ,
    SIZE,
    TCP,
    TOP,
    Tables,
)  # fmt: skip

CNP_EVERY_S = 50e-6
"""a card notifies the sender of one flow no more often (Zhu et al., SIGCOMM 2015)"""


@compiled
def received(t: Tables, now: float, packet: int) -> None:
    f, seq, marked = t.packet[packet, FLOW], t.packet[packet, SEQ], t.packet[packet, MARK]
    given_back(t, packet)
    t.tally[DELIVERED] += 1
    if marked:
        t.flow[f, ECHO] = 1
        if t.rules[DCQCN] and not t.rules[TCP] and now - t.flow_s[f, CNP_AT] >= CNP_EVERY_S:
            t.flow_s[f, CNP_AT] = now
            t.tally[CNPS] += 1
            push(t, now + t.flow_s[f, BACK_S], CNP, f)
    base, expected = t.flow[f, BASE], t.flow[f, EXPECT]
    if t.rules[GO_BACK] and seq > expected:
        # discarded; asked for once until the missing one is there
        if not t.flow[f, ASKED]:
            t.flow[f, ASKED] = 1
            acknowledged(t, now, f, expected - 1, 1)
        return
    if t.there[base + seq]:
        acknowledged(t, now, f, seq, 0)
        return
    t.there[base + seq] = 1
    t.flow[f, TOP] = max(t.flow[f, TOP], seq + 1)
    if seq != expected:
        acknowledged(t, now, f, seq, 0)
        return
    t.flow[f, ASKED] = 0
    while expected < t.flow[f, COUNT] and t.there[base + expected]:
        expected += 1
    t.flow[f, EXPECT] = expected
    t.flow[f, PENDING] += 1
    if expected == t.flow[f, COUNT]:
        t.flow_s[f, DONE_AT] = now
        t.tally[FINISHED] += 1
    # at once while something is missing, and for the last that is on its way: its sender says so with a push flag
    alone = expected == t.flow[f, NXT] or t.flow[f, FLYING] == 1
    if t.flow[f, PENDING] >= t.rules[ACK_EVERY] or t.flow[f, TOP] > seq + 1 or alone:
        acknowledged(t, now, f, seq, 0)


@compiled
def acknowledged(t: Tables, now: float, f: int, seq: int, again: int) -> None:
    answer = taken(t)
    if answer < 0:
        return
    t.packet[answer, FLOW], t.packet[answer, SEQ], t.packet[answer, AT] = f, t.flow[f, EXPECT], seq
    t.packet[answer, MARK], t.packet[answer, SIZE] = t.flow[f, ECHO], again
    t.flow[f, ECHO] = t.flow[f, PENDING] = 0
    push(t, now + t.flow_s[f, BACK_S], ACK, answer)
