"""How long a rollout takes: sequences of unequal length share an engine, and the last ones decode almost alone.

Every engine step gives each running sequence one token, so who runs when is known in steps before any second is: a
sequence that starts at step s and has n tokens ends at step s + n, and the next one in the queue takes its place.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.spec.lengths import DataLengths
from shardwise.step.posttrain.engine import RolloutEngine

QUANTILES = 4096
SIGMA = 0.8
"""of the logarithm of lengths where only mean and cap are known. Not measured: between the .5 of short answers and the
1 of mixed tasks"""
SEED = 0
GROUPED = 64
"""ends that are priced together: the time is an integral over them"""


@dataclass(frozen=True)
class DecodeSpans:
    """Stretches of engine steps with so many sequences and so much context; one row for each."""

    steps: Floats
    batch: Floats
    context: Floats
    """tokens before the one that is decoded, mean over the sequences"""

    @property
    def tokens(self) -> float:
        return float(self.steps @ self.batch)


@dataclass(frozen=True)
class Rollout:
    seconds: float
    """until the last sequence ends"""
    tail_s: float
    """of them with less than half of the sequences that could run"""
    prefill_s: float
    spans: DecodeSpans
    running: int
    """sequences at once"""


def capped_lengths(mean: float, cap: int, sigma: float = SIGMA) -> DataLengths:
    """A log-normal distribution that has this mean once longer answers are cut at the cap."""
    if not 1 <= mean <= cap:
        raise ValueError(f"lengths: a mean of {mean:g} tokens under a cap of {cap:,}; write a mean from 1 to the cap")
    low, high = mean, 1e9
    draws = np.exp(np.random.default_rng(SEED).standard_normal(QUANTILES) * sigma - sigma**2 / 2)
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if np.minimum(middle * draws, cap).mean() < mean else (low, middle)
    return DataLengths(name="lognormal", numbers=(low, sigma))


def drawn(lengths: DataLengths, cap: int, count: int) -> Ints:
    return lengths.drawn(count, cap, np.random.default_rng(SEED))


def spans_of(lengths: Ints, running: int, prompt: float) -> DecodeSpans:
    """Sequences in the order given, `running` of them at once."""
    now, births = 0, 0
    heap = [(int(length), 0) for length in lengths[:running]]
    heapify(heap)
    queue = iter(lengths[running:].tolist())
    rows: list[tuple[float, float, float]] = []
    while heap:
        end, born = heap[0]
        if end > now:
            rows.append((end - now, len(heap), prompt + (now + end) / 2 - births / len(heap)))
            now = end
        births -= born
        following = next(queue, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (now + following, now))
            births += now
    steps, batch, context = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    return _grouped(DecodeSpans(steps, batch, context))


def _grouped(spans: DecodeSpans) -> DecodeSpans:
    """As many steps and tokens in fewer rows."""
    cuts = np.unique(np.linspace(0, len(spans.steps), min(GROUPED, len(spans.steps)) + 1).astype(np.int64))[:-1]
    steps = np.add.reduceat(spans.steps, cuts)
    tokens = np.add.reduceat(spans.steps * spans.batch, cuts)
    seen = np.add.reduceat(spans.steps * spans.batch * spans.context, cuts)
    return DecodeSpans(steps, tokens / steps, seen / tokens)


def cached_tokens(lengths: Ints, prompt: float) -> float:
    """Of a running sequence, mean over time: one that runs is a long one more often than one that is drawn is, and is
    half way on average. Engines start sequences as long as the cache holds what is there, not what will be."""
    return prompt + float((lengths.astype(np.float64) ** 2).mean() / lengths.mean()) / 2


def rollout_of(engine: RolloutEngine, lengths: Ints, prompt: float, prompts: float, share: float) -> Rollout:
    """One replica's part: `lengths` of its answers, `prompts` of them different (a group shares its prompt's cache)."""
    running = min(engine.sequences(share, cached_tokens(lengths, prompt)), len(lengths))
    if running < 1:
        raise ValueError(
            f"engine: no sequence fits beside the weights on engines of {engine.tp}; use fp8 or a larger share"
        )
    spans = spans_of(lengths, running, prompt)
    each = engine.decode_seconds(spans.batch, spans.context) * spans.steps
    prefill = prompts * prompt * engine.prefill_token_s(prompt)
    return Rollout(
        seconds=float(each.sum()) + prefill, tail_s=float(each[spans.batch < running / 2].sum()), prefill_s=prefill,
        spans=spans, running=running,
    )  # fmt: skip


def steady_rate(engine: RolloutEngine, lengths: Ints, prompt: float, share: float, most: int) -> tuple[int, float]:
    """Of a replica that always has another sequence to start: how many run at once, and tokens a second."""
    running = max(min(engine.sequences(share, cached_tokens(lengths, prompt)), most), 1)
    context = cached_tokens(lengths, prompt)
    decode = float(engine.decode_seconds(np.array([running]), np.array([context]))[0])
    return running, running / (decode + running * prompt / float(lengths.mean()) * engine.prefill_token_s(prompt))
