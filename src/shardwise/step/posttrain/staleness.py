"""How old answers are when they are trained: engines, buffer and trainer event by event.

An answer starts when a slot of an engine is free and no more than (lag + 1) batches are started and not yet trained, as
AReaL bounds it (arXiv:2505.24298). Answers in flight go on when weights change; the trainer takes the batch that was
complete first. An answer's age is how often the weights changed between its first token and its update.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from shardwise.arrays import Ints
from shardwise.step.posttrain.job import PosttrainJob
from shardwise.step.posttrain.phases import PosttrainPhases, RolloutPrice
from shardwise.step.posttrain.rollout import drawn

STEPS, SETTLED = 24, 4
"""that are followed, and how many of them do not count: the buffer fills"""
SHOWN = 3
"""steps whose course is kept"""
MOST_EVENTS = 60_000
"""answers that are followed at most: of larger batches fewer steps"""


@dataclass(frozen=True)
class Ages:
    shares: tuple[float, ...]
    """of answers, by age in steps; of all that are trained or dropped"""
    dropped: float
    """share older than the lag"""
    spanning: float
    """share in whose middle the weights changed"""
    step_s: float
    """between two updates"""
    updates: Sequence[tuple[float, float]] = ()
    """of the trainer, from its first that counts: start and end"""
    flow: Sequence[tuple[float, int, int]] = ()
    """meanwhile: when, answers in flight, answers that wait to be trained"""

    @property
    def mean(self) -> float:
        return sum(age * share for age, share in enumerate(self.shares))


@dataclass
class _Flow:
    """What is under way."""

    version: int = 0
    started: int = 0
    trained: int = 0


def ages_of(job: PosttrainJob, rollout: RolloutPrice, phases: PosttrainPhases) -> Ages:
    """Of a layout whose sides work at once."""
    sides, batch, steady = rollout.sides, job.sequences, rollout.steady
    assert steady is not None, "on-policy answers have no age"
    slots = min(steady.running * sides.replicas, (sides.lag + 1) * batch)
    steps = max(min(STEPS, MOST_EVENTS // batch), SETTLED + 2)
    update_s = phases.trainer_s + phases.sync_s + phases.other_s
    lengths = drawn(job.lengths, job.cap, (steps + sides.lag + 2) * batch)
    return simulated(lengths, steady.token_s, slots, batch, sides.lag, update_s, steps)


def simulated(lengths: Ints, token_s: float, slots: int, batch: int, lag: int, update_s: float, steps: int) -> Ages:
    flow, running, done = _Flow(), list[tuple[float, int, int]](), deque[tuple[int, int]]()
    """running: (end, number, version at the start); done: (version at the start, at the end)"""
    now, busy_until, taken = 0.0, inf, list[tuple[int, int]]()
    ages: Counter[int] = Counter()
    dropped = spanning = 0
    updates, counts = list[tuple[float, float]](), list[tuple[float, int, int]]()
    while flow.version < steps and flow.started <= len(lengths):
        while len(running) < slots and flow.started < min(flow.trained + (lag + 1) * batch, len(lengths)):
            heappush(running, (now + token_s * float(lengths[flow.started]), flow.started, flow.version))
            flow.started += 1
        if busy_until == inf and len(done) >= batch:
            taken = [done.popleft() for _ in range(batch)]
            busy_until = now + update_s
            updates.append((now, busy_until))
            if flow.version >= SETTLED:
                found = [flow.version - begun for begun, _ in taken]
                ages.update(found)
                dropped += sum(age > lag for age in found)
                spanning += sum(ended > begun for begun, ended in taken)
        following = running[0][0] if running else inf
        if busy_until <= following and busy_until < inf:
            now, busy_until = busy_until, inf
            flow.version += 1
            flow.trained += batch
        elif running:
            now, _, begun = heappop(running)
            done.append((begun, flow.version))
        else:
            break
        if SETTLED <= len(updates) <= SETTLED + SHOWN:
            counts.append((now, len(running), len(done)))
    total = max(sum(ages.values()), 1)
    counted = [end for _, end in updates if end <= now][SETTLED - 1 :]
    return Ages(
        tuple(ages[age] / total for age in range(max(ages, default=0) + 1)), dropped / total, spanning / total,
        (counted[-1] - counted[0]) / (len(counted) - 1) if len(counted) > 1 else inf,
        updates[SETTLED : SETTLED + SHOWN], counts,
    )  # fmt: skip
