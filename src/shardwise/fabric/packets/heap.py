"""Events in the order of their time: a binary heap in two arrays, and a free list of packets."""

from shardwise.fabric.packets.compiled import compiled
from shardwise.fabric.packets.tables import FREE, HEAPED, KIND_BITS, NEXT, RANDOM, SHORT, Tables


@compiled
def push(t: Tables, at: float, kind: int, number: int) -> None:
    place = t.tally[HEAPED]
    if place >= len(t.heap_at):
        t.tally[SHORT] = 1
        return
    t.tally[HEAPED] = place + 1
    while place > 0:
        above = (place - 1) >> 1
        if t.heap_at[above] <= at:
            break
        t.heap_at[place] = t.heap_at[above]
        t.heap_what[place] = t.heap_what[above]
        place = above
    t.heap_at[place] = at
    t.heap_what[place] = (kind << KIND_BITS) | number


@compiled
def pop(t: Tables) -> int:
    """What comes first; its time is in `heap_at[0]` before."""
    found = t.heap_what[0]
    size = t.tally[HEAPED] - 1
    t.tally[HEAPED] = size
    at, what, place = t.heap_at[size], t.heap_what[size], 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and t.heap_at[below + 1] < t.heap_at[below]:
            below += 1
        if t.heap_at[below] >= at:
            break
        t.heap_at[place] = t.heap_at[below]
        t.heap_what[place] = t.heap_what[below]
        place = below
    t.heap_at[place] = at
    t.heap_what[place] = what
    return int(found)


@compiled
def taken(t: Tables) -> int:
    """A row for a packet; -1 where there is none left, and the run is begun again with more."""
    found = t.tally[FREE]
    if found < 0:
        t.tally[SHORT] = 1
        return -1
    t.tally[FREE] = t.packet[found, NEXT]
    return int(found)


@compiled
def given_back(t: Tables, packet: int) -> None:
    t.packet[packet, NEXT] = t.tally[FREE]
    t.tally[FREE] = packet


@compiled
def chance(t: Tables) -> float:
    """The next of the run's own random numbers, from 0 to 1 (xorshift64)."""
    found = t.tally[RANDOM]
    found ^= (found << 13) & 0x7FFFFFFFFFFFFFFF
    found ^= found >> 7
    found ^= (found << 17) & 0x7FFFFFFFFFFFFFFF
    t.tally[RANDOM] = found
    return float((found & 0xFFFFFFFFFFFFF) / 4503599627370496.0)
