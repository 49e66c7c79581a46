"""How fast a sender may go on: DCQCN's rate for RDMA, cubic's window for TCP.

DCQCN as Zhu et al. describe it (SIGCOMM 2015), its steps in proportion to the line rate (40 Mb/s on 40 Gb/s there).
Cubic as Linux has it: fast growth until delay or a train of acknowledgements says enough (HyStart), then RFC 9438, and
never slower than 5 % a round trip before the first loss.
"""

from shardwise.fabric.packets.compiled import compiled
from shardwise.fabric.packets.tables import (
    ACK_AT,
    ALPHA,
    ALPHA_AT,
    CWND,
    EPOCH,
    FLYING,
    K_CUBIC,
    LEAST_CWND,
    NIC,
    NXT,
    ORIGIN,
    PACE,
    RATE,
    ROUND_AT,
    ROUND_END,
    ROUND_MIN,
    RTT_MIN,
    RTTVAR,
    SAMPLES,
    SRTT,
    SSTHRESH,
    STAGE_B,
    STAGE_T,
    TARGET,
    UNA,
    UP_AT,
    UP_BYTES,
    W_EST,
    W_MAX,
    Tables,
)  # fmt: skip

GAIN = 1.0 / 256.0
PERIOD_S = 55e-6
UP_EVERY_BYTES = 10e6
FAST_STAGES = 5
STEP, LEAP, LEAST = 1e-3, 1e-2, 1e-3
"""of the line rate: what is added to the target, what is when nothing was marked for long, and the slowest pace"""

BETA, GROWTH = 0.7, 0.4
LOW_WINDOW, TRAIN_S, TRAIN_GAP_S = 16.0, 1e-3, 2e-3
DELAY_LEAST_S, DELAY_MOST_S, ENOUGH_SAMPLES = 4e-3, 16e-3, 8
BEFORE_LOSS = 20.0


@compiled
def slowed(t: Tables, now: float, f: int) -> None:
    """A congestion notification came."""
    caught_up(t, now, f)
    t.flow_s[f, TARGET] = t.flow_s[f, PACE]
    t.flow_s[f, PACE] = max(
        t.flow_s[f, PACE] * (1.0 - t.flow_s[f, ALPHA] / 2.0), LEAST * t.port_s[t.flow[f, NIC], RATE]
    )
    t.flow_s[f, ALPHA] = (1.0 - GAIN) * t.flow_s[f, ALPHA] + GAIN
    t.flow_s[f, ALPHA_AT] = t.flow_s[f, UP_AT] = now
    t.flow_s[f, UP_BYTES] = 0.0
    t.flow[f, STAGE_T] = t.flow[f, STAGE_B] = 0


@compiled
def caught_up(t: Tables, now: float, f: int) -> None:
    """Timers that ran out since the last packet, all at once: alpha decays, the rate rises."""
    line = t.port_s[t.flow[f, NIC], RATE]
    if t.flow_s[f, PACE] >= line:
        return
    periods = int((now - t.flow_s[f, ALPHA_AT]) / PERIOD_S)
    if periods > 0:
        t.flow_s[f, ALPHA] *= (1.0 - GAIN) ** periods
        t.flow_s[f, ALPHA_AT] += periods * PERIOD_S
    while t.flow_s[f, PACE] < line and now - t.flow_s[f, UP_AT] >= PERIOD_S:
        t.flow_s[f, UP_AT] += PERIOD_S
        t.flow[f, STAGE_T] += 1
        raised(t, f, line)
    while t.flow_s[f, PACE] < line and t.flow_s[f, UP_BYTES] >= UP_EVERY_BYTES:
        t.flow_s[f, UP_BYTES] -= UP_EVERY_BYTES
        t.flow[f, STAGE_B] += 1
        raised(t, f, line)


@compiled
def raised(t: Tables, f: int, line: float) -> None:
    time, bytes_ = t.flow[f, STAGE_T], t.flow[f, STAGE_B]
    if min(time, bytes_) > FAST_STAGES:
        t.flow_s[f, TARGET] += LEAP * line
    elif max(time, bytes_) > FAST_STAGES:
        t.flow_s[f, TARGET] += STEP * line
    t.flow_s[f, TARGET] = min(t.flow_s[f, TARGET], line)
    t.flow_s[f, PACE] = (t.flow_s[f, TARGET] + t.flow_s[f, PACE]) / 2.0
    if t.flow_s[f, PACE] > 0.999 * line:
        t.flow_s[f, PACE] = line


