"""The learning rate of each step: linear warm-up, then constant, cosine, linear, or stable with a decay at the end."""

import math

from shardwise.runtime.train.task import TrainingSettings


def rate_at(settings: TrainingSettings, step: int) -> float:
    """Of the step with this number, from 0; a decay ends at `floor` times the rate."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    return settings.rate * (settings.floor + (1.0 - settings.floor) * _left(settings, step))


def _left(settings: TrainingSettings, step: int) -> float:
    """1 at the full rate, 0 at the floor."""
    if settings.decay == "constant":
        return 1.0
    first = settings.warmup
    if settings.decay == "wsd":
        # warm-up, stable, decay (arXiv:2404.06395): the last tenth of the steps unless told
        first = max(first, settings.steps - (settings.decay_steps or max(settings.steps // 10, 1)))
    done = min(max((step - first) / max(settings.steps - first, 1), 0.0), 1.0)
    return 0.5 * (1.0 + math.cos(math.pi * done)) if settings.decay == "cosine" else 1.0 - done