@compiled
def timed(t: Tables, now: float, f: int, seconds: float) -> None:
    """A round trip was measured (RFC 6298); in fast growth it may say that the queue is long enough."""
    if t.flow_s[f, SRTT] <= 0.0:
        t.flow_s[f, SRTT], t.flow_s[f, RTTVAR] = seconds, seconds / 2.0
    else:
        t.flow_s[f, RTTVAR] += 0.25 * (abs(seconds - t.flow_s[f, SRTT]) - t.flow_s[f, RTTVAR])
        t.flow_s[f, SRTT] += 0.125 * (seconds - t.flow_s[f, SRTT])
    t.flow_s[f, RTT_MIN] = min(t.flow_s[f, RTT_MIN], seconds)
    if t.flow_s[f, CWND] < t.flow_s[f, SSTHRESH]:
        enough(t, now, f, seconds)


@compiled
def enough(t: Tables, now: float, f: int, seconds: float) -> None:
    """HyStart: by the spacing of acknowledgements, or by the delay of the first eight of a round."""
    if t.flow[f, UNA] >= t.flow[f, ROUND_END]:
        t.flow[f, ROUND_END], t.flow[f, SAMPLES] = t.flow[f, NXT], 0
        t.flow_s[f, ROUND_AT] = t.flow_s[f, ACK_AT] = now
        t.flow_s[f, ROUND_MIN] = 1e9
    if t.flow_s[f, CWND] < LOW_WINDOW:
        return
    found = False
    if now - t.flow_s[f, ACK_AT] <= TRAIN_GAP_S:
        t.flow_s[f, ACK_AT] = now
        found = now - t.flow_s[f, ROUND_AT] > (t.flow_s[f, RTT_MIN] + TRAIN_S) / 2.0
    if t.flow[f, SAMPLES] < ENOUGH_SAMPLES:
        t.flow[f, SAMPLES] += 1
        t.flow_s[f, ROUND_MIN] = min(t.flow_s[f, ROUND_MIN], seconds)
    else:
        margin = min(max(t.flow_s[f, RTT_MIN] / 8.0, DELAY_LEAST_S), DELAY_MOST_S)
        found = found or t.flow_s[f, ROUND_MIN] >= t.flow_s[f, RTT_MIN] + margin
    if found:
        t.flow_s[f, SSTHRESH] = t.flow_s[f, CWND]


@compiled
def grown(t: Tables, now: float, f: int, arrived: int) -> None:
    """So many packets were acknowledged: a larger window, where it is the window that holds the sender."""
    window = t.flow_s[f, CWND]
    flying = t.flow[f, FLYING] + arrived
    if window < t.flow_s[f, SSTHRESH]:
        if 2.0 * flying >= window:
            t.flow_s[f, CWND] = min(window + arrived, max(t.flow_s[f, SSTHRESH], window))
        return
    if flying + 1 < window:
        return
    if t.flow_s[f, EPOCH] <= 0.0:
        t.flow_s[f, EPOCH], t.flow_s[f, W_EST] = now, window
        most = t.flow_s[f, W_MAX]
        t.flow_s[f, K_CUBIC] = ((most - window) / GROWTH) ** (1.0 / 3.0) if most > window else 0.0
        t.flow_s[f, ORIGIN] = max(most, window)
    since = now - t.flow_s[f, EPOCH] + t.flow_s[f, RTT_MIN] - t.flow_s[f, K_CUBIC]
    wanted = t.flow_s[f, ORIGIN] + GROWTH * since * since * since
    every = window / (wanted - window) if wanted > window else 100.0 * window
    if t.flow_s[f, W_MAX] <= 0.0:
        every = min(every, BEFORE_LOSS)
    t.flow_s[f, W_EST] += arrived * 3.0 * (1.0 - BETA) / (1.0 + BETA) / window
    if t.flow_s[f, W_EST] > window:
        every = min(every, window / (t.flow_s[f, W_EST] - window))
    t.flow_s[f, CWND] = window + arrived / max(every, 2.0)


@compiled
def reduced(t: Tables, f: int) -> None:
    """A loss or a mark: once for each window."""
    window = t.flow_s[f, CWND]
    t.flow_s[f, W_MAX] = window * (1.0 + BETA) / 2.0 if window < t.flow_s[f, W_MAX] else window
    t.flow_s[f, SSTHRESH] = max(window * BETA, t.rules[LEAST_CWND])
    t.flow_s[f, EPOCH] = 0.0
